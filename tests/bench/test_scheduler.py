"""Running jobs and showing their progress."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from climb.bench import scheduler
from climb.bench.estimate import work_of
from climb.bench.executors import Executor, Job, Outcome, run_job
from climb.bench.executors.job import Outcomes
from climb.bench.scheduler import Overview, run_jobs
from climb.settings.config import RunConfig

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]


def paper(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=400, highlight=False, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_failed_run_is_listed_and_does_not_stop_the_others(
    tiny_config: MakeConfig, make_job: MakeJob, here: Executor, tmp_path: Path
) -> None:
    good = make_job(tiny_config(method="er-fifo"))
    config = tiny_config(method="er-reservoir")
    bad = make_job(replace(config, data=replace(config.data, dataset="folder", options={})))
    bad = replace(bad, execution=replace(bad.execution, data_root=str(tmp_path / "nowhere")))
    console = paper()
    report = run_jobs([bad, good], here, console=console)
    assert report.done == [good.label]
    ((label, error),) = report.failed
    assert label == bad.label
    assert "nowhere" in error
    first, second = written(console).splitlines()
    assert first.startswith("[1/2] er-reservoir, seed 0: FAILED: ")
    assert "left" in first
    assert second.startswith("[2/2] er-fifo, seed 0: final accuracy ")
    assert "left" not in second


def test_ctrl_c_closes_the_executor(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    closed = []

    def interrupted(jobs: Sequence[Job]) -> Outcomes:
        try:
            yield jobs[0], Outcome(status="interrupted")
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_jobs([make_job(tiny_config())], interrupted, console=paper())
    assert closed == [True]


def test_sigterm_acts_as_ctrl_c(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    closed = []

    def killed(jobs: Sequence[Job]) -> Outcomes:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            yield jobs[0], Outcome(status="interrupted")
        finally:
            closed.append(True)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([make_job(tiny_config())], killed, console=paper())
    assert closed == [True]
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_live_overview(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    done, running, failed = (make_job(tiny_config(method=name)) for name in ("er-fifo", "climb", "minred"))
    console = paper(terminal=True)
    overview = Overview([done, running, failed], console=console)
    with overview.live:
        outcome = run_job(done)
        overview.note(done, outcome)
        overview.note(failed, Outcome(status="failed", error="it broke"))
        running.folder.mkdir(parents=True)
        (running.folder / "journal.jsonl").write_text(
            '{"batch": 1, "event": "start"}\n{"batch": 7, "event": "train"}\n'
        )
        left = overview.seconds_left()
        assert left is not None
        assert left > 0
        console.print(overview.render())
    said = written(console)
    assert "1 running, 1 of 3 done, 1 failed; about " in said
    assert "climb, seed 0: mini-batch 7" in said
    assert "failed: minred, seed 0: it broke" in said
    assert "best so far: " in said
    assert "er-fifo, seed 0" in said


def test_the_time_left_follows_the_pace_since_the_start(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of runs count, and what an earlier command did of them says nothing of the pace."""
    clock = 100.0
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: clock)
    first, second = (make_job(tiny_config(method=name)) for name in ("er-fifo", "climb"))
    work = work_of(first.config, "cpu")
    assert work is not None
    batches = work.stream_images / first.config.learner.stream_batch

    def stands(job: Job, share: float) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "journal.jsonl").write_text(f'{{"batch": {round(share * batches)}, "event": "train"}}\n')

    stands(first, 0.5)
    overview = Overview([first, second], console=paper())
    clock += 10.0
    assert overview.seconds_left() is None  # nothing has happened
    stands(first, 1.0)
    assert overview.seconds_left() == pytest.approx(20.0)  # half a run in 10 s, and one is left
    stands(second, 0.5)
    assert overview.seconds_left() == pytest.approx(5.0)
    clock += 10.0
    overview.note(first, Outcome(status="done"))
    assert overview.seconds_left() == pytest.approx(10.0)
