from __future__ import annotations

import pytest
import torch

from climb.nets import Encoded
from climb.objectives import Objective


def test_an_objective_must_define_its_loss() -> None:
    rows = torch.zeros(0, dtype=torch.int64)
    empty = torch.zeros(2, 0, 3)
    encoded = Encoded(views=empty, features=empty, embeddings=empty, stream_rows=rows, replay_rows=rows)
    with pytest.raises(TypeError, match=r"Objective must define forward\(encoded\)"):
        Objective()(encoded)
