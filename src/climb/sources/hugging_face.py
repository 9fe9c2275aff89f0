"""A dataset of the Hugging Face hub, streamed (the extra ``climb-ssl[data]``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any

import torch

from climb.errors import ClimbError, InputError
from climb.sources.decode import decode, read_file
from climb.sources.identity import digest
from climb.sources.item import UNREADABLE, Claim, Pending, Read, Unusable

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
                load = partial(_load, row[column], image_size)
                yield Pending(identity=identity(number), where=f"{PREFIX}{name}@{split}#{number}", load=load)

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


def _load(value: dict[str, Any], image_size: int) -> torch.Tensor:
    if value is None:
        raise Unusable(UNREADABLE, "the row has no image")
    return decode(value["bytes"] if value.get("bytes") else read_file(value["path"]), image_size)
