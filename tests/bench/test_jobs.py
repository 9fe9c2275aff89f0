"""One run of a grid: finished, resumed, or failed with its error in a file."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from climb.bench.executors import Job, Outcome, run_job
from climb.bench.executors import job as executors_job
from climb.bench.executors.local import local_executor
from climb.engine import Engine
from climb.files import only_one, write_text
from climb.methods import METHODS
from climb.runs.run_file_checks import read_object
from climb.session import Interrupted
from climb.settings.config import RunConfig

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]


def test_a_finished_run_is_not_repeated(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    job = make_job(tiny_config(method="er-fifo"))
    assert run_job(job) == Outcome(status="done")
    before = (job.folder / "result.json").stat().st_mtime_ns
    assert run_job(job) == Outcome(status="done")
    assert (job.folder / "result.json").stat().st_mtime_ns == before
    assert read_object(job.folder / "result.json")["config_hash"] == job.config.config_hash()


def test_an_error_is_written_and_deleted_after_a_success(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tiny_config(method="er-fifo"))

    def fails(self: Engine, images: object) -> None:
        raise MemoryError("the machine is full")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "observe", fails)
        assert run_job(job) == Outcome(status="failed", error="MemoryError: the machine is full")
    said = (job.folder / "error.txt").read_text()
    assert "Traceback" in said
    assert said.endswith("MemoryError: the machine is full\n")
    assert run_job(job).status == "done"
    assert not (job.folder / "error.txt").exists()


def test_an_error_is_written_while_the_job_is_locked(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process deletes the error of the first one. Written later, it would count as a foreign file."""
    job = make_job(tiny_config(method="er-fifo"))
    lock = job.folder.parent / f".{job.folder.name}.lock"
    held: list[bool] = []

    def noted(path: Path, text: str) -> None:
        with open(lock, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(True)
        write_text(path, text)

    def fails(*arguments: object) -> None:
        raise MemoryError("the machine is full")

    monkeypatch.setattr(executors_job, "write_text", noted)
    monkeypatch.setattr(executors_job, "execute", fails)
    assert run_job(job).status == "failed"
    assert held == [True]


def test_a_half_written_error_is_deleted(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    job = make_job(tiny_config(method="er-fifo"))
    write_text(job.folder / "error.txt", "no")
    (job.folder / "error.txt").rename(job.folder / ".error.txt.0123456789abcdef0123456789abcdef.tmp")
    assert run_job(job) == Outcome(status="done")


def test_a_run_with_bad_input_can_be_repeated(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    """The error of a run that never began leaves its folder usable."""
    config = tiny_config(method="er-fifo")
    config = replace(config, data=replace(config.data, dataset="folder", options={}))
    job = make_job(config)
    job = replace(job, execution=replace(job.execution, data_root=str(tmp_path / "nowhere")))
    for _ in range(2):
        outcome = run_job(job)
        assert outcome.status == "failed"
        assert "nowhere" in outcome.error
        assert "Traceback" not in (job.folder / "error.txt").read_text()
        assert "not empty" not in outcome.error


def test_an_interruption_is_no_failure(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: Engine, images: object) -> None:
        raise Interrupted

    monkeypatch.setattr(Engine, "observe", stopped)
    job = make_job(tiny_config(method="er-fifo"))
    assert run_job(job) == Outcome(status="interrupted")
    assert not (job.folder / "error.txt").exists()


def test_a_stop_request_after_the_end_is_a_success(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.session.results.draw_plots", lambda *arguments: os.kill(os.getpid(), signal.SIGTERM))
    job = make_job(tiny_config(method="er-fifo"))
    assert run_job(job) == Outcome(status="done")
    assert (job.folder / "result.json").exists()


def test_a_run_on_the_cpu_has_one_thread(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        job = make_job(tiny_config(method="er-fifo"))
        run_job(job)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    result = read_object(job.folder / "result.json")
    assert "1 threads" in result["versions"]["device_name"]


def test_a_job_waits_for_another_process(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, order = make_job(tiny_config()), []
    monkeypatch.setattr("climb.bench.executors.job.execute", lambda config, execution, folder: order.append("second"))
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(job.folder.parent / f".{job.folder.name}.lock"):
        waiting = threading.Thread(target=run_job, args=(job,))
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    assert not job.folder.exists()  # a run must find its folder empty


def test_a_worker_imports_the_parts_of_a_job(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    """The method is registered by a file, in the process of the worker only."""
    config = tiny_config()
    job = make_job(replace(config, learner=replace(config.learner, method="minred-targets")))
    own, missing = Path(__file__).parents[2] / "examples" / "own_method.py", tmp_path / "missing.py"
    run = local_executor(device="cpu", per_device=1, logs=tmp_path / "logs")

    def importing(file: Path) -> Job:
        return replace(job, execution=replace(job.execution, imports=(str(file),)))

    ((_, failed),) = run([importing(missing)])
    assert failed.status == "failed"
    assert f"cannot import '{missing}'" in failed.error
    ((_, done),) = run([importing(own)])
    assert done == Outcome(status="done")
    assert "minred-targets" not in METHODS
