"""Run jobs in processes of this machine: several on the cores of a CPU, several on a GPU."""

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
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from climb.bench.executors.job import PATIENCE, Executor, Job, Outcome, Outcomes, run_job
from climb.engine import resolve_device
from climb.files import is_held
from climb.precision import usable_cores


def slots(device: str, per_device: int | None) -> list[str]:
    """The devices of the runs at one time: the CPU once per core, or each GPU ``per_device`` times (1 by default).

    >>> slots("cpu", 2)
    ['cpu', 'cpu']
    """
    place = resolve_device(device).type  # rejects a device that this machine lacks
    if devices := gpus(device):
        return devices * (per_device or 1)
    return [place] * (per_device or (usable_cores() if place == "cpu" else 1))


def gpus(device: str) -> list[str]:
    """The CUDA devices that ``device`` names: all of them for "auto" and "cuda", none for "cpu"."""
    if device.startswith("cuda:"):
        return [device]
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] if device in ("auto", "cuda") else []


class Worker:
    """A process that runs many jobs, so that it imports torch only once.

    Args:
        device: where its jobs run.
        threads: CPU threads of a job on a GPU.
        log: file for its output.
    """

    job: Job | None = None
    """The job that it runs now."""

    def __init__(self, device: str, threads: int, log: Path) -> None:
        self.device, self.threads, self.log = device, threads, log
        context = multiprocessing.get_context("spawn")  # a fork would share CUDA and torch's threads
        self.connection, remote = context.Pipe()
        self.process = context.Process(target=_work, args=(remote, threads, log), daemon=True)
        self.process.start()
        remote.close()  # otherwise it would stay open after the worker ends


def local_executor(*, device: str = "auto", per_device: int | None = None, logs: Path) -> Executor:
    """Runs as many jobs at once as the machine has slots.

    Args:
        device: "auto", "cpu", "cuda" (all GPUs), "cuda:1".
        per_device: runs at once on each GPU (by default 1), or on the CPU (by default one per core).
        logs: folder for the output of the workers.
    """
    places = slots(device, per_device)
    threads = max(1, usable_cores() // len(places))

    def run(jobs: Sequence[Job]) -> Outcomes:
        waiting = deque(jobs)
        files = [logs / f"worker-{number}.log" for number in range(len(jobs))]
        workers = [Worker(place, threads, file) for place, file in zip(places, files, strict=False)]
        try:
            for worker in workers:
                _assign(worker, waiting)
            while busy := {worker.connection: worker for worker in workers if worker.job is not None}:
                for ready in wait(list(busy)):
                    worker = busy[ready]  # type: ignore[index]
                    job, outcome = worker.job, _receive(worker)
                    if not worker.process.is_alive() and waiting:
                        workers[workers.index(worker)] = worker = Worker(worker.device, worker.threads, worker.log)
                    worker.job = None
                    _assign(worker, waiting)
                    assert job is not None
                    yield job, outcome
        finally:
            _stop(workers)

    return run


def _assign(worker: Worker, waiting: deque[Job]) -> None:
    """Send the next job to a worker, if any."""
    if waiting:
        # Runs of another command come last: otherwise the two commands would wait for each other's runs in turn.
        worker.job = next((job for job in waiting if not is_held(job.lock)), waiting[0])
        waiting.remove(worker.job)
        execution = replace(worker.job.execution, device=worker.device)
        with contextlib.suppress(BrokenPipeError):  # `_receive` reports a worker that died at once
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
    """Let every run save its state and end every worker; kill those that take too long."""
    for worker in workers:
        worker.connection.close()  # ends an idle worker
        if worker.job is not None and worker.process.is_alive():
            worker.process.terminate()
    deadline = time.monotonic() + PATIENCE
    try:
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:  # also after a second Ctrl-C
        for worker in workers:
            if worker.process.is_alive():
                worker.process.kill()


# -- inside a worker -------------------------------------------------------------------------------------------------


def _work(connection: Connection, threads: int, log: Path) -> None:
    """Run jobs until the connection closes."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C in the terminal reaches only the parent, which stops each run once
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:  # on the terminal, output would disturb the live display
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            connection.send(run_job(connection.recv()))


def _stop_with_parent() -> None:
    """When the parent dies, save the run's state and end, so that the next command does not find it running."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
