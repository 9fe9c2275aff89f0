"""What `climb bench` and `climb tune` share: where runs are executed, their plan, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from climb.cli.output import plain_console
from climb.errors import ClimbError, InputError
from climb.settings.config import Execution
from climb.settings.fields import pop_settings, setting

if TYPE_CHECKING:
    from climb.bench.executors import Where
    from climb.bench.grids import Grid
    from climb.bench.plan import Plan
    from climb.bench.scheduler import Report


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where the runs of a grid are executed."""

    executor: Literal["local", "ray", "slurm"] = setting("local")
    """Local processes, a Ray cluster, or array jobs on Slurm."""
    per_device: int | None = setting(None)
    """Runs at once on each GPU, or on the CPU; by default 1 per GPU, or 1 per core."""
    address: str | None = setting(None)
    """Address of a Ray cluster; by default, one is started here and stopped at the end."""
    slurm: tuple[str, ...] = setting(())
    """Parameters for the queue, such as slurm_partition=gpu gpus_per_node=1 timeout_min=600."""


def pop_execution(options: dict[str, Any]) -> tuple[Where, Execution]:
    """Take the `ExecutorOptions` and the `Execution` out of the typed options."""
    from climb.bench.executors import Where

    typed = pop_settings(ExecutorOptions, options)
    execution = pop_settings(Execution, options)
    return Where(**{**vars(typed), "device": execution.device, "slurm": queue_options(typed.slurm)}), execution


def queue_options(texts: Sequence[str]) -> dict[str, str | int]:
    """Parameters for Slurm; whole numbers become numbers.

    >>> queue_options(["slurm_partition=gpu", "timeout_min=600"])
    {'slurm_partition': 'gpu', 'timeout_min': 600}
    """
    options: dict[str, str | int] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise InputError(f"--slurm takes NAME=VALUE, such as slurm_partition=gpu; given '{text}'")
        options[name] = int(value) if value.isdecimal() else value
    return options


def run_grids(
    grids: Sequence[Grid],
    folder: Path,
    where: Where,
    execution: Execution,
    *,
    title: str,
    plan: bool,
    reuse: Sequence[str] = (),
    metric: str = "final_accuracy",
) -> tuple[Plan, Report] | None:
    """Print the plan of some grids and run them; None with ``plan``, which runs nothing.

    Args:
        grids: what to run.
        folder: where the runs go.
        where: executor and device.
        execution: options of each run.
        title: printed above the plan.
        plan: whether to print the plan only.
        reuse: folders of finished runs.
        metric: key of the result that the progress shows.
    """
    from climb.bench.executors import choose_executor
    from climb.bench.plan import make_plan
    from climb.bench.scheduler import run_jobs
    from climb.bench.timing import Stopwatch

    executor = choose_executor(where, folder)
    planned = make_plan(grids, folder, reuse=[Path(name) for name in reuse], data_root=execution.data_root)
    device, parallel = _speed_of(where)
    timed = Stopwatch(execution).seconds if plan else None
    description = planned.describe(device, parallel=parallel, timed=timed)
    lines = [title, description, planned.execution_differences(execution)]
    plain_console().print("\n".join(filter(None, lines)))
    return None if plan else (planned, run_jobs(planned.jobs(execution), executor, metric=metric))


def _speed_of(where: Where) -> tuple[str, int | None]:
    """The kind of device that runs will use, and how many proceed at full speed at once; None if a cluster decides.

    The kind is "cpu" or "cuda"; on a cluster, a guess from this machine. Runs that share a GPU count once.
    """
    from climb.bench.executors.local import gpus, slots

    found = gpus(where.device)
    on_gpus = found or where.device.startswith("cuda") or where.slurm.get("gpus_per_node")
    kind = "cuda" if on_gpus else where.device.replace("auto", "cpu")
    return kind, len(found) or len(slots(where.device, where.per_device)) if where.executor == "local" else None


def check_finished(report: Report, total: int, *, refused: Sequence[str] = ()) -> None:
    """Print the failed and the stopped runs. Fail if runs are missing, or tables were ``refused``."""
    lines = [f"failed: {label}: {error}" for label, error in report.failed]
    lines += [f"stopped: {label}" for label in report.unfinished]
    for line in lines:
        print(line)
    if refused:
        raise ClimbError("; ".join(refused))  # exit code 1: the input is fine, and --mix prints the runs
    if lines:
        raise ClimbError(f"{len(lines)} of {total} runs are not finished; the same command tries them again")
