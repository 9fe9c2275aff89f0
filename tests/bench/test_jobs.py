"""One run of a grid: done once, continued, or failed with its error beside it."""

from __future__ import annotations

import json
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
from climb.config import RunConfig
from climb.engine import Engine
from climb.lock import only_one
from climb.runs import Interrupted

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]


def test_a_finished_run_is_not_repeated(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    job = make_job(tiny_config(method="er-fifo"))
    assert run_job(job) == Outcome(status="done")
    before = (job.folder / "result.json").stat().st_mtime_ns
    assert run_job(job) == Outcome(status="done")
    assert (job.folder / "result.json").stat().st_mtime_ns == before
    assert json.loads((job.folder / "result.json").read_text())["config_hash"] == job.config.config_hash()


def test_a_failure_is_written_beside_the_run_and_forgotten_when_it_works(
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


def test_bad_input_can_be_mended(tiny_config: MakeConfig, make_job: MakeJob, tmp_path: Path) -> None:
    """The error of a run that never began does not make its folder somebody else's."""
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


def test_a_run_that_was_asked_to_stop_when_it_was_done_is_done(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.runs.run.draw_plots", lambda *arguments: os.kill(os.getpid(), signal.SIGTERM))
    job = make_job(tiny_config(method="er-fifo"))
    assert run_job(job) == Outcome(status="done")
    assert (job.folder / "result.json").exists()


def test_a_run_on_the_cpu_has_one_thread_and_gives_the_others_back(tiny_config: MakeConfig, make_job: MakeJob) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        job = make_job(tiny_config(method="er-fifo"))
        run_job(job)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    result = json.loads((job.folder / "result.json").read_text())
    assert "1 threads" in result["versions"]["device_name"]


def test_a_run_that_another_process_has_is_waited_for(
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
