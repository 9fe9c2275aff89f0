"""MODEL, as the command line calls it: a run's folder, an encoder's file, or what `Climb.save` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from climb.engine import resolve_device
from climb.errors import ClimbError, InputError
from climb.evaluation.features import batch_size, extract_features
from climb.export.from_pixels import FromPixels
from climb.learner import Climb
from climb.nets import SavedEncoder, load_encoder
from climb.runs import RunFolder
from climb.state import tree_kind

WEIGHTS = "model.safetensors"
"""What training leaves in its folder, and an export in its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenModel:
    """A trained encoder in eval mode on a device, and where it came from."""

    saved: SavedEncoder
    """The encoder and what one must know to feed it."""
    path: Path
    """What was given: a folder or a file."""
    file: Path
    """The file that the encoder was read from."""
    kind: str
    """ "encoder": a file of weights; "model": one that `Climb.save` wrote, memory included."""
    device: torch.device

    @cached_property
    def network(self) -> FromPixels:
        """The encoder behind the normalisation of pixels."""
        return FromPixels(self.saved.encoder, mean=self.saved.mean, std=self.saved.std).to(self.device).eval()

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Features (n, f), float32 on the CPU, of uint8 images (n, 3, S, S): in float32, whatever trained them."""
        size = batch_size(self.saved.image_size)
        # The network itself normalises pixels.
        return extract_features(self.network, images, lambda batch: batch, batch_size=size, device=self.device).cpu()

    def result(self) -> dict[str, Any] | None:
        """What the run found that trained the encoder, where its folder says so."""
        return RunFolder(self.path).result() if self.path.is_dir() else None


def open_model(path: str | Path, *, device: str = "auto") -> OpenModel:
    """The encoder of a run's or a learner's folder, of an export, or of a file that `Climb.save` wrote.

    >>> open_model("no-such-model")
    Traceback (most recent call last):
    climb.errors.InputError: no-such-model does not exist; MODEL is a run's folder or a file of climb
    """
    path, place = Path(path).expanduser(), resolve_device(device)
    file = _file_of(path)
    kind = _kind_of(file)
    if kind == "model":
        saved = _learner_encoder(Climb.load(file, device=str(place)))
    else:
        saved = load_encoder(file, device=place)
    return OpenModel(saved=saved, path=path, file=file, kind=kind, device=place)


def _file_of(path: Path) -> Path:
    if path.is_dir():
        if (path / WEIGHTS).is_file():
            return path / WEIGHTS
        began = RunFolder(path).config_path.is_file()
        reason = (
            "it is no run folder. MODEL is a folder that climb run, climb learn or climb export wrote, or a file of "
            "Climb.save"
        )
        if began:
            reason = (
                "a run writes it when it is finished, a learner at its first checkpoint, within a minute or so. "
                "The command that started it continues it"
            )
        raise InputError(f"{path} holds no {WEIGHTS}; {reason}")
    if not path.exists():
        raise InputError(f"{path} does not exist; MODEL is a run's folder or a file of climb")
    return path


def _kind_of(file: Path) -> str:
    try:
        kind = tree_kind(file)
    except ClimbError as error:
        raise InputError(f"{file} is no safetensors file: {error}") from error
    if kind not in ("encoder", "model"):
        raise InputError(
            f"{file} holds no encoder of climb: its header says {kind or 'nothing'}. "
            f"Allowed: a run's {WEIGHTS}, an export's, a file that Climb.save wrote"
        )
    return kind


def _learner_encoder(learner: Climb) -> SavedEncoder:
    config = learner._fitted().config
    return SavedEncoder(
        encoder=learner.encoder_.eval(),
        backbone=config.backbone,
        image_size=config.image_size,
        mean=learner.mean_,
        std=learner.std_,
    )
