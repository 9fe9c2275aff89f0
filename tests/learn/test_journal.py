"""A journal that does not grow for ever."""

from __future__ import annotations

from pathlib import Path

from climb.learn.journal import LongJournal


def test_it_is_bounded_and_keeps_the_newest_lines_in_order(tmp_path: Path) -> None:
    journal = LongJournal(tmp_path / "journal.jsonl", most_bytes=2000, kept=2)
    for batch in range(1000):
        journal.write(batch, "train", objective=0.5)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["journal.1.jsonl", "journal.2.jsonl", "journal.jsonl"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2100
    batches = [line["batch"] for line in journal.read("train")]
    assert batches == list(range(batches[0], 1000))
    assert len(batches) > 60


def test_cutting_reaches_back_into_older_files(tmp_path: Path) -> None:
    journal = LongJournal(tmp_path / "journal.jsonl", most_bytes=500, kept=3)
    for batch in range(30):
        journal.write(batch, "train")
    kept = [line["batch"] for line in journal.read()]
    assert (tmp_path / "journal.1.jsonl").exists()
    journal.cut(20)
    assert [line["batch"] for line in journal.read()] == [batch for batch in kept if batch <= 20]
    journal.write(21, "warning", text="x")
    assert [line["text"] for line in journal.read("warning")] == ["x"]
