"""Paths on standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from climb.errors import InputError
from climb.images.decode import UNREADABLE, ImageError
from climb.sources import Item, Options, PassedOver, folder, open_source
from climb.sources.folder import LONGEST_LINE, lines, read_standard_input
from climb.sources.source import Everything

Draw = Callable[..., Path]


def test_lines_arrive_whole_however_they_were_written() -> None:
    reader, writer = os.pipe()
    for piece in (b"one\ntw", b"o\r\n\n", b"three"):
        os.write(writer, piece)
    os.close(writer)
    assert list(lines(reader, Event())) == [b"one", b"two", b"three"]
    os.close(reader)


def test_a_byte_order_mark_is_removed() -> None:
    reader, writer = os.pipe()
    for piece in (b"\xef\xbb", b"\xbfone\n", b"\xef\xbb\xbftwo\n"):
        os.write(writer, piece)
    os.close(writer)
    assert list(lines(reader, Event())) == [b"one", b"\xef\xbb\xbftwo"]
    os.close(reader)


def test_waiting_for_a_line_can_be_stopped() -> None:
    reader, writer = os.pipe()
    stop = Event()
    Timer(0.1, stop.set).start()
    assert list(lines(reader, stop)) == []
    os.close(reader)
    os.close(writer)


def test_reading_lines_can_be_stopped_between_two_lines() -> None:
    reader, writer = os.pipe()
    stop = Event()
    os.write(writer, b"one\ntw")
    found = lines(reader, stop)
    assert next(found) == b"one"
    stop.set()
    os.write(writer, b"o\nthree\nfou")
    assert list(found) == [b"two"]
    assert os.read(reader, 100) == b"three\nfou"
    os.close(reader)
    os.close(writer)


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        os.write(writer, b"x" * 2 * LONGEST_LINE)
        os.close(writer)

    writing = Thread(target=write)  # more than a pipe holds, so a thread writes it
    writing.start()
    with pytest.raises(InputError, match="one path a line"):
        next(lines(reader, Event()))
    while os.read(reader, LONGEST_LINE):  # read all: a writer without a reader fails
        pass
    writing.join()
    os.close(reader)


def test_impossible_file_names_are_passed_over(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = draw(tmp_path / "a.png")
    reader, writer = os.pipe()
    os.write(writer, b"a.png\0b.png\n" + b"x" * 5000 + b"\n" + f"{good}\n".encode())
    os.close(writer)
    with os.fdopen(reader) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        pending = list(read_standard_input("-", Options(image_size=16))(Everything(), Event()))
    assert [one.identity is None for one in pending] == [True, True, False]
    assert pending[-1].where == str(good)


def test_an_unreadable_path_is_retried_when_it_is_given_again(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = draw(tmp_path / "a.png")
    read, failures = folder.read_image_file, [ImageError(UNREADABLE, "the drive is away")]

    def flaky(path: str) -> bytes:
        if failures:
            raise failures.pop()
        return read(path)

    monkeypatch.setattr(folder, "read_image_file", flaky)
    reader, writer = os.pipe()
    with os.fdopen(reader) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        arrivals = open_source("-", image_size=16).arrivals()
        os.write(writer, f"{file}\n".encode())
        assert isinstance(next(arrivals), PassedOver)
        os.write(writer, f"{file}\n{file}\n".encode())
        os.close(writer)
        assert [type(arrival) for arrival in arrivals] == [Item]


def test_a_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="is closed"):
        open_source("-", image_size=16)


def test_the_files_on_standard_input(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draw(tmp_path / "a b.png"), draw(tmp_path / "ü.png", 1)
    reader, writer = os.pipe()
    os.write(writer, f"{a}\n{tmp_path}/none.png\n{b}\n{a}\n".encode())
    os.close(writer)
    with os.fdopen(reader) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        source = open_source("-", image_size=16)
        arrivals = list(source.arrivals())
    assert [a.where for a in arrivals if isinstance(a, Item)] == [str(a), str(b)]  # a path given twice is one file
    (missing,) = [a for a in arrivals if isinstance(a, PassedOver)]
    assert (missing.reason, missing.for_good) == ("unreadable", False)
    assert not source.rereadable
