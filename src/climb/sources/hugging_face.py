"""A dataset of the Hugging Face hub, or of Parquet files, streamed (the extra ``climb-ssl[data]``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any

from climb.errors import ClimbError, InputError
from climb.sources.at_hand import pending_bytes
from climb.sources.folder import load_file
from climb.sources.identity import digest
from climb.sources.item import NOT_AN_IMAGE, Claim, Pending, Read, Unusable, refuse

PREFIX = "hf:"
PARQUET = ".parquet"
log = logging.getLogger("climb.sources")


def read_hugging_face(text: str, *, image_size: int) -> Read:
    """The images of ``hf:OWNER/NAME``, or of ``hf:OWNER/NAME@SPLIT``; a local folder works as a name too, and
    so do a Parquet file and a pattern of them.

    An image is known by the dataset, the split and its number in it.
    """
    name, _, split = text.removeprefix(PREFIX).partition("@")
    split = split or "train"
    dataset, column = _open(name, split)

    def identity(number: int) -> int:
        return digest(PREFIX, name, split, number)

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        first = 0
        while not claim(identity(first)) and not stop.is_set():  # what is known from the beginning is not fetched
            first += 1
        for number, row in enumerate(_rows(dataset.skip(first) if first else dataset, name), start=first):
            if stop.is_set():
                return
            if number == first or claim(identity(number)):
                yield _pending(row[column], image_size, f"{PREFIX}{name}@{split}#{number}", identity(number))

    return read


def _rows(dataset: Any, name: str) -> Iterator[Any]:
    try:
        yield from dataset
    except Exception as error:  # mostly the network: the library has no base class for what can go wrong
        raise ClimbError(
            f"the dataset '{name}' broke off: {error}; the same command goes on from there, once it can be read"
        ) from error


def _open(name: str, split: str) -> tuple[Any, str]:
    try:
        import datasets
    except ImportError:
        raise InputError('datasets of the hub need the extra: pip install "climb-ssl[data]"') from None
    try:
        if name.lower().endswith(PARQUET):
            found = datasets.load_dataset("parquet", data_files=name, split=split, streaming=True)
        else:
            found = datasets.load_dataset(name, split=split, streaming=True)
    except Exception as error:  # the library has no base class for what can go wrong
        raise InputError(f"cannot open the dataset '{name}', split '{split}': {error}") from error
    features = found.features or {}
    images = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    # Other programs write images without saying that they are.
    columns = images or [column for column, kind in features.items() if _is_bytes(_bytes_of(kind))]
    if not columns:
        there = ", ".join(f"{column} ({str(kind)[:80]})" for column, kind in features.items())
        raise InputError(
            f"the dataset '{name}' has no column of images; it must have one of the library's Images, of bytes, or of "
            f"{{bytes, path}}, an image a row. Its columns: {there or 'none'}"
        )
    column = columns[0]
    if len(columns) > 1:
        log.warning("the dataset '%s' has images in %s; those in %s are taken", name, ", ".join(columns), column)
    # As bytes: decoding is ours, in threads of our own.
    return found.cast_column(column, datasets.Image(decode=False)) if images else found, column


def _bytes_of(kind: Any) -> Any:
    return kind.get("bytes") if isinstance(kind, dict) else kind


def _is_bytes(kind: Any) -> bool:
    return getattr(kind, "dtype", None) in ("binary", "large_binary", "binary_view")


def _pending(value: Any, image_size: int, where: str, identity: int) -> Pending:
    data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
    if data is not None:
        return pending_bytes(data, image_size, where=where, identity=identity)
    if path is None:
        return refuse(where, identity, Unusable(NOT_AN_IMAGE, "the row has no image"))
    return Pending(identity=identity, where=where, load=partial(load_file, path, image_size))
