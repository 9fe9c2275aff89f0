"""Encoders of the transformers library: DINOv2 and its relatives, from a folder or from the hub."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from climb.errors import InputError, unknown
from climb.nets.foreign import measured_shape, seeded, switch_off_dropping
from climb.nets.network import IMAGENET_MEAN, IMAGENET_STD, Channels, Pretrained

PREFIX = "hf:"
"""Start of the name of a backbone that is a model of transformers: ``hf:FOLDER-OR-ID``, ``hf:FOLDER-OR-ID#mean``."""
POOLINGS = ("class", "mean")
"""What follows ``#``: the class token, or the mean of the patches."""
CLASS_TOKENS = ("cls_token", "class_embedding")
"""Names of the parameter that is a class token."""
TRIAL_ERRORS = (AttributeError, AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class HubModel(nn.Module):
    """A model of transformers. Maps normalised images ``(n, 3, H, W)`` to features ``(n, feature_dim)``.

    Transformers give their class token if they have one, else the mean of their patches. ``pooling`` chooses otherwise.
    Convolutional networks give their pooled output. Positions are interpolated to the size of the images.
    """

    def __init__(self, model: Any, pooling: str | None, *, image_size: int, name: str) -> None:
        super().__init__()
        if isinstance(pooler := getattr(model, "pooler", None), nn.Module) and any(True for _ in pooler.parameters()):
            model.pooler = None  # its output is not used, so nothing would train it
        self.model: Any = model
        names = [parameter.rpartition(".")[2] for parameter, _ in model.named_parameters()]
        self._tokens = sum(names.count(token) for token in (*CLASS_TOKENS, "distillation_token"))
        if pooling == "class" and not self._tokens:
            raise InputError(f"'{name}' has no class token; type {name.partition('#')[0]}#mean")
        self._tokens += getattr(model.config, "num_register_tokens", 0) or 0
        self._pooling = pooling or ("class" if self._tokens else "mean")
        accepted = inspect.signature(model.forward).parameters
        self._options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in accepted else {}
        self.feature_dim = measured_shape(self, image_size)[1]
        """Length of a feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.model(pixel_values=images, **self._options)
        hidden: Tensor = outputs.last_hidden_state
        if hidden.ndim == 4:
            pooled: Tensor = outputs.pooler_output
            return pooled.flatten(1)
        return hidden[:, 0] if self._pooling == "class" else hidden[:, self._tokens :].mean(dim=1)

    @property
    def architecture(self) -> dict[str, Any]:
        """The configuration as plain data: the network can be built from it without folder or hub."""
        values: dict[str, Any] = self.model.config.to_dict()
        return values


def hub_model(
    name: str, image_size: int, *, generator: torch.Generator, architecture: Mapping[str, Any] | None = None
) -> HubModel:
    """The model ``hf:name`` with random weights, for square images of ``image_size`` pixels.

    transformers initialises the weights, from a seed that ``generator`` draws. Dropout is switched off.

    Args:
        name: a folder, or a model of the hub; ``#mean`` or ``#class`` may follow.
        image_size: side of the images in pixels.
        generator: a CPU generator.
        architecture: its configuration, as in `HubModel.architecture`; None reads it from the folder or the hub.
    """
    library, (place, _) = _transformers(), _split(name)
    kind = library.AutoConfig
    config = _read(kind, place) if architecture is None else kind.for_model(**architecture)
    with seeded(generator):
        return _wrapped(library.AutoModel.from_config(config), name, image_size)


def hub_pretrained(name: str) -> Pretrained:
    """The weights in a folder or on the hub, with statistics and image size of the ``preprocessor_config.json``."""
    library, (place, _) = _transformers(), _split(name)
    config = _read(library.AutoConfig, place)
    try:
        values, _ = library.ImageProcessingMixin.get_image_processor_dict(place)
    except OSError:  # folders of `save_pretrained` often lack the file
        values = {}
    return Pretrained(
        mean=_channels(values.get("image_mean"), IMAGENET_MEAN),
        std=_channels(values.get("image_std"), IMAGENET_STD),
        image_size=_side(values) or getattr(config, "image_size", None) or 224,
        state=partial(_published, name),
    )


def _published(name: str, image_size: int) -> Mapping[str, Tensor]:
    model = _read(_transformers().AutoModel, _split(name)[0])
    return _wrapped(model, name, image_size).state_dict()


def _wrapped(model: nn.Module, name: str, image_size: int) -> HubModel:
    switch_off_dropping(model)
    try:
        return HubModel(model.float(), _split(name)[1], image_size=image_size, name=PREFIX + name)
    except InputError:
        raise
    except TRIAL_ERRORS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"'{PREFIX}{name}' ({type(model).__name__}) cannot encode images of {image_size} pixels: {reason[:200]}. "
            "Give a vision encoder, such as DINOv2, or another image size"
        ) from error


def _split(name: str) -> tuple[str, str | None]:
    place, sign, pooling = name.partition("#")
    if sign and pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    return str(Path(place).expanduser()) if place.startswith("~") else place, pooling or None


def _read(kind: Any, place: str) -> Any:
    """A configuration or a model of transformers, from a folder, the cache or the hub."""
    if not Path(place).is_dir() and (place.startswith((".", "/")) or place.count("/") != 1):
        raise InputError(f"'{PREFIX}{place}' is no folder; give one with a config.json, or OWNER/NAME of the hub")
    try:
        return kind.from_pretrained(place)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).split("\n")), "")[:200]
        raise InputError(
            f"cannot get '{PREFIX}{place}': {reason} Without a connection to the hub, give a folder: {PREFIX}FOLDER"
        ) from error


def _channels(values: Any, default: Channels) -> Channels:
    if not values:
        return default
    red, green, blue = map(float, values)
    return red, green, blue


def _side(values: Mapping[str, Any]) -> int | None:
    """Side of the images that a preprocessor gives."""
    size = values.get("crop_size" if values.get("do_center_crop") else "size")
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    return None if size is None else int(size)


def _transformers() -> Any:
    try:
        library = import_module("transformers")
    except ModuleNotFoundError:
        missing = f"backbones '{PREFIX}…' need transformers, which is not installed"
        raise InputError(f"{missing}. Type: pip install 'climb-ssl[hf]'") from None
    library.utils.logging.disable_progress_bar()  # the terminal has a line of ours
    return library
