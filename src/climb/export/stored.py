"""The images that a learner remembers, with their features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from climb.errors import InputError
from climb.export.opened import OpenModel
from climb.runs import RunFolder
from climb.runs.remembered import Remembered, remembered
from climb.state import load_tree


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredImages:
    """What a memory holds."""

    images: torch.Tensor
    """uint8 (n, 3, H, W); a finished run keeps them small."""
    names: list[str]
    """Which image of the stream each was, and, where the memory has two parts, in which it lies."""
    features: NDArray[np.float32]
    """(n, f): by the model that remembers them."""


def stored_images(model: OpenModel) -> StoredImages:
    """The images that the learner of ``model`` remembers: from its folder, or from the file of `Climb.save`."""
    content = _content(model)
    if content is None or not len(content.images):
        raise InputError(
            f"{model.path} remembers no image. A run's or a learner's folder does, and a file of Climb.save, if "
            "the method has a memory. To search elsewhere: --in FOLDER, or --in FILE of climb embed"
        )
    names = [
        f"image {number}" + ("" if group.tier == "stored" else f" ({group.tier})")
        for group in content.groups
        for number in group.numbers
    ]
    return StoredImages(images=content.images, names=names, features=_features(model, content))


def _content(model: OpenModel) -> Remembered | None:
    if model.kind == "model":
        return remembered(load_tree(model.file, kind="model", at=("engine", "memory")))
    folder: Path = model.path if model.path.is_dir() else model.path.parent
    return RunFolder(folder).load_memory()


def _features(model: OpenModel, content: Remembered) -> NDArray[np.float32]:
    images = content.images
    kept = [group.embeddings for group in content.groups]
    shrunk = images.shape[-1] < model.saved.image_size
    if shrunk and all(embeddings is not None for embeddings in kept):
        # Made before the images were: these are what the encoder saw.
        return torch.cat([embeddings for embeddings in kept if embeddings is not None]).float().numpy()
    features: NDArray[np.float32] = model.features(images).numpy()
    return features
