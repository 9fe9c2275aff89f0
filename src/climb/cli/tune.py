"""`climb tune`: which settings do best on held-out images?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from climb.config import Execution
from climb.errors import ClimbError, InputError
from climb.files import write_json


def tune(
    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE]")] = "demo",
    /,
    *,
    over: tuple[str, ...] = (),
    method: str | None = None,
    objective: str | None = None,
    tasks: int | None = None,
    data: str | None = None,
    seeds: int = 1,
    preset: str = "paper",
    executor: Literal["local", "ray", "slurm"] = "local",
    per_device: int | None = None,
    address: str | None = None,
    slurm: tuple[str, ...] = (),
    device: str = "auto",
    plan: bool = False,
    out: str | None = None,
) -> None:
    """Run every combination of some settings; rank them by accuracy on images held out of training.

    Test images have no part in the ranking. The same command continues where it was stopped.

    Args:
        recipe: a named experiment (see: climb recipes).
        over: settings and their values, such as lr=0.03,0.1,0.3 lambda=0.5,1,2.
        method: another method than the recipe's (see: climb methods).
        objective: simclr, simsiam, byol, barlow-twins, vicreg, osiris or scale.
        tasks: another number of tasks than the recipe's.
        data: folder that holds the dataset; by default $CLIMB_DATA, then the cache.
        seeds: how many seeds, from 0; the ranking is by their mean.
        preset: paper (as printed), default (best measured), reference (the released code, faults included).
        executor: local (processes here), ray (a cluster), slurm (array jobs).
        per_device: runs at once on each GPU, or on the CPU; by default 1 a GPU, 1 a core.
        address: of a Ray cluster; by default one is started here and stopped at the end.
        slurm: parameters for the queue, such as slurm_partition=gpu gpus_per_node=1 timeout_min=600.
        device: auto, cpu, cuda (all GPUs), cuda:N or mps.
        plan: only say what there is to do.
        out: folder for the runs and the ranking; by default bench/tune-RECIPE-METHOD-PRESET.
    """
    from climb.bench.executors import Where, choose_executor
    from climb.bench.laboratory import carry_out
    from climb.bench.plan import make_plan
    from climb.bench.tuning import METRIC, parse_over, rank, say_setting, tuning_grid
    from climb.cli.where import kind_of_device, parallel_runs, queue_options
    from climb.runs import experiment

    if seeds < 1:
        raise InputError(f"--seeds must be at least 1; given {seeds}")
    values = parse_over(over)
    config = experiment(recipe, method=method, objective=objective, tasks=tasks, preset=preset)
    grid = tuning_grid(config, values, range(seeds))
    folder = Path(out or Path("bench") / f"tune-{recipe}-{config.learner.method}-{preset}")
    where = Where(executor=executor, device=device, per_device=per_device, address=address, slurm=queue_options(slurm))
    carrier = choose_executor(where, folder)
    made = make_plan([grid], folder, data_root=data)
    console = Console(highlight=False, soft_wrap=True)
    many = len(grid.layout.rows)
    console.print(f"{many} combination{'s' if many != 1 else ''} of {', '.join(values)}", markup=False)
    console.print(made.describe(kind_of_device(where), parallel=parallel_runs(where)))
    if plan:
        return
    report = carry_out(made.jobs(Execution(device=device, data_root=data)), carrier, metric=METRIC)
    ranking = rank(grid, made, values)
    write_json(
        folder / "ranking.json",
        {
            "format_version": 1,
            "recipe": recipe,
            "method": config.learner.method,
            "preset": preset,
            "objective": config.learner.objective,
            "tasks": config.stream.tasks,
            "metric": METRIC,
            "over": {name: list(found) for name, found in values.items()},
            "ranking": [asdict(one) for one in ranking],
        },
    )
    table = Table("rank", "settings", "validation accuracy", "seeds")
    for place, one in enumerate(ranking, 1):
        accuracy = "" if one.validation_accuracy is None else f"{one.validation_accuracy:.2f}"
        table.add_row(str(place), say_setting(one.settings), accuracy, str(one.seeds))
    console.print(table)
    console.print(f"folder: {folder} (ranking.json)", markup=False)
    for label, error in report.failed:
        console.print(f"failed: {label}: {error}", markup=False)
    left = len(report.failed) + len(report.unfinished)
    if left:
        raise ClimbError(f"{left} of {len(made.runs)} runs are not finished; the same command tries them again")
