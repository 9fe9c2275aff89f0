"""`climb bench`: a table or a figure of the paper. `climb tune`: which settings do best on held-out images?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from climb.cli.executors import ExecutorOptions, check_finished, pop_execution, run_grids
from climb.cli.options import options_of, with_settings
from climb.cli.output import print_table
from climb.cli.pages import print_filled
from climb.errors import InputError
from climb.files import write_json
from climb.settings.config import Execution, LearnerConfig, StreamConfig
from climb.settings.fields import pop_settings, setting


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Rows, columns and seeds of a grid."""

    dataset: str = setting("cifar100", names="dataset")
    """Dataset (``climb data``)."""
    methods: tuple[str, ...] = setting((), names="method")
    """Only these methods, or others than the paper's (``climb methods``)."""
    seeds: int | None = setting(None, least=1)
    """Number of seeds; by default as many as in the paper."""
    first_seed: int = setting(0)
    """First seed, for seeds that are not done yet, or another machine's share."""
    tasks: tuple[int, ...] = setting(())
    """Only these numbers of tasks, such as 20 50; by default the paper's."""
    scale: Literal["full", "tiny"] = setting("full")
    """full, or tiny: a rehearsal of all rows and columns on a few small synthetic images."""
    preset: str = setting("paper", names="preset")
    """Version of the settings: paper (as printed), default (best measured), reference (the released code with its
    faults)."""


@with_settings(
    grid=options_of(GridOptions),
    executor=options_of(ExecutorOptions),
    execution=options_of(Execution, without=["keep"]),
)
def bench(
    grids: tuple[str, ...] = (),
    /,
    *,
    against: Literal["paper"] | None = None,
    mix: bool = False,
    reuse: tuple[str, ...] = (),
    plan: bool = False,
    out: str | None = None,
    **options: Any,
) -> None:
    """Run the grids of the paper's tables and figures, and print them. Without a name: list the grids.

    The same command continues where it was stopped. Grids share their runs: a finished one is never repeated.

    Args:
        grids: one or more names, such as table-regular.
        against: paper: also print the paper's numbers, and the differences.
        mix: print the table even if its runs differ in budget, probe or preset.
        reuse: folders of finished runs; those with an equal configuration are not repeated.
        plan: only print what there is to do.
        out: folder for runs, tables and figures; by default bench/DATASET-PRESET, or bench/tiny-PRESET.
    """
    from climb.bench.grids import GRIDS, Request, build_grid, describe
    from climb.bench.scheduler import publish_each

    if not grids:
        print_table(("grid", "what"), ((name, describe(name)) for name in GRIDS))
        print("run one: climb bench GRID --dataset cifar100; rehearse it: climb bench GRID --scale tiny")
        return
    asked = pop_settings(GridOptions, options)
    seeds = tuple(range(asked.first_seed, asked.first_seed + (asked.seeds or 0)))
    request = Request(**{**vars(asked), "seeds": seeds})
    chosen = [build_grid(name, request) for name in dict.fromkeys(grids)]
    title = ", ".join(grid.name for grid in chosen)
    tiny = asked.scale == "tiny"
    if tiny:
        title += f"\ntiny: a few synthetic images in place of {asked.dataset}, a small network: no real numbers"
        options.pop("data", None)
    folder = Path(out or Path("bench") / f"{'tiny' if tiny else asked.dataset}-{asked.preset}")
    finished = run_grids(chosen, folder, *pop_execution(options), title=title, plan=plan, reuse=reuse)
    if finished is None:
        return
    planned, report = finished
    refused = []
    # A rehearsal's streams are so short that the first mini-batches, without replay, weigh in its budget.
    for grid, filled in publish_each(chosen, planned.refreshed(), folder, against=against, mix=mix or tiny):
        if isinstance(filled, InputError):
            refused.append(f"{grid.name}: {filled}")
        else:
            print_filled(filled)
            print(f"folder: {folder / grid.name}\n")
    check_finished(report, len(planned.runs), refused=refused)


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The search."""

    over: tuple[str, ...] = setting((), names="tunable")
    """Settings and their values, such as lr=0.03,0.1,0.3 alignment_weight=0.5,1,2; or the paper's symbols, such as
    lambda=0.5,1,2."""
    seeds: int = setting(1, least=1)
    """Number of seeds, from 0; combinations are ranked by their mean."""


@with_settings(
    search=options_of(TuneOptions),
    learner=options_of(LearnerConfig, only=["method", "objective", "preset", "backbone", "weights", "image_size"]),
    stream=options_of(StreamConfig, only=["tasks"]),
    executor=options_of(ExecutorOptions),
    execution=options_of(Execution, only=["data", "device", "imports"]),
)
def tune(recipe: str = "demo", /, *, plan: bool = False, out: str | None = None, **options: Any) -> None:
    """Run every combination of some settings; rank them by accuracy on images held out of training.

    Test images do not enter the ranking. The same command continues where it was stopped. The preset is paper unless
    given.

    Args:
        recipe: a named experiment (climb recipes).
        plan: only print what there is to do.
        out: folder for the runs and the ranking; by default bench/tune-RECIPE-METHOD-PRESET.
    """
    from climb.bench.tuning import METRIC, parse_over, rank, say_setting, tuning_grid
    from climb.session import experiment

    search = pop_settings(TuneOptions, options)
    values = parse_over(search.over)
    where, execution = pop_execution(options)
    config = experiment(recipe, **{"preset": "paper", **options})
    grid = tuning_grid(config, values, range(search.seeds))
    learner = config.learner
    folder = Path(out or Path("bench") / f"tune-{recipe}-{learner.method}-{learner.preset}")
    many = len(grid.layout.rows)
    title = f"{many} combination{'s' if many != 1 else ''} of {', '.join(values)}"
    finished = run_grids([grid], folder, where, execution, title=title, plan=plan, metric=METRIC)
    if finished is None:
        return
    planned, report = finished
    ranking = rank(grid, planned, values)
    write_json(
        folder / "ranking.json",
        {
            "format_version": 1,
            "recipe": recipe,
            **{name: getattr(learner, name) for name in ("method", "preset", "objective")},
            "tasks": config.stream.tasks,
            "metric": METRIC,
            "over": {name: list(tried) for name, tried in values.items()},
            "ranking": [asdict(one) for one in ranking],
        },
    )
    accuracies = ["" if one.validation_accuracy is None else f"{one.validation_accuracy:.2f}" for one in ranking]
    rows = [
        (str(place), say_setting(one.settings), accuracy, str(one.seeds))
        for place, (one, accuracy) in enumerate(zip(ranking, accuracies, strict=True), 1)
    ]
    print_table(("rank", "settings", "validation accuracy", "seeds"), rows)
    print(f"folder: {folder} (ranking.json)")
    check_finished(report, len(planned.runs))


VERBS = ("bench", "tune")
