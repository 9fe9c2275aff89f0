"""The Slurm executor through submitit's local executor: scripts, pickles, processes, signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from watching import ENDLESS, holder, wait_for, without_seconds

from climb.bench.executors import Job, run_job
from climb.bench.executors.cluster import ResumableRun, slurm_executor
from climb.errors import InputError
from climb.runs import Journal, RunFolder
from climb.settings.config import RunConfig

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]
LOCAL = {"cluster": "local", "timeout_min": 60}


@pytest.mark.slow(seconds=15)
def test_an_array_of_runs(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    good = make_job(tiny_config(method="er-fifo"))
    config = tiny_config(method="er-reservoir")
    bad = make_job(replace(config, data=replace(config.data, dataset="folder", options={})))
    bad = replace(bad, execution=replace(bad.execution, data_root=str(tmp_path / "nowhere")))
    outcomes = {
        job.folder: outcome for job, outcome in slurm_executor(folder=tmp_path / "slurm", options=LOCAL)([good, bad])
    }
    assert outcomes[good.folder].status == "done"
    assert outcomes[bad.folder].status == "failed"
    assert "nowhere" in outcomes[bad.folder].error
    alone = make_job(good.config, out=tmp_path / "alone")
    run_job(alone)
    assert without_seconds(good.folder) == without_seconds(alone.folder)


@pytest.mark.slow(seconds=15)
def test_a_preempted_run_resumes(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    """The signal that Slurm sends before it takes a node away; submitit queues the run again."""
    job = make_job(tiny_config(train_per_class=40), checkpoint_seconds=0.0)
    outcomes = slurm_executor(folder=tmp_path / "slurm", options=LOCAL)([job])

    def preempt() -> None:
        wait_for(RunFolder(job.folder).checkpoint_path.exists)
        os.kill(holder(job.folder), signal.SIGUSR2)

    preemptor = threading.Thread(target=preempt)
    preemptor.start()
    ((_, outcome),) = outcomes
    preemptor.join()
    assert outcome.status == "done"
    starts = Journal(job.folder / "journal.jsonl").read("start")
    assert [line["batch"] > 0 for line in starts] == [False, True]


@pytest.mark.slow(seconds=15)
def test_sigterm_before_preemption_saves_and_the_run_is_queued_again(
    tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path
) -> None:
    """What Slurm sends first. No checkpoint is due: that there is one shows that the signal had it written."""
    job = make_job(tiny_config(train_per_class=120), checkpoint_seconds=3600.0)
    outcomes = slurm_executor(folder=tmp_path / "slurm", options=LOCAL)([job])

    def preempt() -> None:
        wait_for(lambda: Journal(job.folder / "journal.jsonl").read("train"))
        os.kill(holder(job.folder), signal.SIGTERM)
        wait_for(RunFolder(job.folder).checkpoint_path.exists)
        os.kill(holder(job.folder), signal.SIGUSR2)

    preemptor = threading.Thread(target=preempt, daemon=True)
    preemptor.start()
    ((_, outcome),) = outcomes
    preemptor.join(timeout=60)
    assert outcome.status == "done"
    starts = Journal(job.folder / "journal.jsonl").read("start")
    assert [line["batch"] > 0 for line in starts] == [False, True]


@pytest.mark.slow(seconds=15)
def test_sigterm_alone_does_not_end_a_run(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(tiny_config(train_per_class=40), checkpoint_seconds=0.0)
    outcomes = slurm_executor(folder=tmp_path / "slurm", options=LOCAL)([job])

    def terminate() -> None:
        wait_for(RunFolder(job.folder).checkpoint_path.exists)
        for _ in range(2):
            os.kill(holder(job.folder), signal.SIGTERM)

    terminator = threading.Thread(target=terminate, daemon=True)
    terminator.start()
    ((_, outcome),) = outcomes
    terminator.join(timeout=60)
    assert outcome.status == "done"
    assert len(Journal(job.folder / "journal.jsonl").read("start")) == 1


@pytest.mark.slow(seconds=15)
def test_closing_saves_what_is_running(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    done, long = make_job(tiny_config(method="er-fifo")), make_job(tiny_config(seed=1, train_per_class=ENDLESS))
    outcomes = slurm_executor(folder=tmp_path / "slurm", options=LOCAL)([done, long])
    assert next(outcomes)[0] == done
    wait_for(lambda: Journal(long.folder / "journal.jsonl").read("train"))
    outcomes.close()
    state = RunFolder(long.folder).load_checkpoint()
    assert state is not None
    assert state["done"] > 0


def test_a_job_is_requeued_unchanged(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    job = make_job(tiny_config())
    again = ResumableRun().checkpoint(job)
    assert again.args == (job,)


@pytest.mark.parametrize(
    ("options", "message"), [({"cluster": "moon"}, "moon"), ({"cluster": "local", "gpus": 1}, "gpus")]
)
def test_invalid_options_are_rejected(
    options: dict[str, str | int], message: str, tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        next(slurm_executor(folder=tmp_path / "slurm", options=options)([make_job(tiny_config())]))
