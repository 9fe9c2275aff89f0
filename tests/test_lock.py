"""One process at a time: the others wait, or are refused."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from climb.errors import ClimbError, InputError
from climb.lock import exclusive, is_held, only_one


def test_the_others_wait_for_their_turn(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with only_one(tmp_path / "lock"):
            order.append("second")

    with only_one(tmp_path / "lock"):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_whether_somebody_holds_it_is_seen_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    assert not lock.exists()  # to look leaves nothing
    with only_one(lock):
        assert is_held(lock)
    assert not is_held(lock)

    def refused(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert not is_held(lock)


def test_the_others_are_refused_and_told_who_is_first(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path / "lock"),
        pytest.raises(InputError, match=rf"another process \(number {os.getpid()}\) is at work in"),
        exclusive(tmp_path / "lock"),
    ):
        pass
    with exclusive(tmp_path / "lock"):  # the first has let go of it
        pass


def test_a_drive_without_locks_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(ClimbError, match="lock: No locks available"), exclusive(tmp_path / "lock"):
        pass


def test_on_a_full_disk_the_lock_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ClimbError, match=r"cannot write .*lock: No space left on device"), exclusive(tmp_path / "lock"):
        pass
