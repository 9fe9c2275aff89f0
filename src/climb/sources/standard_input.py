"""Paths of image files on standard input, one a line: a queue at its simplest."""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Iterator
from threading import Event

from climb.errors import InputError
from climb.sources.folder import find_file
from climb.sources.item import Claim, Pending, Read

LONGEST = 2**16  # bytes of a line; no path is longer


def read_paths(descriptor: int, *, image_size: int) -> Read:
    """The files whose paths arrive at a file descriptor."""

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        for line in lines(descriptor, stop):
            yield from find_file(os.fsdecode(line), image_size, claim)

    return read


def lines(descriptor: int, stop: Event) -> Iterator[bytes]:
    """Lines without their ends, as they arrive; empty ones are skipped.

    Not by ``sys.stdin``: a thread that waits inside it cannot be ended, and Python fails at exit because of it.
    """
    rest, first = b"", True
    while rest or not stop.is_set():  # half a line is read to its end: the next reader could not make sense of the rest
        if not select.select([descriptor], [], [], 0.2)[0]:
            continue
        data = os.read(descriptor, 1 if stop.is_set() else 4096)  # to the end of that line, and no further
        *whole, rest = (rest + data).split(b"\n") if data else [rest, b""]
        if len(rest) > LONGEST:
            raise InputError(f"standard input has a line of more than {LONGEST:,} bytes; give one path a line")
        if first and whole:
            whole[0], first = whole[0].removeprefix(codecs.BOM_UTF8), False  # some editors put it before the first path
        yield from (line.rstrip(b"\r") for line in whole if line.strip())
        if not data:
            return
