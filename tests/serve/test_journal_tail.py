from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from climb.runs import Journal
from climb.serve import journal_tail
from climb.serve.journal_tail import MOST_KEYS, MOST_ROWS, RECENT, JournalTail, Series


def batches(lines: list[dict[str, Any]]) -> list[int]:
    return [line["batch"] for line in lines]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def test_reading_continues_where_it_ended(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    assert follower.read() == []
    for batch in range(1, 4):
        journal.write(batch, "train", objective=1.0)
        assert batches(follower.read()) == list(range(1, batch + 1))


def test_a_half_written_line_waits_for_its_rest(journal: Journal, tmp_path: Path) -> None:
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
    assert journal.path.stat().st_size > 2 * journal_tail.MARK
    follower = JournalTail(tmp_path)
    follower.read()
    text = journal.path.read_text()
    with open(journal.path, "r+") as handle:  # same file, same length: must not be read again
        handle.write(text.replace('"batch": 1,', '"batch": 7,'))
    journal.write(300, "train")
    assert batches(follower.read()) == list(range(1, 301))


def test_a_replaced_journal_with_the_same_inode_is_read_again(journal: Journal, tmp_path: Path) -> None:
    """After two restarts, the new file may have the inode of a deleted one."""
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


def test_an_endless_line_is_skipped(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    journal.path.write_bytes(b"[" * (5 * journal_tail.PIECE) + b'\n{"batch": 1, "event": "train"}\n')
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


def test_a_rotated_journal_is_followed(journal: Journal, tmp_path: Path) -> None:
    follower = JournalTail(tmp_path)
    for batch in range(1, 7):
        journal.write(batch, "train")
        if batch % 2 == 0:
            if (tmp_path / "journal.1.jsonl").exists():
                (tmp_path / "journal.1.jsonl").rename(tmp_path / "journal.2.jsonl")
            journal.path.rename(tmp_path / "journal.1.jsonl")
    journal.write(7, "train")
    assert batches(follower.read()) == [3, 4, 5, 6, 7]


def test_invalid_lines_are_skipped(journal: Journal, tmp_path: Path) -> None:
    journal.path.write_bytes(b'\xff\xfe\n[1]\n{"event": "train"}\n{"batch": "x"}\n{"batch": 3, "event": "train"}\n')
    assert batches(JournalTail(tmp_path).read()) == [3]


def test_deeply_nested_lines_are_skipped(journal: Journal, tmp_path: Path) -> None:
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
    assert sum(line["event"] == "warning" for line in found) == journal_tail.EVENTS["warning"]
    training = [line for line in found if line["event"] == "train"]
    assert 500 < len(training) < 2500
    assert training[-1] == {"batch": 19_999, "event": "train", "time": 1e9, "objective": 1.0}


def filled(lines: list[dict[str, Any]]) -> Series:
    series = Series()
    for line in lines:
        series.add(line)
    return series


@pytest.mark.parametrize("count", [0, 1, RECENT, MOST_ROWS])
def test_short_journals_are_kept_whole(count: int) -> None:
    lines = [{"batch": n, "event": "train", "objective": n / 7, "task": n // 9} for n in range(count)]
    assert filled(lines).lines() == lines


def test_only_numbers_are_kept() -> None:
    line = {"batch": 3, "event": "train", "objective": 1.5, "alignment": None, "note": "x", "on": True, "many": 10**400}
    assert filled([line]).lines() == [{"batch": 3, "event": "train", "objective": 1.5}]


def test_a_later_key_has_no_earlier_values() -> None:
    count = 2000
    lines = [{"batch": n, "event": "train", **({"rank": 1.0} if n >= 1000 else {})} for n in range(count)]
    found = filled(lines).lines()
    assert {"rank" in line for line in found if line["batch"] < 990} == {False}
    assert {"rank" in line for line in found if line["batch"] > 1010} == {True}


@pytest.mark.parametrize("count", [5_000, 40_000])
def test_long_journals_keep_all_parts_and_spikes(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count)
    spikes = {place: 100.0 + place for place in range(37, count, count // 30)}
    lines = [{"batch": n, "event": "train", "objective": spikes.get(n, values[n]), "total": n} for n in range(count)]
    found = filled(lines).lines()
    assert MOST_ROWS // 2 <= len(found) <= MOST_ROWS + RECENT + 256 + 2 * count // MOST_ROWS
    batches = [line["batch"] for line in found]
    assert batches == sorted(batches)
    assert max(np.diff(batches)) < count / 100  # evenly spaced
    assert batches[0] == 0
    assert {line["objective"] for line in found if line["objective"] > 50} == set(spikes.values())
    totals = [line["total"] for line in found]
    assert totals == sorted(totals)
    assert found[-1] == lines[-1]


def test_series_memory_is_bounded() -> None:
    tracemalloc.start()
    try:
        series = Series()
        for n in range(8_000):
            series.add({"batch": n, "event": "train", **{f"key_{k}": n * k / 3 for k in range(30)}})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
    assert len(series.lines()) > MOST_ROWS // 2


def test_the_number_of_keys_is_bounded() -> None:
    found = filled([{"batch": n, f"key {n}": 1.0} for n in range(1000)]).lines()
    assert len({key for line in found for key in line}) == MOST_KEYS + 1  # plus the event
