"""`climb bench`: a table or a figure of the paper, from its runs to its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from climb.config import Execution
from climb.errors import ClimbError, InputError


def bench(
    grids: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[GRID ...]")] = (),
    /,
    *,
    dataset: str = "cifar100",
    data: str | None = None,
    methods: tuple[str, ...] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    tasks: tuple[int, ...] = (),
    scale: Literal["full", "tiny"] = "full",
    preset: str = "paper",
    executor: Literal["local", "ray", "slurm"] = "local",
    per_device: int | None = None,
    address: str | None = None,
    slurm: tuple[str, ...] = (),
    device: str = "auto",
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto",
    engine: Literal["auto", "eager", "captured", "compiled"] = "auto",
    deterministic: bool = False,
    checkpoint_seconds: float = 60.0,
    against: Literal["paper"] | None = None,
    mix: bool = False,
    reuse: tuple[str, ...] = (),
    plan: bool = False,
    out: str | None = None,
) -> None:
    """Run the grids of the paper's tables and figures, and print them. Without a name: list the grids.

    The same command continues where it was stopped. Grids share their runs: a finished one is never repeated.

    Args:
        grids: one or more names, such as table-regular.
        dataset: which images (see: climb data).
        data: folder that holds the dataset; by default $CLIMB_DATA, then the cache.
        methods: only these methods, or others than the paper's (see: climb methods).
        seeds: how many seeds; by default as many as the paper has.
        first_seed: the first of them: other seeds than those that are done, or another machine's share.
        tasks: only these numbers of tasks, such as 20 50; by default the paper's.
        scale: full, or tiny: all rows and columns on a few small synthetic images, to rehearse.
        preset: paper (as printed), default (best measured), reference (the released code, faults included).
        executor: local (processes here), ray (a cluster), slurm (array jobs).
        per_device: runs at once on each GPU, or on the CPU; by default 1 a GPU, 1 a core.
        address: of a Ray cluster; by default one is started here and stopped at the end.
        slurm: parameters for the queue, such as slurm_partition=gpu gpus_per_node=1 timeout_min=600.
        device: auto, cpu, cuda (all GPUs), cuda:N or mps.
        precision: arithmetic of the networks; auto is bf16 on a capable GPU, float32 elsewhere.
        engine: eager, captured (the step as one CUDA graph) or compiled (torch.compile inside it); auto: by device.
        deterministic: bit-identical repetition on a GPU too.
        checkpoint_seconds: time between two checkpoints of a run.
        against: paper: also what the paper prints, and the difference.
        mix: print the table even where its runs differ in budget, probe or preset.
        reuse: folders that hold finished runs; those of equal configuration are taken, not repeated.
        plan: only say what there is to do.
        out: folder for runs, tables and figures; by default bench/DATASET-PRESET, or bench/tiny-PRESET.
    """
    from climb.bench.executors import Where, choose_executor
    from climb.bench.grids import GRIDS, Request, build_grid, describe
    from climb.bench.laboratory import carry_out
    from climb.bench.plan import make_plan, refreshed
    from climb.bench.publish import publish_each
    from climb.bench.render import render, terminal_table
    from climb.cli.where import kind_of_device, parallel_runs, queue_options

    console = Console(highlight=False, soft_wrap=True)
    if not grids:
        table = Table("grid", "what")
        for name in GRIDS:
            table.add_row(name, describe(name))
        console.print(table)
        console.print("run one: climb bench GRID --dataset cifar100; rehearse it: climb bench GRID --scale tiny")
        return
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds must be at least 1; given {seeds}")
    request = Request(
        dataset=dataset,
        methods=methods,
        seeds=tuple(range(first_seed, first_seed + seeds)) if seeds is not None else (),
        first_seed=first_seed,
        tasks=tasks,
        scale=scale,
        preset=preset,
    )
    chosen = [build_grid(name, request) for name in dict.fromkeys(grids)]
    folder = Path(out or Path("bench") / f"{'tiny' if scale == 'tiny' else dataset}-{preset}")
    where = Where(executor=executor, device=device, per_device=per_device, address=address, slurm=queue_options(slurm))
    carrier = choose_executor(where, folder)
    data_root = data if scale == "full" else None
    made = make_plan(chosen, folder, reuse=[Path(name) for name in reuse], data_root=data_root)
    console.print(", ".join(grid.name for grid in chosen), markup=False)
    if scale == "tiny":
        console.print(f"tiny: a few synthetic images in place of {dataset}, a small network: numbers mean nothing")
    console.print(made.describe(kind_of_device(where), parallel=parallel_runs(where)))
    execution = Execution(
        device=device,
        precision=precision,
        engine=engine,
        deterministic=deterministic,
        data_root=data_root,
        checkpoint_seconds=checkpoint_seconds,
    )
    if otherwise := made.made_otherwise(execution):
        console.print(otherwise)
    if plan:
        return
    report = carry_out(made.jobs(execution), carrier)
    made = refreshed(made)
    refused = []
    # A rehearsal's streams are so short that the first mini-batches, without replay, weigh in its budget.
    for grid, filled in publish_each(chosen, made, folder, against=against, mix=mix or scale == "tiny"):
        if isinstance(filled, InputError):
            refused.append(f"{grid.name}: {filled}")
            continue
        if console.is_terminal:
            console.print(terminal_table(filled))
        else:  # a log has no width to fold numbers into
            print(render(filled, "terminal"), end="")
        console.print(f"folder: {folder / grid.name}\n", markup=False)
    for label, error in report.failed:
        console.print(f"failed: {label}: {error}", markup=False)
    for label in report.unfinished:
        console.print(f"stopped: {label}", markup=False)
    if refused:
        raise ClimbError("; ".join(refused))  # not of bad input: the runs are there, and --mix prints them
    left = len(report.failed) + len(report.unfinished)
    if left:
        raise ClimbError(f"{left} of {len(made.runs)} runs are not finished; the same command tries them again")
