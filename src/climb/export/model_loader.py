"""Open MODEL: a run or learner folder, an export, or a file of `Climb.save`. Its encoder and its stored images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from climb.arguments import checked
from climb.engine import EngineKind, Precision, resolve_device, resolve_engine, resolve_precision
from climb.engine.compiled import compiled
from climb.engine.parts import lay_out
from climb.errors import ClimbError, InputError
from climb.evaluation.features import batch_size, extract_features
from climb.evaluation.similarity import centre_of, comparable, panel
from climb.images.convert import PixelRange, as_pixel_range
from climb.learner import Climb
from climb.memory.snapshot import saved_images
from climb.nets import SavedEncoder, load_encoder
from climb.runs import RunFolder
from climb.runs.memory_snapshot import snapshot_of
from climb.runs.run_file_checks import read_object
from climb.state import load_tree, restoring, tree_kind

WEIGHTS = "model.safetensors"
"""Name of the encoder's file in a run folder and in an export."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenModel:
    """A trained encoder in eval mode on a device, and its origin."""

    saved: SavedEncoder
    """The encoder, its image size and its normalisation."""
    path: Path
    """The folder or file that was opened."""
    file: Path
    """The file of the encoder."""
    kind: str
    """ "encoder": weights only; "model": a file of `Climb.save` with the memory."""
    device: torch.device
    precision: Precision = "float32"
    """Arithmetic of the encoder."""
    engine: EngineKind = "eager"
    """How it is executed: eager or compiled."""
    pixel_range: PixelRange | None = None
    """Values that become black and white in images of more than 8 bits; None for the range of each image."""

    @cached_property
    def network(self) -> FromPixels:
        """The encoder with its normalisation of pixels."""
        network = FromPixels(self.saved.encoder, mean=self.saved.mean, std=self.saved.std).to(self.device).eval()
        if self.device.type == "cpu" and self.precision == "bf16":  # the layout in which bf16 convolutions are fast
            lay_out([network], "channels-last", self.saved.image_size)
        return network

    @cached_property
    def _encode(self) -> Callable[[Tensor], Tensor]:
        return compiled(self.network) if self.engine == "compiled" else self.network

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Features (n, f), float32 on the CPU, of uint8 images (n, 3, S, S)."""
        return extract_features(
            self.network,
            images,
            lambda batch: batch,  # the network normalises pixels
            encode=self._encode,
            batch_size=batch_size(self.saved.image_size),
            device=self.device,
            precision=self.precision,
        ).cpu()

    @cached_property
    def centre(self) -> torch.Tensor | None:
        """What similarities leave out: the mean direction of features of images in its memory. None if unknown."""
        if self.saved.centre is not None:
            return torch.tensor(self.saved.centre)
        if self.kind != "model":
            return None
        images = saved_images(load_tree(self.file, kind="model", at=("engine", "memory")) or {})
        whole = images is not None and len(images) > 1 and images.shape[-1] == self.saved.image_size
        return centre_of(self.features(panel(images))) if images is not None and whole else None

    def comparable(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Unit vectors (n, f) of features (n, f); their dot products are the similarities of `climb.export.search`."""
        vectors: NDArray[np.float32] = comparable(torch.from_numpy(features), self.centre).numpy()
        return vectors

    def result(self) -> dict[str, Any] | None:
        """The result of the run that trained the encoder; None if its folder has none."""
        return RunFolder(self.path).result() if self.path.is_dir() else None


