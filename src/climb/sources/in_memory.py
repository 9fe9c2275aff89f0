"""Images in memory: the bytes of image files, and Python iterables of pictures and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from PIL import Image

from climb.errors import InputError
from climb.images.decode import ImageError, damage
from climb.images.tensors import Decoder
from climb.sources.folder import find_file
from climb.sources.item import Pending, Read, SeenFilter, failed, loaded
from climb.sources.source import Options

LARGE_BYTES = 2**22
"""Larger files are decoded where they are found: a queue with dozens of them would fill the memory."""

_ALLOWED = (
    "images must be PIL pictures, paths, bytes, or uint8 arrays (H, W), (H, W, 3) or (3, H, W), one at a time, without "
    "labels"
)


def pending_bytes(data: bytes, decoder: Decoder, *, where: str, identity: int | None) -> Pending:
    """The image in ``data``, decoded by a worker thread; at once if it is larger than `LARGE_BYTES`."""
    pending = Pending(identity=identity, where=where, load=partial(decoder, data, where))
    return pending if len(data) <= LARGE_BYTES else _load_now(pending)


def _load_now(pending: Pending) -> Pending:
    try:
        return loaded(pending.where, pending.identity, pending.load())
    except ImageError as error:
        return failed(pending.where, pending.identity, error)


def read_iterable(images: Iterable[Any], options: Options) -> Read:
    """Pictures (PIL), uint8 arrays or tensors (H, W), (H, W, 3) or (3, H, W), paths, or the bytes of image files.

    Paths are identified as files. Other images have no identity: each of them is learned.
    """
    decoder = options.decoder

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        for number, image in enumerate(images):
            if isinstance(image, str | Path):
                yield from find_file(str(image), decoder, seen)
            elif isinstance(image, bytes):
                yield pending_bytes(image, decoder, where=f"image {number}", identity=None)
            else:  # at once: the caller may close or overwrite the image when it is asked for the next one
                where = f"image {number}"
                yield _load_now(Pending(identity=None, where=where, load=partial(to_tensor, image, decoder, where)))
            if stop.is_set():  # after the yield: an image taken from the iterable must not be lost
                return

    return read


def to_tensor(image: Any, decoder: Decoder, where: str) -> torch.Tensor:
    """uint8 (3, S, S) from a PIL picture, an array or a tensor."""
    if isinstance(image, Image.Image):
        try:
            image.load()  # an opened picture has not been decoded yet
        except Exception as error:
            raise damage(error) from error
        return decoder.picture(image, where)
    try:
        array = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    except ValueError:  # parts of different shapes, such as an image and its label
        raise InputError(f"{_ALLOWED}; given {type(image).__name__}, which numpy cannot convert to an array") from None
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"{_ALLOWED}; given {type(image).__name__} of {array.dtype}, shape {array.shape}")
    return decoder.picture(Image.fromarray(np.ascontiguousarray(array)), where)
