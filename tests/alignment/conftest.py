from __future__ import annotations

import pytest
import torch

from climb.nets import Network, build_network


@pytest.fixture
def student() -> Network:
    return build_network("micro", 16, generator=torch.Generator().manual_seed(0))
