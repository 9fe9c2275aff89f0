"""Networks by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from climb.errors import InputError, unknown
from climb.nets.heads import projector
from climb.nets.micro import micronet
from climb.nets.network import Network
from climb.nets.resnet import resnet18, resnet34, resnet50
from climb.nets.timm_model import PREFIX, timm_model
from climb.nets.vit import check_patches, vit_tiny

SMALLEST_IMAGE = 8
"""Below this side, in pixels, nothing is left of an image before the last layer."""


@dataclass(frozen=True, kw_only=True)
class _Backbone:
    encoder: Callable[[int, torch.Generator], Any]
    """Image size and generator to a module with ``feature_dim``."""
    hidden: int = 512
    embedding_dim: int = 2048
    bottleneck_dim: int = 512


def _sized(make: Callable[..., Any]) -> _Backbone:
    """A backbone made for an image size, under the paper's heads."""
    return _Backbone(encoder=lambda image_size, generator: make(image_size, generator=generator))


_BACKBONES = {
    "resnet18": _sized(resnet18),
    "resnet34": _sized(resnet34),
    "resnet50": _sized(resnet50),
    "vit-tiny": _sized(vit_tiny),
    "micro": _Backbone(
        encoder=lambda _, generator: micronet(generator=generator),
        hidden=128,
        embedding_dim=128,
        bottleneck_dim=64,
    ),
}

BACKBONES = tuple(_BACKBONES)
"""The names ``build_network`` knows beside those that start with ``timm/``."""


def build_network(backbone: str, image_size: int, *, generator: torch.Generator, final_norm: bool = True) -> Network:
    """The network called ``backbone`` for square images of ``image_size`` pixels.

    ``"timm/NAME"`` is timm's model NAME and needs the extra ``climb-ssl[timm]``. The weights are drawn from
    ``generator``, a CPU one, and depend on nothing else. ``final_norm=False`` leaves out the projector's last batch
    norm, as Barlow Twins and VICReg want it.

    >>> network = build_network("micro", 32, generator=torch.Generator().manual_seed(0))
    >>> features, embeddings = network(torch.zeros(2, 3, 32, 32))
    >>> features.shape, embeddings.shape
    (torch.Size([2, 128]), torch.Size([2, 128]))
    """
    check_backbone(backbone, image_size)
    parts = _named(backbone)
    encoder = parts.encoder(image_size, generator)
    head = projector(encoder.feature_dim, parts.hidden, parts.embedding_dim, generator=generator, final_norm=final_norm)
    return Network(
        encoder,
        head,
        feature_dim=encoder.feature_dim,
        embedding_dim=parts.embedding_dim,
        bottleneck_dim=parts.bottleneck_dim,
    )


def check_backbone(backbone: str, image_size: int) -> None:
    """Refuse what `build_network` does not know, or for images of that size; timm's models are checked by timm."""
    if not backbone.startswith(PREFIX) and backbone not in _BACKBONES:
        raise unknown("backbone", backbone, [*_BACKBONES, f"{PREFIX}NAME"])
    if image_size < SMALLEST_IMAGE:
        raise InputError(f"image_size is {image_size}; it must be at least {SMALLEST_IMAGE} pixels")
    if backbone == "vit-tiny":
        check_patches(image_size)


def _named(backbone: str) -> _Backbone:
    if backbone.startswith(PREFIX):
        return _sized(partial(timm_model, backbone.removeprefix(PREFIX)))
    return _BACKBONES[backbone]
