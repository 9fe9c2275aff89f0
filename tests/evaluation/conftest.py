"""Features to probe: overlapping clusters, one per class."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Blobs = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture
def blobs() -> Blobs:
    """``blobs(rows, classes=5, width=16, spread=1.0, seed=0)``: features (rows, width) and labels (rows,).

    The centres depend on classes and width only, so two seeds give two samples of one distribution.
    """

    def make(
        rows: int, *, classes: int = 5, width: int = 16, spread: float = 1.0, seed: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(1234))
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(classes, (rows,), generator=generator)
        return centres[labels] + spread * torch.randn(rows, width, generator=generator), labels

    return make
