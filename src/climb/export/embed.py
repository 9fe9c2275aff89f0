"""Images in, their paths and features out, batch after batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from climb.errors import ClimbError
from climb.evaluation.features import batch_size
from climb.export.image_files import Picture
from climb.export.opened import OpenModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedded:
    """Some images after the encoder."""

    paths: list[str]
    features: NDArray[np.float32]
    """(n, f), as the encoder gives them: not normalised."""


def embed(model: OpenModel, pictures: Iterable[Picture]) -> Iterator[Embedded]:
    """The features of pictures, in their order, a batch at a time: however many there are, memory stays bounded.

    Raises:
        ClimbError: the encoder gave something that is not finite.
    """
    waiting = iter(pictures)
    size = batch_size(model.saved.image_size)
    while batch := list(islice(waiting, size)):
        features = model.features(torch.stack([picture.pixels for picture in batch]))
        if not bool(torch.isfinite(features).all()):
            raise ClimbError(f"{model.file} gives features that are not finite: its training diverged")
        yield Embedded(paths=[picture.path for picture in batch], features=features.numpy())
