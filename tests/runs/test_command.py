from __future__ import annotations

import os

import pytest

from climb.runs.command import command_line


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["/usr/bin/climb", "run", "--out", "a b"], "climb run --out 'a b'"),
        (["/site/climb/__main__.py", "learn", "photos"], "python -m climb learn photos"),
        (["/usr/bin/climb", "learn", "rtsp://me:secret@cam/1"], "climb learn rtsp://me:...@cam/1"),
        (["/usr/bin/climb", "learn", os.fsdecode(b"it's caf\xe9"), "a"], r"climb learn $'it\x27s caf\xe9' a"),
        (["/usr/bin/pytest", "tests"], None),
        (["", "x"], None),
    ],
)
def test_what_was_typed(monkeypatch: pytest.MonkeyPatch, typed: list[str], said: str | None) -> None:
    monkeypatch.setattr("sys.argv", typed)
    assert command_line() == said
