"""Runs in processes of this machine: several on the cores of a CPU, several on a GPU."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from climb.bench.executors.job import PATIENCE, Executor, Job, Outcome, Outcomes, run_job
from climb.bench.executors.slots import Slot, slots
from climb.lock import is_held


@dataclass(kw_only=True)
class Worker:
    """A process that lives for many runs: importing torch is paid once."""

    slot: Slot
    process: BaseProcess
    connection: Connection
    job: Job | None = None
    """What it is at."""


def local_executor(*, device: str = "auto", per_device: int | None = None, logs: Path | None = None) -> Executor:
    """Runs as many jobs at once as the machine has places for.

    Args:
        device: "auto", "cpu", "cuda" (all GPUs), "cuda:1".
        per_device: runs at once on each GPU (1 unless given), or on the CPU (one a core unless given).
        logs: folder for what the workers say; None lets them say it here.
    """
    places = slots(device, per_device)

    def run(jobs: Sequence[Job]) -> Outcomes:
        waiting = deque(jobs)
        workers = [_start(slot, number, logs) for number, slot in enumerate(places[: len(waiting)])]
        try:
            for worker in workers:
                _give(worker, waiting)
            while busy := {worker.connection: worker for worker in workers if worker.job is not None}:
                for ready in wait(list(busy)):
                    worker = busy[ready]  # type: ignore[index]
                    job, outcome = worker.job, _receive(worker)
                    if not worker.process.is_alive() and waiting:
                        number = workers.index(worker)
                        workers[number] = worker = _start(worker.slot, number, logs)
                    worker.job = None
                    _give(worker, waiting)
                    assert job is not None
                    yield job, outcome
        finally:
            _stop(workers)

    return run


def _start(slot: Slot, number: int, logs: Path | None) -> Worker:
    context = multiprocessing.get_context("spawn")  # a fork would share CUDA and torch's threads
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_work,
        args=(theirs, slot.threads, None if logs is None else logs / f"worker-{number}.log"),
        name=f"climb-worker-{number}",
        daemon=True,
    )
    process.start()
    theirs.close()  # so that the worker's end closes with the worker
    return Worker(slot=slot, process=process, connection=ours)


def _give(worker: Worker, waiting: deque[Job]) -> None:
    if waiting:
        # What another command is at comes last: the two would walk in step, each waiting for the other's run.
        worker.job = next((job for job in waiting if not is_held(job.lock)), waiting[0])
        waiting.remove(worker.job)
        execution = replace(worker.job.execution, device=worker.slot.device)
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is found out by `_receive`
            worker.connection.send(replace(worker.job, execution=execution))


def _receive(worker: Worker) -> Outcome:
    try:
        outcome: Outcome = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        code = worker.process.exitcode or 0
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Outcome(status="failed", error=f"its process died ({ended}); the same command continues the run")
    return outcome


def _stop(workers: Sequence[Worker]) -> None:
    """Have every run save its state and every worker end; kill what does not."""
    for worker in workers:
        worker.connection.close()  # an idle one leaves
        if worker.job is not None and worker.process.is_alive():
            worker.process.terminate()
    deadline = time.monotonic() + PATIENCE
    try:
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:  # reached on a second Ctrl-C too
        for worker in workers:
            if worker.process.is_alive():
                worker.process.kill()


# -- inside a worker -------------------------------------------------------------------------------------------------


def _work(connection: Connection, threads: int, log: Path | None) -> None:
    """Carry out jobs until there are no more."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C in the terminal reaches the parent alone, which then asks each run once
    if log is not None:
        _write_to(log)
    _stop_with_parent()
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            connection.send(run_job(connection.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _write_to(log: Path) -> None:
    """What is said here would tear the overview apart."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


def _stop_with_parent() -> None:
    """Where the parent was killed, the run saves its state and ends: the next command is not to find it running."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int = parent.sentinel) -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
