from __future__ import annotations

import pytest
import torch

from climb.datasets.dataset import channel_statistics


def test_agrees_with_torch_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.datasets.dataset._CHUNK", 4)
    images = torch.randint(0, 256, (11, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(images)
    pixels = images.double() / 255
    assert mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist())
    assert std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist())


def test_a_constant_channel_can_still_be_divided_by() -> None:
    _, std = channel_statistics(torch.full((2, 3, 4, 4), 7, dtype=torch.uint8))
    assert std == pytest.approx((1 / 255,) * 3)