@checked()
def open_model(
    path: str | Path,
    *,
    device: str = "auto",
    precision: str = "auto",
    engine: str = "auto",
    pixel_range: Sequence[float] | None = None,
) -> OpenModel:
    """Open the encoder of a run or learner folder, of an export, or of a file of `Climb.save`.

    Features are computed in float32; with ``precision`` "auto", in bf16 on a CPU where that is faster. With ``engine``
    "compiled", the encoder is compiled; "auto" does not, as it gains little. Images of more than 8 bits are scaled by
    ``pixel_range``; by default as the run or the learner scaled them.

    >>> open_model("no-such-model")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: no-such-model does not exist; give the folder of a run, a learner or an export, ...
    """
    path, place = Path(path).expanduser(), resolve_device(device)
    given_range = as_pixel_range(pixel_range)
    arithmetic = resolve_precision("float32" if precision == "auto" and place.type != "cpu" else precision, place)
    kind_of_engine = resolve_engine("eager" if engine == "auto" else engine, place)
    if kind_of_engine == "captured":
        raise InputError("the captured engine is for training: type --engine eager or --engine compiled")
    file = _file_of(path)
    try:
        kind = tree_kind(file)
    except ClimbError as error:
        raise InputError(f"{file} is not a safetensors file: {error}") from error
    if kind == "encoder":
        owner = RunFolder(path).identity() if path.is_dir() else {}
        saved = load_encoder(file, device=place, owner=owner)
    elif kind == "model":
        learner = Climb.load(file, device=str(place))
        config = learner._fitted().config
        saved = SavedEncoder(
            encoder=learner.encoder_.eval(),
            backbone=config.backbone,
            image_size=config.image_size,
            mean=learner.mean_,
            std=learner.std_,
        )
    else:
        other = f"{file} contains no encoder of climb; its header says {kind or 'nothing'}"
        raise InputError(f"{other}. Allowed: {WEIGHTS} of a run or an export, or a file of Climb.save")
    return OpenModel(
        saved=saved,
        path=path,
        file=file,
        kind=kind,
        device=place,
        precision=arithmetic,
        engine=kind_of_engine,
        pixel_range=given_range or _own_range(file.parent),
    )


def _own_range(folder: Path) -> PixelRange | None:
    """The ``pixel_range`` of the run, the learner or the export in a folder."""
    with suppress(InputError, OSError):
        config = RunFolder(folder).stored_config()
        stored = config.data.options if config is not None else read_object(folder / "config.json")
        return as_pixel_range(stored.get("pixel_range"))
    return None


def _file_of(path: Path) -> Path:
    if not path.exists():
        raise InputError(
            f"{path} does not exist; give the folder of a run, a learner or an export, or a file of Climb.save"
        )
    if not path.is_dir():
        return path
    if not (path / WEIGHTS).is_file():
        reason = "MODEL is a folder of climb run, climb learn or climb export, or a file of Climb.save"
        if RunFolder(path).config_path.is_file():
            reason = "a run writes it at its end, a learner at its first checkpoint. To continue, repeat the command"
        raise InputError(f"{path} contains no {WEIGHTS}; {reason}")
    return path / WEIGHTS


class FromPixels(nn.Module):
    """Normalises images ``(n, 3, S, S)``, uint8 in 0 to 255 or floats in 0 to 1, and encodes them to ``(n, f)``."""

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.encoder = encoder
        # Not persistent: the weights file contains only the encoder's tensors.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if not images.is_floating_point():
            images = images.float() / 255
        features: Tensor = self.encoder((images - self.mean) / self.std)
        return features


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredImages:
    """The images of a memory, with their features."""

    images: torch.Tensor
    """uint8 (n, 3, H, W). A finished run stores them downscaled."""
    names: list[str]
    """The number of each image in the stream and, if the memory has several parts, its part."""
    features: NDArray[np.float32]
    """(n, f): features by the model of the memory."""


def stored_images(model: OpenModel) -> StoredImages:
    """The images in memory of the learner of ``model``, from its folder or its file of `Climb.save`."""
    if model.kind == "model":
        learner = load_tree(model.file, kind="model", at=("config",))
        state = load_tree(model.file, kind="model", at=("engine", "memory"))
        with restoring(model.file):
            content = snapshot_of(state, learner=learner)
    else:
        content = RunFolder(model.path if model.path.is_dir() else model.path.parent).load_memory()
    if content is None or not len(content.images):
        holders = (
            "Run and learner folders and files of Climb.save do, if the method has a memory and belongs to climb or to "
            "an installed package, not to a file of --import"
        )
        elsewhere = "To search elsewhere: --in FOLDER, or --in FILE of climb embed"
        raise InputError(f"{model.path} contains no stored images. {holders}. {elsewhere}")
    names = [
        f"image {number}" + ("" if group.tier == "stored" else f" ({group.tier})")
        for group in content.groups
        for number in group.numbers
    ]
    known = [group.embeddings for group in content.groups if group.embeddings is not None]
    if content.images.shape[-1] < model.saved.image_size and len(known) == len(content.groups):
        features = torch.cat(known).float()  # of the images at full size, which the encoder was trained on
    else:
        features = model.features(content.images)
    return StoredImages(images=content.images, names=names, features=features.numpy())
