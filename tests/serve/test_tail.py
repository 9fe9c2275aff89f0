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
    for batch in range(1, 300):
        journal.write(batch, "train", objective=1.0)
    assert journal.path.stat().st_size > 2 * tail.MARK
    follower = JournalTail(tmp_path)
    follower.read()
    text = journal.path.read_text()
    with open(journal.path, "r+") as handle:  # the same file and length: nobody should look there again
        handle.write(text.replace('"batch": 1,', '"batch": 7,'))
    journal.write(300, "train")
    assert batches(follower.read()) == list(range(1, 301))


def test_two_restarts_between_two_looks(journal: Journal, tmp_path: Path) -> None:
    """Each writes a new file, and the second one's may have the number that the first one's had."""
    for batch in range(20):
        journal.write(batch, "train", objective=1.0)
    follower = JournalTail(tmp_path)
    follower.read()
    number = journal.path.stat().st_ino
    again = Journal(tmp_path / "again.jsonl")
    for batch in range(40):
        again.write(batch, "train", objective=1.0 if batch < 11 else 2.0)
    journal.path.write_bytes(again.path.read_bytes())
    assert journal.path.stat().st_ino == number
    assert [line["objective"] for line in follower.read()] == [1.0] * 11 + [2.0] * 29


def test_a_line_without_end_is_not_kept(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    journal.path.write_bytes(b"[" * (5 * tail.PIECE) + b'\n{"batch": 1, "event": "train"}\n')
    assert batches(follower.read()) == [1]
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


def test_brackets_without_end_are_passed_over(journal: Journal, tmp_path: Path) -> None:
    journal.path.write_bytes(b"[" * 200_000 + b"\n" + b'{"batch": 1' + b"0" * 400 + b'}\n{"batch": 3}\n')
    assert batches(JournalTail(tmp_path).read()) == [3]


def test_memory_is_bounded_and_evaluations_stay(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    for start in range(0, 20_000, 2000):
        lines: list[dict[str, Any]] = [
            {"batch": start + n, "event": "train", "time": 1e9, "objective": 1.0, "note": "x" * 50} for n in range(2000)
        ]
        lines += [{"batch": start, "event": "evaluation"}, {"batch": start, "event": "start", "versions": {"a": "b"}}]
        lines += [{"batch": start, "event": "warning", "text": f"{n}"} for n in range(20)]
        with open(journal.path, "a") as handle:
            handle.write("".join(json.dumps(line) + "\n" for line in lines))
        follower.read()
    found = follower.read()
    assert sum(line["event"] == "evaluation" for line in found) == 10
    assert sum(line["event"] == "start" for line in found) == 1
    assert sum(line["event"] == "warning" for line in found) == tail.EVENTS["warning"]
    training = [line for line in found if line["event"] == "train"]
    assert 500 < len(training) < 2500
    assert training[-1] == {"batch": 19_999, "event": "train", "time": 1e9, "objective": 1.0}
