"""The small networks on top of an encoder."""

from __future__ import annotations

import torch
from torch import nn

from climb.nets.initialise import initialised


def projector(
    feature_dim: int,
    hidden: int = 512,
    out: int = 2048,
    *,
    generator: torch.Generator,
    final_norm: bool = True,
) -> nn.Sequential:
    """Features ``(n, feature_dim)`` to embeddings ``(n, out)``: three linear layers, a batch norm after each.

    The last norm has no scale and shift of its own. No layer has a bias: the norm behind it would cancel it.

    ``final_norm=False`` leaves the last norm out, for objectives that standardise or spread the embeddings
    themselves: Barlow Twins (Zbontar et al. 2021) and VICReg (Bardes et al. 2022). The last layer has no bias then
    either: neither loss sees a shift that all embeddings share.

    >>> projector(8, hidden=16, out=4, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 4])
    """
    return initialised(
        lambda: nn.Sequential(
            nn.Linear(feature_dim, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, out, bias=False),
            *([nn.BatchNorm1d(out, affine=False)] if final_norm else []),
        ),
        generator,
    )


def bottleneck(dim: int = 2048, hidden: int = 512, *, generator: torch.Generator) -> nn.Sequential:
    """Embeddings ``(n, dim)`` to as many numbers through a narrow middle: aligner and predictor.

    >>> bottleneck(8, hidden=2, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 8])
    """
    return initialised(
        lambda: nn.Sequential(
            nn.Linear(dim, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, dim),
        ),
        generator,
    )


def plain_projector(
    feature_dim: int, hidden: int = 512, out: int = 128, *, generator: torch.Generator
) -> nn.Sequential:
    """Features ``(n, feature_dim)`` to embeddings ``(n, out)``: two linear layers with biases, no norm (SCALE).

    >>> plain_projector(8, hidden=16, out=4, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 4])
    """
    return initialised(
        lambda: nn.Sequential(nn.Linear(feature_dim, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out)), generator
    )
