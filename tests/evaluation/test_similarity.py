"""Centred features: different images are not alike, and what is common to all does not count."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

from climb.evaluation.similarity import PANEL, centre_of, comparable, panel


def test_a_common_direction_does_not_count() -> None:
    """Features of 300 images with a large offset: raw cosines are all near 1, and their order is that of the rest."""
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(300, 16, generator=generator)
    features = own + 50.0
    raw = comparable(features, None)
    centred = comparable(features, centre_of(panel(features)))
    off = ~torch.eye(300, dtype=torch.bool)
    assert (raw @ raw.T)[off].min() > 0.99
    assert (centred @ centred.T)[off].abs().median() < 0.3
    expected = F.normalize(own - own.mean(dim=1, keepdim=True))  # the offset is along (1, ..., 1)
    agreement = (centred * expected).sum(dim=1)
    assert agreement.median() > 0.95
    assert torch.allclose(centred.norm(dim=1), torch.ones(300))


def test_the_length_of_features_does_not_count() -> None:
    features = torch.rand(20, 8, generator=torch.Generator().manual_seed(1))
    scale = torch.arange(1.0, 21.0).unsqueeze(1)
    centre = centre_of(features)
    assert torch.allclose(centre_of(features * scale), centre, atol=1e-6)
    assert torch.allclose(comparable(features * scale, centre), comparable(features, centre), atol=1e-5)


def test_a_panel_is_spread_over_the_images() -> None:
    assert panel(torch.arange(5)).tolist() == list(range(5))
    chosen = panel(torch.arange(1000)).tolist()
    assert (len(chosen), chosen[0], chosen[-1]) == (PANEL, 0, 999)
    assert max(b - a for a, b in pairwise(chosen)) <= 17
