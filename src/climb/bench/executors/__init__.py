"""What carries out the runs of a grid: processes of this machine, a Ray cluster, or Slurm. All run the same code."""

from __future__ import annotations

from climb.bench.executors.choose import EXECUTORS, ExecutorName, Where, choose_executor
from climb.bench.executors.job import Executor, Job, Outcome, run_job

__all__ = ["EXECUTORS", "Executor", "ExecutorName", "Job", "Outcome", "Where", "choose_executor", "run_job"]
