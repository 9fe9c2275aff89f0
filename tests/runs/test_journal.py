from __future__ import annotations

import json
import math
from pathlib import Path

from climb.runs import Journal


def test_lines_are_json_and_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.read() == []
    journal.write(0, "floor", student=25.0)
    journal.write(3, "train", objective=1.5, alignment=math.nan, threshold=math.inf)
    lines = [json.loads(text) for text in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert lines == journal.read()
    assert journal.read("train") == [
        {"batch": 3, "event": "train", "objective": 1.5, "alignment": None, "threshold": None}
    ]


def test_cutting_drops_later_lines_and_half_a_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for batch in (0, 5, 5, 10):
        journal.write(batch, "train")
    with open(journal.path, "a") as handle:
        handle.write('{"batch": 4, "ev')
    journal.cut(5)
    assert [line["batch"] for line in journal.read()] == [0, 5, 5]
    journal.write(6, "train")
    assert [line["batch"] for line in journal.read()] == [0, 5, 5, 6]
    journal.cut(-1)
    assert journal.path.read_text() == ""


def test_cutting_a_journal_that_is_not_there(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.jsonl").cut(3)
    assert not (tmp_path / "journal.jsonl").exists()


def test_cut_drops_the_evaluation_that_will_be_done_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(10, "evaluation", network="student", task=0, joint=1.0)
    journal.write(20, "train", objective=2.0)
    journal.write(20, "evaluation", network="student", task=1, joint=3.0)
    journal.cut(20, task=1)
    assert [(line["batch"], line["event"]) for line in journal.read()] == [(10, "evaluation"), (20, "train")]


def test_a_damaged_line_costs_itself_alone(tmp_path: Path) -> None:
    """A disk that was full for a while leaves half a line in the middle, a power cut leaves zeros or worse."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(1, "train")
    with open(journal.path, "ab") as handle:
        handle.write(b'{"batch": 2, "ev\n\0\0\0\n\xff\xfe\n[1]\n{"event": "train"}\n')
    journal.write(3, "train")
    assert [line["batch"] for line in journal.read("train")] == [1, 3]
    journal.cut(3)
    assert [line["batch"] for line in journal.read()] == [1, 3]


def test_after_half_a_line_a_new_one_begins(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.path.write_bytes(b'{"batch": 2, "ev')
    journal.write(3, "train")
    assert [line["batch"] for line in journal.read()] == [3]


def test_the_last_line_is_read_from_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.last() is None
    journal.path.touch()
    assert journal.last() is None
    for batch in range(1000):
        journal.write(batch, "train")
        assert batch > 2 or journal.last() == {"batch": batch, "event": "train"}  # of a journal that has just begun
    assert journal.last() == {"batch": 999, "event": "train"}
    journal.write(999, "evaluation", per_task=[100 / 3] * 100)  # as many tasks as there are classes, at most
    assert journal.last() == {"batch": 999, "event": "evaluation", "per_task": [100 / 3] * 100}
    with open(journal.path, "a") as handle:
        handle.write('{"batch": 1000, "ev')
    assert journal.last() is None


def test_it_is_bounded_and_keeps_the_newest_lines_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", most_bytes=2000, kept=2)
    for batch in range(1000):
        journal.write(batch, "train", objective=0.5)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["journal.1.jsonl", "journal.2.jsonl", "journal.jsonl"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2100
    batches = [line["batch"] for line in journal.read("train")]
    assert batches == list(range(batches[0], 1000))
    assert len(batches) > 60


def test_cutting_reaches_back_into_older_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", most_bytes=500, kept=3)
    for batch in range(30):
        journal.write(batch, "train")
    kept = [line["batch"] for line in journal.read()]
    assert (tmp_path / "journal.1.jsonl").exists()
    journal.cut(20)
    assert [line["batch"] for line in journal.read()] == [batch for batch in kept if batch <= 20]
    journal.write(21, "warning", text="x")
    assert [line["text"] for line in journal.read("warning")] == ["x"]
