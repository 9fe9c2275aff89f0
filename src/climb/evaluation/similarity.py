"""Similarities that mean something: the cosine of features relative to what all images have in common.

Features after a ReLU share a large common direction, so raw cosines crowd below 1: of many different images they round
to 1.0000. Subtracting the mean direction of some stored images removes it. Measured in ``results/similarity-pacs``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PANEL = 64
"""Stored images whose mean direction is subtracted; more change nothing."""


def centre_of(features: Tensor) -> Tensor:
    """The mean (f,) of the directions of features (n, f)."""
    return F.normalize(features.float()).mean(dim=0)


def comparable(features: Tensor, centre: Tensor | None) -> Tensor:
    """Unit vectors (n, f) whose dot products are similarities; without a centre, the directions themselves.

    >>> features = torch.tensor([[9.0, 1.0], [9.0, -1.0], [8.0, 1.5]])
    >>> plain, centred = (comparable(features, centre) for centre in (None, centre_of(features[:2])))
    >>> [round(float(vectors[0] @ vectors[1]), 2) for vectors in (plain, centred)]
    [0.98, -1.0]
    """
    directions = F.normalize(features.float())
    return directions if centre is None else F.normalize(directions - centre.to(directions))


def panel(images: Tensor) -> Tensor:
    """At most `PANEL` of the images (n, ...), spread evenly."""
    rows = torch.linspace(0, len(images) - 1, min(PANEL, len(images))).round().long()
    return images[rows.to(images.device)]
