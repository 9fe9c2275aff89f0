"""Heads on top of an encoder: projectors, and the bottleneck of aligners and predictors."""

from __future__ import annotations

import torch
from torch import nn

from climb.nets.network import initialised


def projector(
    feature_dim: int, hidden: int = 512, out: int = 2048, *, generator: torch.Generator, final_norm: bool = True
) -> nn.Sequential:
    """Projector from features ``(n, feature_dim)`` to embeddings ``(n, out)``: three linear layers with batch norms.

    The last norm has no scale and no shift. No layer has a bias, because the following norm would cancel it.

    Args:
        feature_dim: width of the input.
        hidden: width of the two hidden layers.
        out: width of the output.
        generator: source of the weights.
        final_norm: False omits the last norm, for objectives that standardise or spread embeddings themselves: Barlow
            Twins (Zbontar et al. 2021) and VICReg (Bardes et al. 2022). Neither loss depends on a bias of the last
            layer, so there is none.

    >>> projector(8, hidden=16, out=4, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 4])
    """
    return initialised(
        lambda: nn.Sequential(
            *_hidden_layer(feature_dim, hidden),
            *_hidden_layer(hidden, hidden),
            nn.Linear(hidden, out, bias=False),
            *([nn.BatchNorm1d(out, affine=False)] if final_norm else []),
        ),
        generator,
    )


def bottleneck(dim: int = 2048, hidden: int = 512, *, generator: torch.Generator) -> nn.Sequential:
    """Aligner or predictor: maps embeddings ``(n, dim)`` to ``(n, dim)`` through a narrow hidden layer.

    >>> bottleneck(8, hidden=2, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 8])
    """
    return initialised(lambda: nn.Sequential(*_hidden_layer(dim, hidden), nn.Linear(hidden, dim)), generator)


def _hidden_layer(inputs: int, width: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)


def plain_projector(
    feature_dim: int, hidden: int = 512, out: int = 128, *, generator: torch.Generator
) -> nn.Sequential:
    """SCALE's projector from features ``(n, feature_dim)`` to embeddings ``(n, out)``: two linear layers, no norm.

    >>> plain_projector(8, hidden=16, out=4, generator=torch.Generator().manual_seed(0))(torch.randn(5, 8)).shape
    torch.Size([5, 4])
    """
    return initialised(
        lambda: nn.Sequential(nn.Linear(feature_dim, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out)), generator
    )
