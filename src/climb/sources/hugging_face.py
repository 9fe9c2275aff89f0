"""A streamed dataset of the Hugging Face hub, or of Parquet files. Needs the extra ``climb-ssl[data]``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any

from climb.errors import ClimbError, InputError
from climb.images.decode import NOT_AN_IMAGE, ImageError
from climb.images.tensors import Decoder
from climb.sources.in_memory import pending_bytes
from climb.sources.item import Pending, Read, SeenFilter, digest, failed
from climb.sources.source import Options, import_extra, register

PREFIX = "hf:"
PARQUET = ".parquet"
log = logging.getLogger("climb.sources")


def _takes(address: str) -> bool:
    return address.startswith(PREFIX) or (address.lower().endswith(PARQUET) and os.path.isfile(address))


@register("hugging-face", help="hf:OWNER/NAME", takes=_takes)
def read_hugging_face(address: str, options: Options) -> Read:
    """The images of ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@SPLIT``.

    NAME may also be a local folder, a Parquet file or a pattern of Parquet files. An image is identified by the
    dataset, the split and the number of its row.
    """
    if not address.startswith(PREFIX):
        raise InputError(f"'{address}' is a Parquet file; its images are read as a dataset. Type: {PREFIX}{address}")
    name, _, split = address.removeprefix(PREFIX).partition("@")
    split = split or "train"
    dataset, column = _open(name, split)

    def identity(number: int) -> int:
        return digest(PREFIX, name, split, number)

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        first = 0
        while not seen(identity(first)) and not stop.is_set():  # do not download the rows already seen
            first += 1
        try:
            for number, row in enumerate(dataset.skip(first) if first else dataset, start=first):
                if stop.is_set():
                    return
                if number == first or seen(identity(number)):
                    where = f"{PREFIX}{name}@{split}#{number}"
                    yield _pending(row[column], options.decoder, where, identity(number))
        except Exception as error:  # mostly network errors; the library has no base class for its errors
            advice = "run the same command again to continue from there"
            raise ClimbError(f"the dataset '{name}' broke off: {error}; {advice}") from error

    return read


def _open(name: str, split: str) -> tuple[Any, str]:
    datasets = import_extra("datasets", "datasets of the hub", "data")
    files = {"path": "parquet", "data_files": name} if name.lower().endswith(PARQUET) else {"path": name}
    try:
        dataset = datasets.load_dataset(**files, split=split, streaming=True)
    except Exception as error:  # the library has no base class for its errors
        raise InputError(f"cannot open the dataset '{name}', split '{split}': {error}") from error
    features = dataset.features or {}
    images = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    # Other programs store images as plain bytes.
    columns = images or [column for column, kind in features.items() if _is_bytes(kind)]
    if not columns:
        present = ", ".join(f"{column} ({str(kind)[:80]})" for column, kind in features.items()) or "none"
        needed = "one of type Image, of bytes, or of {bytes, path}, with one image a row"
        raise InputError(f"the dataset '{name}' has no column of images; it needs {needed}. Its columns: {present}")
    column = columns[0]
    if len(columns) > 1:
        log.warning("the dataset '%s' has images in %s; those in %s are used", name, ", ".join(columns), column)
    # Request bytes, so that our own threads decode them.
    return dataset.cast_column(column, datasets.Image(decode=False)) if images else dataset, column


def _is_bytes(kind: Any) -> bool:
    stored = kind.get("bytes") if isinstance(kind, dict) else kind
    return getattr(stored, "dtype", None) in ("binary", "large_binary", "binary_view")


def _pending(value: Any, decoder: Decoder, where: str, identity: int) -> Pending:
    data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
    if data is not None:
        return pending_bytes(data, decoder, where=where, identity=identity)
    if path is None:
        return failed(where, identity, ImageError(NOT_AN_IMAGE, "the row has no image"))
    return Pending(identity=identity, where=where, load=partial(decoder.file, path))
