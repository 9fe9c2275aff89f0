"""Encoders of the timm library."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from climb.errors import ClimbError, InputError
from climb.nets.foreign import measured_shape, seeded, switch_off_dropping
from climb.nets.network import Pretrained

PREFIX = "timm/"
"""Start of the name of a backbone that is a timm model."""


class TimmModel(nn.Module):
    """A timm model without its classifier. Maps normalised images ``(n, 3, H, W)`` to ``(n, feature_dim)``."""

    def __init__(self, model: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.model = model
        self.feature_dim = feature_dim
        """Length of a feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features


def timm_model(name: str, image_size: int, *, generator: torch.Generator) -> TimmModel:
    """timm's model ``name``, such as ``"convnext_atto"``, for square images of ``image_size`` pixels, untrained.

    timm initialises the weights, from a seed that ``generator`` (a CPU one) draws. Global generators do not change.
    Models whose weights depend on the image size are built for ``image_size``. The others keep timm's architecture;
    most have a stem made for 224 pixels. Dropout and stochastic depth are switched off.
    """
    timm = _timm(name)
    with seeded(generator):
        try:
            model = timm.create_model(name, pretrained=False, num_classes=0, **_sized(timm, name, image_size))
            shape = measured_shape(model, image_size)  # for some models timm's num_features is another number
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
            refused = f"timm's '{name}' cannot take images of {image_size} pixels: {_reason(error)}"
            raise InputError(f"{refused}. Choose another model, or another image size") from error
    if len(shape) != 2:
        raise InputError(f"timm's '{name}' gives {shape} for one image, not a row of features; choose another model")
    switch_off_dropping(model)
    return TimmModel(model, shape[1])


def timm_pretrained(name: str) -> Pretrained:
    """timm's published weights of a model, with the statistics and the image size of its configuration."""
    config = _timm(name).get_pretrained_cfg(name)
    side, state = config.input_size[-1], partial(_published, name)
    return Pretrained(mean=tuple(config.mean), std=tuple(config.std), image_size=side, state=state)


def _published(name: str, image_size: int) -> Mapping[str, Tensor]:
    """timm's weights, from its cache or the hub. Positions are interpolated to ``image_size``."""
    timm = _timm(name)
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0, **_sized(timm, name, image_size))
    except Exception as error:  # timm, its hub and its downloads raise errors of many kinds
        advice = "without a connection, give a file instead: --weights FILE"
        raise InputError(f"cannot get timm's weights of '{name}': {_reason(error).rstrip('.')}; {advice}") from error
    state: Mapping[str, Tensor] = model.state_dict()
    return state


def _sized(timm: Any, name: str, image_size: int) -> dict[str, int]:
    return {"img_size": image_size} if timm.get_pretrained_cfg(name).fixed_input_size else {}


def _reason(error: Exception) -> str:
    """An error in one line; its type if it has no text."""
    return next(iter(str(error).split("\n")), "").strip() or type(error).__name__


def _timm(name: str) -> Any:
    """The library, if it has a model of this name."""
    try:
        timm = import_module("timm")
    except Exception as error:  # a torchvision built for another torch fails in various ways
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            missing = f"backbones '{PREFIX}…' need timm, which is not installed"
            raise InputError(f"{missing}. Type: pip install 'climb-ssl[timm]'") from None
        cause = "Usually its torchvision was built for another torch: install both from the same index"
        advice = f"{cause}, then pip install 'climb-ssl[timm]'"
        raise ClimbError(f"timm is installed but cannot be imported: {error}. {advice}") from error
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"; did you mean '{PREFIX}{near[0]}'?" if near else "."
        raise InputError(f"unknown timm model '{name}'{hint} timm.list_models() lists all of them")
    return timm
