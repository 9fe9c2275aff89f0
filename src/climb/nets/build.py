"""Networks by name: the registry of encoders, and an encoder with its projector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from climb.errors import InputError
from climb.nets.heads import projector
from climb.nets.network import Network
from climb.nets.timm_model import PREFIX, timm_model
from climb.registry import Registry

SMALLEST_IMAGE = 8
"""Smallest side in pixels. The strides of a network reduce smaller images to nothing."""


Channels = tuple[float, float, float]
"""A number for each colour channel."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pretrained:
    """Published weights of a network, and the images that they were trained on."""

    mean: Channels = IMAGENET_MEAN
    """Mean of the channels, on the 0..1 scale."""
    std: Channels = IMAGENET_STD
    """Standard deviation of the channels."""
    image_size: int = 224
    """Side of the images in pixels."""
    state: Callable[[int], Mapping[str, Tensor]] | None = None
    """``state(image_size)`` returns the tensors by name, for ``--weights pretrained``. None if there are files only."""


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """An encoder by name, the widths of its heads, and its published weights."""

    make: Callable[..., Any]
    """``make(image_size, generator=generator)`` returns a module with an attribute ``feature_dim``."""
    check: Callable[[int], None] | None = None
    """Raises InputError for an image size that `make` does not support."""
    hidden: int = 512
    """Width of the projector's hidden layer."""
    embedding_dim: int = 2048
    """Width of the projector's output."""
    bottleneck_dim: int = 512
    """Hidden width of aligners and predictors."""
    pretrained: Callable[[], Pretrained] | None = None
    """Returns what is published of this network. It may import an extra."""
    rename: Callable[[str], str] | None = None
    """Returns the encoder's name of a tensor that another library named. Applied to weights files."""
    adapt: Callable[[Mapping[str, Tensor], nn.Module], Mapping[str, Tensor]] | None = None
    """``adapt(tensors, encoder)`` fits renamed tensors of a file to the encoder, such as positions to an image size."""


BACKBONES = Registry[Backbone]("backbone", builtin=["climb.nets.*"])
"""The networks by name, without those of timm."""

Make = TypeVar("Make", bound=Callable[..., Any])


def backbone(name: str, **fields: Any) -> Callable[[Make], Make]:
    """Register a network: a function ``make(image_size, *, generator)`` that returns its encoder.

    The encoder is an `nn.Module` from float images (n, 3, H, W) to features (n, f) with an attribute ``feature_dim``
    equal to f. It draws its weights from ``generator`` only. ``fields`` are the other fields of `Backbone`, such as
    ``pretrained``.
    """

    def register(make: Make) -> Make:
        BACKBONES.add(name, Backbone(make=make, **fields), source=make)
        return make

    return register


def build_network(
    backbone: str,
    image_size: int,
    *,
    generator: torch.Generator,
    final_norm: bool = True,
    weights: Mapping[str, Tensor] | None = None,
) -> Network:
    """Build the network ``backbone`` for square images of ``image_size`` pixels.

    Args:
        backbone: a registered name, or ``"timm/NAME"`` for timm's model NAME (extra ``climb-ssl[timm]``).
        image_size: side of the images in pixels.
        generator: a CPU generator. Random weights depend on nothing else.
        final_norm: whether the projector ends with a batch norm. Barlow Twins and VICReg need False.
        weights: weights of the encoder; None for random ones. The projector is random in either case, and the same.

    >>> network = build_network("micro", 32, generator=torch.Generator().manual_seed(0))
    >>> features, embeddings = network(torch.zeros(2, 3, 32, 32))
    >>> features.shape, embeddings.shape
    (torch.Size([2, 128]), torch.Size([2, 128]))
    """
    check_backbone(backbone, image_size)
    parts = find_backbone(backbone)
    encoder = parts.make(image_size, generator=generator)
    if weights is not None:  # after the random ones, so that the generator draws the same projector
        encoder.load_state_dict(weights)
    head = projector(encoder.feature_dim, parts.hidden, parts.embedding_dim, generator=generator, final_norm=final_norm)
    return Network(
        encoder,
        head,
        feature_dim=encoder.feature_dim,
        embedding_dim=parts.embedding_dim,
        bottleneck_dim=parts.bottleneck_dim,
    )


def check_backbone(backbone: str, image_size: int) -> None:
    """Reject an unknown backbone, or an image size that it cannot take. timm checks its models itself."""
    entry = find_backbone(backbone)
    if image_size < SMALLEST_IMAGE:
        raise InputError(f"image_size is {image_size}; it must be at least {SMALLEST_IMAGE} pixels")
    if entry.check is not None:
        entry.check(image_size)


def find_backbone(backbone: str) -> Backbone:
    """The network of this name; an unknown name is refused with the nearest one."""
    if backbone.startswith(PREFIX):
        return Backbone(make=partial(timm_model, backbone.removeprefix(PREFIX)))
    return BACKBONES.find(backbone, also=[f"{PREFIX}NAME"])
