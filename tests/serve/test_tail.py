from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from climb.runs import Journal
from climb.serve import tail
from climb.serve.tail import JournalTail


def batches(lines: list[dict[str, Any]]) -> list[int]:
    return [line["batch"] for line in lines]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def test_each_time_a_little_further(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    assert follower.read() == []
    for batch in range(1, 4):
        journal.write(batch, "train", objective=1.0)
        assert batches(follower.read()) == list(range(1, batch + 1))


def test_a_half_written_line_waits_for_its_other_half(journal: Journal, tmp_path: Path) -> None:
    journal.write(1, "train")
    follower = JournalTail(tmp_path)
    with open(journal.path, "a") as handle:
        handle.write('{"batch": 2, "eve')
        handle.flush()
        assert batches(follower.read()) == [1]
        handle.write('nt": "train"}\n')
    assert batches(follower.read()) == [1, 2]


def test_only_what_is_new_is_read(journal: Journal, tmp_path: Path) -> None:
    journal.write(1, "train", objective=1.0)
    follower = JournalTail(tmp_path)
    follower.read()
    text = journal.path.read_text()
    with open(journal.path, "r+") as handle:  # the same file and length: nobody should look there again
        handle.write(text.replace('"batch": 1', '"batch": 7'))
    journal.write(2, "train")
    assert batches(follower.read()) == [1, 2]


def test_a_resumed_run_cuts_its_journal(journal: Journal, tmp_path: Path) -> None:
    for batch in range(1, 10):
        journal.write(batch, "train")
    follower = JournalTail(tmp_path)
    assert len(follower.read()) == 9
    journal.cut(4)
    assert batches(follower.read()) == [1, 2, 3, 4]
    journal.write(5, "train")
    assert batches(follower.read()) == [1, 2, 3, 4, 5]


def test_a_long_journal_is_continued_in_another_file(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    for batch in range(1, 7):
        journal.write(batch, "train")
        if batch % 2 == 0:
            if (tmp_path / "journal.1.jsonl").exists():
                (tmp_path / "journal.1.jsonl").rename(tmp_path / "journal.2.jsonl")
            journal.path.rename(tmp_path / "journal.1.jsonl")
    journal.write(7, "train")
    assert batches(follower.read()) == [3, 4, 5, 6, 7]


def test_what_is_no_line_of_a_journal_is_passed_over(journal: Journal, tmp_path: Path) -> None:
    journal.path.write_bytes(b'\xff\xfe\n[1]\n{"event": "train"}\n{"batch": "x"}\n{"batch": 3, "event": "train"}\n')
    assert batches(JournalTail(tmp_path).read()) == [3]


def test_memory_is_bounded_and_evaluations_stay(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST", 50)
    follower = JournalTail(tmp_path)
    for start in range(0, 400, 40):
        lines = [{"batch": start + n, "event": "train"} for n in range(40)]
        with open(journal.path, "a") as handle:
            handle.write("".join(json.dumps(line) + "\n" for line in [*lines, {"batch": start, "event": "evaluation"}]))
        assert len(follower.read()) <= 50
    found = follower.read()
    assert sum(line["event"] == "evaluation" for line in found) == 10
    training = batches([line for line in found if line["event"] == "train"])
    assert training == sorted(training)
    assert training[1] - training[0] > 1  # every second one, several times
    assert training[-1] >= 390
