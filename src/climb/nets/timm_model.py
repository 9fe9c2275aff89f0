"""Any encoder of the timm library."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from climb.errors import ClimbError, InputError

PREFIX = "timm/"
"""What a backbone's name starts with when the rest of it is timm's."""


class TimmModel(nn.Module):
    """A timm model without its classifier: images ``(n, 3, H, W)``, normalised, in; ``(n, feature_dim)`` out."""

    feature_dim: int
    """Length of a feature vector."""

    def __init__(self, model: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.model = model
        self.feature_dim = feature_dim

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features


def timm_model(name: str, image_size: int, *, generator: torch.Generator) -> TimmModel:
    """timm's model called ``name``, such as ``"convnext_atto"``, for square images of ``image_size`` pixels.

    Untrained: its weights are drawn by timm's own rules, from a seed that ``generator`` (a CPU one) gives; the
    global generators are left as they were. Models whose weights depend on the image size are built for
    ``image_size``; the others are timm's as they are, which for most means a stem made for 224 pixels.

    Dropout and dropped paths, which some models have by default, are switched off: they would draw from the global
    generators, so that a run could not be repeated or resumed exactly, and blur the targets of an alignment.
    """
    timm = _timm()
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"; did you mean '{PREFIX}{near[0]}'?" if near else "."
        raise InputError(f"unknown timm model '{name}'{hint} timm.list_models() lists all of them")
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    sized = {"img_size": image_size} if timm.get_pretrained_cfg(name).fixed_input_size else {}
    # timm draws from the global CPU generator. That one alone is lent and put back: torch.manual_seed would also
    # reseed every accelerator.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        try:
            model = timm.create_model(name, pretrained=False, num_classes=0, **sized)
            shape = _output_shape(model, image_size)
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"timm's '{name}' cannot take images of {image_size} pixels: {str(error) or type(error).__name__}. "
                "Choose another model, or another image size"
            ) from error
    if len(shape) != 2:
        raise InputError(f"timm's '{name}' gives {shape} for one image, not a row of features; choose another model")
    _switch_off_dropping(model)
    return TimmModel(model, shape[1])


def _switch_off_dropping(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            part.p = 0.0
        # timm has several classes of dropped paths, and models that drop features without a layer for it.
        for rate in ("drop_prob", "drop_rate"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)


def _output_shape(model: nn.Module, image_size: int) -> tuple[int, ...]:
    # Asked of the model itself: what timm declares as num_features is not the length of the output for all of them.
    training = model.training
    with torch.no_grad():
        shape = tuple(model.eval()(torch.zeros(1, 3, image_size, image_size)).shape)
    model.train(training)
    return shape


def _timm() -> Any:
    try:
        return import_module("timm")
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise _broken(error) from error
        raise InputError(
            f"backbones called '{PREFIX}…' need timm, which is not installed. Type: pip install 'climb-ssl[timm]'"
        ) from None
    except Exception as error:  # A torchvision built for another torch fails in ways of its own.
        raise _broken(error) from error


def _broken(error: Exception) -> ClimbError:
    return ClimbError(
        f"timm is installed but cannot be imported: {error}. Most often its torchvision was built for another torch: "
        "install the two from the same index, then pip install 'climb-ssl[timm]'"
    )
