"""Encoders of the timm library."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from climb.errors import ClimbError, InputError
from climb.nets.network import frozen

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
    most have a stem made for 224 pixels.

    Dropout and stochastic depth are switched off. They draw from global generators, so runs could not be repeated or
    resumed exactly, and they add noise to the targets of an alignment.
    """
    timm = _timm()
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"; did you mean '{PREFIX}{near[0]}'?" if near else "."
        raise InputError(f"unknown timm model '{name}'{hint} timm.list_models() lists all of them")
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    sized = {"img_size": image_size} if timm.get_pretrained_cfg(name).fixed_input_size else {}
    # timm draws from the global CPU generator, so only this one is seeded and restored. torch.manual_seed would also
    # reseed the accelerators.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        try:
            model = timm.create_model(name, pretrained=False, num_classes=0, **sized)
            with frozen(model):  # measured: for some models timm's num_features is not the length of the output
                shape = tuple(model(torch.zeros(1, 3, image_size, image_size)).shape)
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
            refused = f"timm's '{name}' cannot take images of {image_size} pixels: {error or type(error).__name__}"
            raise InputError(f"{refused}. Choose another model, or another image size") from error
    if len(shape) != 2:
        raise InputError(f"timm's '{name}' gives {shape} for one image, not a row of features; choose another model")
    _switch_off_dropping(model)
    return TimmModel(model, shape[1])


def _switch_off_dropping(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            part.p = 0.0
        # timm has several classes for stochastic depth, and models that drop features without a layer.
        for rate in ("drop_prob", "drop_rate"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)


def _timm() -> Any:
    try:
        return import_module("timm")
    except Exception as error:  # a torchvision built for another torch fails in various ways
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            missing = f"backbones '{PREFIX}…' need timm, which is not installed"
            raise InputError(f"{missing}. Type: pip install 'climb-ssl[timm]'") from None
        cause = "Usually its torchvision was built for another torch: install both from the same index"
        advice = f"{cause}, then pip install 'climb-ssl[timm]'"
        raise ClimbError(f"timm is installed but cannot be imported: {error}. {advice}") from error
