"""A dataset of the Hugging Face hub, streamed (the extra ``climb-ssl[data]``)."""

from __future__ import annotations

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


def read_hugging_face(text: str, *, image_size: int) -> Read:
    """The images of ``hf:OWNER/NAME``, or of ``hf:OWNER/NAME@SPLIT``; a local folder works as a name too.

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
        raise ClimbError(f"the dataset '{name}' broke off: {error}; the same command goes on from there") from error


def _open(name: str, split: str) -> tuple[Any, str]:
    try:
        import datasets
    except ImportError:
        raise InputError('datasets of the hub need the extra: pip install "climb-ssl[data]"') from None
    try:
        found = datasets.load_dataset(name, split=split, streaming=True)
    except Exception as error:  # the library has no base class for what can go wrong
        raise InputError(f"cannot open the dataset '{name}', split '{split}': {error}") from error
    features = found.features or {}
    columns = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    if not columns:
        raise InputError(f"the dataset '{name}' has no column of images; its columns: {', '.join(features)}")
    # As bytes: decoding is ours, in threads of our own.
    return found.cast_column(columns[0], datasets.Image(decode=False)), columns[0]


def _pending(value: dict[str, Any] | None, image_size: int, where: str, identity: int) -> Pending:
    data, path = (None, None) if value is None else (value.get("bytes"), value.get("path"))
    if data is not None:
        return pending_bytes(data, image_size, where=where, identity=identity)
    if path is None:
        return refuse(where, identity, Unusable(NOT_AN_IMAGE, "the row has no image"))
    return Pending(identity=identity, where=where, load=partial(load_file, path, image_size))
