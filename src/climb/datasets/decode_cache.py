"""List image files in class folders, decode them once, keep them in the cache, and make a checked dataset of them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from climb.datasets.dataset import Channels, Dataset, Split, channel_statistics, check_dataset
from climb.datasets.download import writable_folder
from climb.errors import ClimbError, InputError, first_few
from climb.files import cache_dir, only_one, write_json
from climb.images.convert import Fit, as_pixel_range
from climb.images.decode import ImageError
from climb.images.find import EXTENSIONS, image_files
from climb.images.tensors import Decoder
from climb.precision import usable_cores

FORMAT_VERSION = 2
"""Part of the cache key. Raise it when the same files would decode to different bytes."""
UNREADABLE_SHARE = 0.01
"""Largest share of files that may be skipped."""

_SIZES = range(8, 1025)
_CHUNK = 512
_log = logging.getLogger("climb.datasets")


Listing = list[tuple[Path, int]]
"""Image files of one part of a dataset, each with its label."""


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in ``folder``, sorted, without hidden ones."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def list_classes(folder: Path, classes: list[str]) -> Listing:
    """The images of ``folder/<class>/`` for each class. Label i is ``classes[i]``."""
    listing: Listing = []
    for label, name in enumerate(classes):
        own = image_files(folder / name) if (folder / name).is_dir() else []
        if not own:
            allowed = ", ".join(sorted(EXTENSIONS))
            raise InputError(f"class '{name}' has no image in {folder / name}; every class needs one there ({allowed})")
        listing += [(file, label) for file in own]
    return listing


def fingerprint_of(classes: Sequence[str], files: Sequence[str] | None = None) -> str:
    """A fingerprint of class names and of lines that describe files.

    >>> fingerprint_of(["cat", "dog"])
    '2 classes 3a450eb155d6a4c6'
    """
    counts = [f"{len(classes)} {'class' if len(classes) == 1 else 'classes'}"]
    if files is not None:
        counts.append(f"{len(files)} {'file' if len(files) == 1 else 'files'}")
    text = "\n".join([*classes, *(files or ())])
    return " ".join([*counts, hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]])


def assemble(
    name: str,
    classes: Sequence[str],
    parts: Sequence[Listing],
    *,
    image_size: int,
    square: Fit,
    pixel_range: Sequence[float] | None = None,
    normalisation: tuple[Channels, Channels] | None = None,
    root: Path | None = None,
) -> Dataset:
    """A checked dataset of the listed files, without the unreadable ones.

    Args:
        name: name of the dataset.
        classes: class names; label i is ``classes[i]``.
        parts: training files and test files.
        image_size: side of the images.
        square: makes images square.
        pixel_range: values that become black and white in images of more than 8 bits; None for the range of each.
        normalisation: mean and standard deviation; None computes them from the training images.
        root: folder to which the names of the files are relative; None keeps no names.
    """
    if image_size not in _SIZES:
        raise InputError(f"image_size={image_size} is impossible; allowed: {_SIZES[0]} to {_SIZES[-1]}")
    splits, unreadable = list[Split](), list[Path]()
    for listing in parts:
        files = [file for file, _ in listing]
        images, skipped = decode_files(files, image_size, square, pixel_range)
        unreadable += [files[position] for position in skipped]
        labels = np.delete(np.array([label for _, label in listing], dtype=np.int64), skipped)
        left_out, start = set(skipped), 0 if root is None else len(os.path.join(root, ""))
        names = (str(file)[start:].replace(os.sep, "/") for n, file in enumerate(files) if n not in left_out)
        known = () if root is None else tuple(names)
        splits.append(Split(images=images, labels=torch.from_numpy(labels), names=known))
    total = sum(map(len, parts))
    if len(unreadable) > UNREADABLE_SHARE * total:
        many = f"{len(unreadable)} of {total} images cannot be read (at most {UNREADABLE_SHARE:.0%} may be skipped)"
        raise InputError(f"dataset '{name}': {many}; the first: {first_few(unreadable)}. Repair or remove them.")
    train, test = splits
    mean, std = normalisation or channel_statistics(train.images)
    return check_dataset(Dataset(name=name, train=train, test=test, classes=tuple(classes), mean=mean, std=std))


def decode_files(
    files: Sequence[Path], image_size: int, square: Fit, pixel_range: Sequence[float] | None = None
) -> tuple[torch.Tensor, list[int]]:
    """Decode ``files`` to squares of ``image_size``, or map the result of an earlier call.

    The cache key covers the paths, sizes and modification times of the files. If several processes need the same
    files, one decodes them and the others wait.

    Returns:
        The images, uint8 (readable files, 3, H, W), mapped from the cache, and the positions of the unreadable files.
    """
    if not files:
        return torch.empty(0, 3, image_size, image_size, dtype=torch.uint8), []
    decoder = Decoder(image_size=image_size, fit=square, pixel_range=as_pixel_range(pixel_range))
    folder = cache_dir() / "decoded" / _key(files, decoder)
    if not folder.is_dir():
        with only_one(writable_folder(cache_dir() / "locks") / f"{folder.name}.lock"):
            if not folder.is_dir():
                _decode_into(folder, files, decoder)
    unreadable: dict[str, str] = json.loads((folder / "unreadable.json").read_text(encoding="utf-8"))
    for position, reason in unreadable.items():
        _log.warning("skipped the unreadable image %s (%s)", files[int(position)], reason)
    # Copy-on-write: torch gets a writable tensor, and the file never changes.
    rows = np.load(folder / "images.npy", mmap_mode="c")[: len(files) - len(unreadable)]
    return torch.from_numpy(rows), list(map(int, unreadable))


def _key(files: Sequence[Path], decoder: Decoder) -> str:
    pixel_range = "" if decoder.pixel_range is None else f"{decoder.pixel_range}\n"
    digest = hashlib.sha256(f"{FORMAT_VERSION}\n{decoder.image_size}\n{decoder.fit.__name__}\n{pixel_range}".encode())
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _decode_into(folder: Path, files: Sequence[Path], decoder: Decoder) -> None:
    cache = writable_folder(folder.parent)
    for left in cache.glob(f".{folder.name}*"):  # drafts of killed processes: this one holds the lock
        shutil.rmtree(left, ignore_errors=True)
    needed = len(files) * 3 * decoder.image_size**2
    free = shutil.disk_usage(cache).free
    # A full disk under a memory map would kill the process without a message.
    if needed > free:
        sizes = f"{needed / 2**30:.1f} GiB in {cache} but {free / 2**30:.1f} GiB are free"
        raise ClimbError(f"the decoded images need {sizes}; set CLIMB_CACHE to a folder on a larger disk")
    draft = cache / f".{folder.name}"
    draft.mkdir()
    try:
        unreadable = _write_images(draft / "images.npy", files, decoder)
        write_json(draft / "unreadable.json", unreadable)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_images(target: Path, files: Sequence[Path], decoder: Decoder) -> dict[int, str]:
    """Write the readable images one after the other. Returns positions of the others, with the reasons."""
    shape = (len(files), 3, decoder.image_size, decoder.image_size)
    rows = np.lib.format.open_memmap(target, mode="w+", dtype=np.uint8, shape=shape)
    unreadable: dict[int, str] = {}

    def decode(file: Path) -> npt.NDArray[np.uint8] | str:
        try:
            return decoder.file(str(file)).numpy()
        except ImageError as error:
            return f"{error.reason}: {error.detail}"

    with ThreadPoolExecutor(max_workers=min(16, usable_cores())) as pool:
        for start in range(0, len(files), _CHUNK):
            for position, image in enumerate(pool.map(decode, files[start : start + _CHUNK]), start=start):
                if isinstance(image, str):
                    unreadable[position] = image
                else:
                    rows[position - len(unreadable)] = image
            done = min(start + _CHUNK, len(files))
            if done == len(files) or (done * 10) // len(files) != (start * 10) // len(files):
                _log.info("decoded %d of %d images to %d px", done, len(files), decoder.image_size)
    rows.flush()
    return unreadable
