"""Watching: what is found when, what is complete, and what is tried again."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from climb.sources import Item, PassedOver, folder, open_source
from climb.sources import watch as watching
from climb.sources.item import UNREADABLE, Unusable
from climb.sources.watch import Found, watched

Draw = Callable[..., Path]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything ten times as fast."""
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(watching, "FIRST_PAUSE", 0.1)


def arrivals_within(seconds: float, source: Any) -> list[Item | PassedOver]:
    arrivals = source.arrivals(patience=0.05)
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        arrival = next(arrivals)
        if arrival is not None:
            found.append(arrival)
    arrivals.close()
    return found


def everything_is_new(path: str, status: os.stat_result) -> bool:
    return True


# -- how often ---------------------------------------------------------------------------------------------------------


def test_the_next_look_does_not_wait_for_as_long_as_the_reader_took(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.0)
    files = [str(draw(tmp_path / f"{number}.png")) for number in range(3)]
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[Found]:
        if thorough:
            looks.append(time.monotonic())
        return ((file, os.stat(file)) for file in files)

    given = watched(look, everything_is_new, Event())
    while len(looks) < 2:
        next(given)
        taken = time.monotonic()
        time.sleep(0.4)  # the learner is busy
    given.close()
    assert taken - looks[0] < 3 * 0.4 + watching.POLL_SECONDS + 0.3


def test_looks_are_as_rare_as_they_are_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    looks: dict[bool, list[float]] = {True: [], False: []}
    stop = Event()

    def look(thorough: bool) -> Iterator[Found]:
        looks[thorough].append(time.monotonic())
        time.sleep(0.05 if thorough else 0.005)  # a large folder
        if len(looks[True]) == 2:
            stop.set()
        yield "a", os.stat(".")

    assert list(watched(look, lambda path, status: False, stop)) == []
    assert looks[True][1] - looks[True][0] >= 0.05 * watching.COST
    quick = looks[False]
    assert len(quick) > 2
    assert all(later - earlier >= 0.005 * watching.COST for earlier, later in pairwise(quick))


def test_a_young_file_does_not_wait_for_the_next_costly_look(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(watching, "COST", 1e9)  # there is only one look
    file = draw(tmp_path / "a.png")
    given = watched(lambda thorough: iter([(str(file), os.stat(file))]), everything_is_new, Event())
    began = time.monotonic()
    assert next(given)[0] == str(file)
    assert 0.15 < time.monotonic() - began < 2


def test_more_young_files_than_are_kept_in_mind_all_come(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(watching, "MOST_YOUNG", 3)
    for number in range(10):
        draw(tmp_path / f"{number}.png", number)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found = [next(arrivals) for _ in range(10)]
    arrivals.close()
    assert sorted(Path(item.where).stem for item in found if isinstance(item, Item)) == [str(n) for n in range(10)]


# -- what is complete --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_writer_whose_clock_is_wrong_is_waited_for(
    behind: float, at_start: bool, draw: Draw, tmp_path: Path, quick: None
) -> None:
    data = draw(tmp_path / "elsewhere" / "x.png", size=(40, 40)).read_bytes()
    root, begun = tmp_path / "images", Event()
    root.mkdir()

    def write() -> None:
        time.sleep(0.0 if at_start else 0.1)
        with open(root / "x.png", "wb") as handle:
            for place in range(0, len(data), len(data) // 8):
                handle.write(data[place : place + len(data) // 8])
                handle.flush()
                os.utime(root / "x.png", (time.time() - behind,) * 2)
                begun.set()
                time.sleep(0.08)

    writer = Thread(target=write)
    writer.start()
    assert begun.wait(5 if at_start else 0) == at_start
    found = arrivals_within(1.5, open_source(root, image_size=16, watch=True))
    writer.join()
    assert [type(arrival) for arrival in found] == [Item]


def test_of_a_file_that_appears_no_time_is_believed(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """All times on a server whose clock is behind are old."""
    status: Any = SimpleNamespace(st_size=1, st_mtime=1.0, st_ctime=1.0, st_mtime_ns=10**9)
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[Found]:
        looks.append(time.monotonic())
        yield ("there", status) if len(looks) == 1 else ("appeared", status)

    given = watched(look, everything_is_new, Event())
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: status)
        names = [next(given)[0], next(given)[0]]
    given.close()
    assert names == ["there", "appeared"]
    assert time.monotonic() - looks[1] >= watching.SETTLED_SECONDS


# -- what is tried again -----------------------------------------------------------------------------------------------


def test_what_could_not_be_read_for_now_is_tried_again_and_counted_once(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    draw(tmp_path / "a.png")
    read, failures = folder.read_file, list[float]()

    def flaky(path: str) -> bytes:
        if len(failures) < 3:
            failures.append(time.monotonic())
            raise Unusable(UNREADABLE, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(folder, "read_file", flaky)
    source = open_source(tmp_path, image_size=16, watch=True)
    found = arrivals_within(2.5, source)
    assert [type(arrival) for arrival in found] == [PassedOver, Item]
    assert source.passed_over == {UNREADABLE: 1}
    pauses = [later - earlier for earlier, later in pairwise(failures)]
    assert pauses[0] >= 0.1  # ever longer: a dead drive is not asked all the time
    assert pauses[1] >= 0.2


def test_what_vanished_is_new_if_it_comes_back_and_not_kept_in_mind(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    file, aside = draw(tmp_path / "a.png"), tmp_path / ".aside"
    laters: list[watching.Later] = []
    monkeypatch.setattr(folder, "Later", lambda: laters.append(watching.Later()) or laters[-1])
    read = folder.read_file

    def unmounted(path: str) -> bytes:
        if len(found) == 0:
            file.rename(aside)
        return read(path)

    monkeypatch.setattr(folder, "read_file", unmounted)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found: list[Any] = []
    found.append(next(arrivals))
    assert [len(later) for later in laters] == [0]
    aside.rename(file)
    found.append(next(arrivals))
    arrivals.close()
    assert [type(arrival) for arrival in found] == [PassedOver, Item]
    assert found[0].identity == found[1].identity


def test_a_file_replaced_after_it_was_found_is_taken_as_what_it_is_now(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    """Content of the one with the identity of the other would be learned twice, or never."""
    root = tmp_path / "images"
    file, other = draw(root / "a.png", 0), draw(tmp_path / "other.png", 1, (20, 20))
    read = folder.read_file

    def replaced_meanwhile(path: str) -> bytes:
        if other.exists():
            os.replace(other, file)
        return read(path)

    monkeypatch.setattr(folder, "read_file", replaced_meanwhile)
    source = open_source(root, image_size=16, watch=True)
    first, second = arrivals_within(1.5, source)
    assert isinstance(first, PassedOver)
    assert (first.reason, first.for_good) == (UNREADABLE, False)
    assert isinstance(second, Item)
    assert second.identity == folder.file_identity(str(file), os.stat(file)) != first.identity


def test_a_folder_that_cannot_be_listed_is_named_once(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    draw(tmp_path / "a.png")
    draw(tmp_path / "locked" / "b.png")
    scan, locked = os.scandir, True

    def scandir(path: str) -> Any:
        if locked and str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may list everything
    source = open_source(tmp_path, image_size=16, watch=True)
    arrivals = source.arrivals(patience=0.5)
    assert isinstance(next(arrivals), Item)
    assert next(arrivals) is None
    assert caplog.text.count("locked") == 1
    locked = False
    assert isinstance(next(arrivals), Item)
    arrivals.close()
