"""The local executor: parallel processes, and recovery after one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from watching import ENDLESS, holder, wait_for, without_seconds

from climb.bench.executors import ExecutorName, Job, Where, choose_executor, run_job
from climb.bench.executors.local import _assign, local_executor, slots
from climb.bench.grids import Request, build_grid
from climb.bench.plan import make_plan
from climb.errors import InputError
from climb.files import only_one
from climb.precision import usable_cores
from climb.runs import Journal, RunFolder
from climb.settings.config import RunConfig

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]


def test_slots() -> None:
    assert slots("cpu", None) == ["cpu"] * usable_cores()
    assert slots("cpu", 3) == ["cpu"] * 3
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        slots("gpu", None)


@pytest.mark.slow(seconds=25)
def test_two_at_once_equal_one_after_the_other(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    jobs = [make_job(tiny_config(method="er-fifo", seed=seed)) for seed in (0, 1)]
    outcomes = list(local_executor(device="cpu", per_device=2, logs=tmp_path / "logs")(jobs))
    assert [outcome.status for _, outcome in outcomes] == ["done", "done"]
    alone = make_job(jobs[0].config, out=tmp_path / "alone")
    run_job(alone)
    assert without_seconds(jobs[0].folder) == without_seconds(alone.folder)
    assert all("after task 2" in path.read_text() for path in (tmp_path / "logs").iterdir())


@pytest.mark.slow(seconds=40)
def test_a_killed_worker_fails_only_its_run_which_resumes(
    tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path
) -> None:
    jobs = [
        make_job(tiny_config(seed=seed, train_per_class=30 if seed == 0 else 11), checkpoint_seconds=0.0)
        for seed in (0, 1, 2)
    ]
    victim = jobs[0]

    def kill() -> None:
        wait_for(RunFolder(victim.folder).checkpoint_path.exists)
        os.kill(holder(victim.folder), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    executor = local_executor(device="cpu", per_device=1, logs=tmp_path / "logs")
    outcomes = {job.folder: outcome for job, outcome in executor(jobs)}
    killer.join()
    assert [outcomes[job.folder].status for job in jobs] == ["failed", "done", "done"]
    assert "SIGKILL" in outcomes[victim.folder].error
    ((_, outcome),) = executor([victim])
    assert outcome.status == "done"
    starts = Journal(victim.folder / "journal.jsonl").read("start")
    assert [line["batch"] > 0 for line in starts] == [False, True]


@pytest.mark.slow(seconds=25)
def test_closing_saves_what_is_running(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    """As Ctrl-C does: the run has no checkpoint yet, and is asked for one."""
    jobs = [make_job(tiny_config(seed=seed, train_per_class=count)) for seed, count in ((0, ENDLESS), (1, 11))]
    outcomes = local_executor(device="cpu", per_device=2, logs=tmp_path / "logs")(jobs)
    job, _ = next(outcomes)
    assert job == jobs[1]
    wait_for(lambda: Journal(jobs[0].folder / "journal.jsonl").read("train"))
    outcomes.close()
    state = RunFolder(jobs[0].folder).load_checkpoint()
    assert state is not None
    assert state["done"] > 0


BENCH = ("bench", "table-pruning", "--scale", "tiny", "--device", "cpu", "--per-device", "2")


@pytest.mark.slow(seconds=60)
def test_a_stopped_and_killed_grid_repeats_no_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "climb", *BENCH, "--out", str(tmp_path), "--checkpoint-seconds", "0"]
    finished: dict[Path, int] = {}

    def results() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/result.json")}

    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        before = len(finished)
        bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda before=before: len(results()) > before)  # type: ignore[misc]
            bench.send_signal(number)
            assert bench.wait(600) == code
        finally:
            bench.kill()
        assert finished.items() <= results().items()
        finished = results()
        assert before < len(finished) < 8
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    # A worker whose parent was killed may finish its run meanwhile: at least these are not done again.
    assert "8 runs (" in again.stdout
    assert len(results()) == 8
    assert finished.items() <= results().items()
    for form in ("md", "tex", "csv", "html"):
        assert (tmp_path / "table-pruning" / f"table.{form}").stat().st_size > 0
    assert "Anchor" in again.stdout
    plan = make_plan([build_grid("table-pruning", Request(scale="tiny"))], tmp_path)
    assert plan.describe("cpu") == "8 runs (8 done), 0 to do"


def test_a_job_gets_the_device_of_its_worker(
    tiny_config: Callable[..., RunConfig], make_job: Callable[..., Job]
) -> None:
    sent: list[Job] = []
    connection, job = SimpleNamespace(send=sent.append), make_job(tiny_config())
    worker = SimpleNamespace(device="cuda:1", connection=connection, job=None)
    _assign(worker, deque([job]))  # type: ignore[arg-type]
    assert sent[0].execution.device == "cuda:1"
    assert worker.job is job


def test_jobs_of_another_command_come_last(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    first, second = jobs = [make_job(tiny_config(seed=seed)) for seed in (0, 1)]
    worker = SimpleNamespace(device="cpu", connection=SimpleNamespace(send=lambda job: None))
    waiting, given = deque(jobs), []
    first.lock.parent.mkdir(parents=True)
    with only_one(first.lock):
        for _ in jobs:
            _assign(worker, waiting)  # type: ignore[arg-type]
            given.append(worker.job)
    assert given == [second, first]  # at last it is waited for
    assert not waiting


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_a_device_holds_at_least_one_run(executor: ExecutorName, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--per-device must be at least 1; given 0"):
        choose_executor(Where(executor=executor, per_device=0), tmp_path)


def test_ray_rejects_a_device_number(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="cuda:1 names one GPU of this machine, but Ray assigns GPUs to runs; give cuda"
    ):
        choose_executor(Where(executor="ray", device="cuda:1"), tmp_path)
