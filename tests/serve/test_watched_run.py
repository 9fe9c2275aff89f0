from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from climb.files import exclusive
from climb.runs import Journal
from climb.serve import watched_run
from climb.serve.app import make_app
from climb.serve.discovery import Runs
from climb.serve.watched_run import SILENCE, Cache, Caches, State, WatchedRun, is_held

HOLD = """
import sys, time
from pathlib import Path
from climb.files import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def at_work(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock, like a learner."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def long_ago(folder: Path) -> None:
    then = time.time() - 2 * SILENCE
    os.utime(folder / "journal.jsonl", (then, then))


def state(folder: Path) -> State:
    (run,) = Runs(folder).all()
    return run.state()


def test_an_ended_stream_is_finished(own_stream: Path) -> None:
    journal = Journal(own_stream / "journal.jsonl")
    assert state(own_stream) == "learning"
    journal.write(59, "end", time=1.0)
    assert state(own_stream) == "finished"
    with TestClient(make_app(own_stream), base_url="http://127.0.0.1") as client:
        assert 'climb_run_finished{run="photos"} 1' in client.get("/metrics").text.splitlines()
        assert "Learned from a stream: 59 mini-batches" in client.get("/api/live/").json()["parts"]["summary"]
    long_ago(own_stream)
    assert state(own_stream) == "finished"
    journal.write(59, "start", time=2.0)  # continued another day
    assert state(own_stream) == "learning"
    long_ago(own_stream)
    assert state(own_stream) == "silent"


def test_an_end_just_before_a_rotation_counts(own_stream: Path) -> None:
    Journal(own_stream / "journal.jsonl").write(59, "end", time=1.0)
    (own_stream / "journal.1.jsonl").rename(own_stream / "journal.2.jsonl")
    (own_stream / "journal.jsonl").rename(own_stream / "journal.1.jsonl")
    assert state(own_stream) == "finished"


@pytest.mark.parametrize("name", ["lock", ".lock"])
def test_a_living_process_without_lines_is_waiting(own_stream: Path, name: str) -> None:
    long_ago(own_stream)
    with at_work(own_stream / name) as process:
        assert state(own_stream) == "waiting"
        with TestClient(make_app(own_stream), base_url="http://127.0.0.1") as client:
            assert 'climb_run_at_work{run="photos"} 1' in client.get("/metrics").text.splitlines()
        process.kill()
        process.wait(60)
        assert (own_stream / name).read_text().strip() == str(process.pid)
        assert state(own_stream) == "silent"


def test_is_held_never_takes_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("1\n")  # a living process that does not hold it
    assert not is_held(path)
    with exclusive(path):
        assert is_held(path)
    assert not is_held(path)
    path.write_text("no number")
    assert not is_held(path)
    assert not is_held(tmp_path / "nothing")


def test_without_a_list_of_locks_the_owner_must_be_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_run, "HELD_LOCKS", tmp_path / "nothing")
    for text, expected in ((str(os.getpid()), True), ("1", True), (str(2**22 + 1), False), ("9" * 30, False)):
        (tmp_path / "lock").write_text(text)
        assert is_held(tmp_path / "lock") == expected


def test_the_least_recently_used_record_is_dropped(real_runs: Path) -> None:
    caches = Caches(tails=Cache(1), records=Cache(1), rendered=Cache(1))
    one, other = (WatchedRun(real_runs, name, caches) for name in ("climb-0", "sweep/fifo-1"))
    first = one.record()
    assert one.record() is first
    assert other.record().method == "climb-fifo (default)"
    again = one.record()
    assert again is not first
    assert vars(again) == vars(first)
    made: list[str] = []

    def rendered(run: WatchedRun) -> dict[str, str]:
        def render() -> dict[str, str]:
            made.append(run.name)
            return {"a": run.name}

        return run.rendered("memory", "1", render)

    for run in (one, one, other, one):
        assert rendered(run) == {"a": run.name}
    assert made == ["climb-0", "sweep/fifo-1", "climb-0"]


def test_a_row_is_made_once_per_version(real_runs: Path) -> None:
    run = WatchedRun(real_runs, "climb-0")
    made: list[str] = []
    for version in ("1", "1", "2", "2"):
        run.brief("row", version, lambda record: made.append(record.method))
    assert len(made) == 2
