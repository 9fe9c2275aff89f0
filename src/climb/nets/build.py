"""Networks by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from climb.errors import InputError, unknown
from climb.nets.heads import projector
from climb.nets.micro import MicroNet, micronet
from climb.nets.network import Network
from climb.nets.resnet import ResNet, resnet18, resnet34, resnet50

SMALLEST_IMAGE = 8
"""Below this side, in pixels, nothing is left of an image before the last layer."""


@dataclass(frozen=True, kw_only=True)
class _Backbone:
    encoder: Callable[[int, torch.Generator], ResNet | MicroNet]
    hidden: int
    embedding_dim: int
    bottleneck_dim: int


def _resnet(make: Callable[..., ResNet]) -> _Backbone:
    return _Backbone(
        encoder=lambda image_size, generator: make(image_size, generator=generator),
        hidden=512,
        embedding_dim=2048,
        bottleneck_dim=512,
    )


_BACKBONES = {
    "auto": _resnet(resnet18),
    "resnet18": _resnet(resnet18),
    "resnet34": _resnet(resnet34),
    "resnet50": _resnet(resnet50),
    "micro": _Backbone(
        encoder=lambda _, generator: micronet(generator=generator),
        hidden=128,
        embedding_dim=128,
        bottleneck_dim=64,
    ),
}

BACKBONES = tuple(_BACKBONES)
"""The names ``build_network`` knows; ``auto`` is ``resnet18``."""


def build_network(backbone: str, image_size: int, *, generator: torch.Generator) -> Network:
    """The network called ``backbone`` for square images of ``image_size`` pixels.

    Its weights are drawn from ``generator``, a CPU one, and depend on nothing else.

    >>> network = build_network("micro", 32, generator=torch.Generator().manual_seed(0))
    >>> features, embeddings = network(torch.zeros(2, 3, 32, 32))
    >>> features.shape, embeddings.shape
    (torch.Size([2, 128]), torch.Size([2, 128]))
    """
    if backbone not in _BACKBONES:
        raise unknown("backbone", backbone, _BACKBONES)
    if image_size < SMALLEST_IMAGE:
        raise InputError(f"image_size is {image_size}; it must be at least {SMALLEST_IMAGE} pixels")
    parts = _BACKBONES[backbone]
    encoder = parts.encoder(image_size, generator)
    head = projector(encoder.feature_dim, parts.hidden, parts.embedding_dim, generator=generator)
    return Network(encoder, head, embedding_dim=parts.embedding_dim, bottleneck_dim=parts.bottleneck_dim)
