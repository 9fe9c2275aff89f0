"""Many image files to one memory-mapped array, decoded once and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from climb.cache import cache_dir
from climb.datasets.cache import writable_folder
from climb.datasets.decode import decode
from climb.datasets.squares import Square
from climb.errors import ClimbError
from climb.files import write_json
from climb.lock import only_one

FORMAT_VERSION = 1
"""Part of the key: raise it whenever the same files would decode to other bytes."""

_CHUNK = 512
_log = logging.getLogger("climb.datasets")


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """What became of a list of files."""

    images: torch.Tensor
    """uint8 (readable files, 3, H, W), mapped from the cache: pages are read when they are used."""
    unreadable: tuple[int, ...]
    """Positions in the list of the files that could not be decoded; they have no row in ``images``."""


def decode_files(files: Sequence[Path], image_size: int, square: Square) -> Decoded:
    """Decode ``files`` to squares of ``image_size``, made by ``square``, or map the cached result of having done so.

    The cache key covers the paths, sizes and modification times of the files. Of runs that need the same files
    decoded at once, one does it and the others wait: each for itself, they could fill the disk together.
    """
    if not files:
        return Decoded(images=torch.empty(0, 3, image_size, image_size, dtype=torch.uint8), unreadable=())
    shelf = cache_dir() / "decoded"
    folder = shelf / _key(files, image_size, square)
    if not folder.is_dir():
        with only_one(writable_folder(cache_dir() / "locks") / f"{folder.name}.lock"):
            if not folder.is_dir():
                _decode_into(folder, writable_folder(shelf), files, image_size, square)
    unreadable: dict[str, str] = json.loads((folder / "unreadable.json").read_text(encoding="utf-8"))
    for position, reason in unreadable.items():
        _log.warning("skipped the unreadable image %s (%s)", files[int(position)], reason)
    # Copy-on-write: an ordinary writable tensor for torch, while the file can never change.
    rows = np.load(folder / "images.npy", mmap_mode="c")[: len(files) - len(unreadable)]
    return Decoded(images=torch.from_numpy(rows), unreadable=tuple(int(position) for position in unreadable))


def _key(files: Sequence[Path], image_size: int, square: Square) -> str:
    digest = hashlib.sha256(f"{FORMAT_VERSION}\n{image_size}\n{square.__qualname__}\n".encode())
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _decode_into(folder: Path, shelf: Path, files: Sequence[Path], image_size: int, square: Square) -> None:
    for left in shelf.glob(f".{folder.name}*"):  # by a process that was killed: whoever is alive has the lock
        shutil.rmtree(left, ignore_errors=True)
    needed = len(files) * 3 * image_size * image_size
    free = shutil.disk_usage(shelf).free
    # Checked beforehand: a full disk under a memory map kills the process without a message.
    if needed > free:
        raise ClimbError(
            f"the decoded images need {needed / 2**30:.1f} GiB in {shelf} but {free / 2**30:.1f} GiB are free; "
            "set CLIMB_CACHE to a folder on a larger disk"
        )
    draft = shelf / f".{folder.name}"
    draft.mkdir()
    try:
        unreadable = _write_images(draft / "images.npy", files, image_size, square)
        write_json(draft / "unreadable.json", unreadable)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_images(target: Path, files: Sequence[Path], image_size: int, square: Square) -> dict[int, str]:
    """Write the readable images one after the other; the positions and reasons of the others."""
    shape = (len(files), 3, image_size, image_size)
    rows = np.lib.format.open_memmap(target, mode="w+", dtype=np.uint8, shape=shape)
    unreadable: dict[int, str] = {}
    written = 0

    def attempt(file: Path) -> npt.NDArray[np.uint8] | str:
        try:
            return decode(file, image_size, square)
        except MemoryError:
            raise
        # Decoders fail in many ways on damaged files; each means the same: this image cannot be read.
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), _CHUNK):
            for position, outcome in enumerate(pool.map(attempt, files[start : start + _CHUNK]), start=start):
                if isinstance(outcome, str):
                    unreadable[position] = outcome
                else:
                    rows[written] = outcome
                    written += 1
            done = min(start + _CHUNK, len(files))
            if done == len(files) or (done * 10) // len(files) != (start * 10) // len(files):
                _log.info("decoded %d of %d images to %d px", done, len(files), image_size)
    rows.flush()
    return unreadable
