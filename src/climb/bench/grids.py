"""Grids of runs: one for each table and figure of the paper, and one for the faults of the released code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal

from climb.bench.estimate import DATASET_SIZES
from climb.bench.layouts import CLIMB, LAYOUTS, Aspect, Layout, Metric, RowSpec, Settings, method_row
from climb.datasets import own_image_size
from climb.engine import IidChunks
from climb.errors import InputError, find_named
from climb.methods import check_config, find_method
from climb.resolve import PATHS, resolve, with_settings
from climb.settings.config import DataConfig, EvaluationConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.settings.presets import NETWORK
from climb.settings.recipes import get_recipe

IID_TASKS = 20
"""Evaluations of the i.i.d. bound at most. It has no tasks: one run serves every column."""

PAPER_MEMORY = MemoryConfig(stm_centroids=100, ltm_centroids=60)
"""The paper's N, L, K and M, given explicitly."""
TINY_MEMORY = MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=6, images_per_centroid=6, window=100)
"""Similar proportions, but so small that 100 images make it promote and prune."""
TINY_TASKS = {20: 2, 50: 4, 100: 5}
TINY_IMAGES = {"classes": 10, "train_per_class": 11, "test_per_class": 3}
OPTIONS = {".".join(path): name for name, path in PATHS.items()}
"""Dotted name of a setting to its option."""
Scale = Literal["full", "tiny"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a grid. The paper decides the rest."""

    dataset: str = "cifar100"
    """Name of the dataset (``climb data``)."""
    recipe: str | None = None
    """A named experiment in place of the dataset and the paper's network, memory and budget."""
    methods: tuple[str, ...] = ()
    """Only these methods; by default the paper's rows."""
    seeds: tuple[int, ...] = ()
    """Only these seeds; by default as many as in the paper, from ``first_seed`` on."""
    first_seed: int = 0
    """The first seed, unless ``seeds`` are given."""
    tasks: tuple[int, ...] = ()
    """Only these numbers of tasks; by default the paper's columns."""
    scale: Scale = "full"
    """"tiny" rehearses all rows and columns on a few small images."""
    preset: str = "paper"
    """A preset of `climb.settings.presets`."""
    repeats: int = 0
    """Runs of each place's first seed that differ only by rounding, for the repeat noise."""

    def __post_init__(self) -> None:
        """Reject invalid numbers."""
        if (tasks := min(self.tasks, default=1)) < 1:
            raise InputError(f"a stream has at least 1 task; given {tasks}")
        if (seed := min((self.first_seed, *self.seeds))) < 0:
            raise InputError(f"a seed is at least 0; given {seed}")
        if self.repeats < 0:
            raise InputError(f"repeats is at least 0; given {self.repeats}")

    def chosen_seeds(self, paper: int) -> tuple[int, ...]:
        """The requested seeds, or as many as in the paper. A rehearsal has two at most.

        >>> Request(scale="tiny").chosen_seeds(20)
        (0, 1)
        >>> Request(first_seed=5).chosen_seeds(3)
        (5, 6, 7)
        """
        count = min(paper, 2) if self.scale == "tiny" else paper
        return self.seeds or tuple(range(self.first_seed, self.first_seed + count))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run of a grid. Entries of equal configurations share the run."""

    row: str
    """Label of its row in the layout."""
    column: str
    """Label of its column."""
    config: RunConfig

    @cached_property
    def key(self) -> str:
        """The configuration hash."""
        return self.config.config_hash()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table or a figure before its runs."""

    layout: Layout
    entries: tuple[Entry, ...]
    repeats: tuple[Entry, ...] = ()
    """Runs that differ from an entry only by rounding."""

    @property
    def name(self) -> str:
        """The grid's name: "table-regular"."""
        return self.layout.name


_metric = partial(Metric, digits=0, higher_is_better=None)
_FIGURES = (
    replace(
        LAYOUTS["table-regular"],
        name="figure-wallclock",
        title="Wall-clock time",
        description="Time of each method, from the runs of table-regular.",
        rows=tuple(row for row in LAYOUTS["table-regular"].rows if row.kind == "method"),
        metrics=(
            _metric(key="seconds.total", label="minutes", digits=2, scale=1 / 60),
            _metric(key="seconds.train", label="of them training", digits=2, scale=1 / 60),
        ),
        note="times as they were: a run that shared its device took longer than it would alone",
    ),
    Layout(
        name="figure-dynamics",
        title="Dynamics of the memory",
        description="CLIMB's memory over one run.",
        rows=(CLIMB,),
        columns=("20 tasks",),
        metrics=(
            _metric(key="stored_images", label="stored images"),
            _metric(key="memory.promoted", label="promotions"),
            _metric(key="memory.merged", label="merges"),
            _metric(key="memory.pruned", label="prunes"),
            _metric(key="memory.threshold", label="threshold", digits=3),
        ),
        seeds=1,
    ),
    replace(
        LAYOUTS["table-irregular"],
        name="figure-irregular",
        description="Accuracy over the stream with tasks of random size: the runs of table-irregular.",
        printed_in="table-irregular",
    ),
)
GRIDS: dict[str, Layout] = {**LAYOUTS, **{layout.name: layout for layout in _FIGURES}}
"""The layout of each grid."""


def describe(name: str) -> str:
    """One line about a grid."""
    return GRIDS[name].description


def build_grid(name: str, request: Request) -> Grid:
    """The grid called ``name``: its layout cut to the request, and the run of every place.

    >>> grid = build_grid("table-regular", Request(methods=("climb",)))
    >>> len(grid.entries), grid.layout.columns
    (15, ('20 tasks', '50 tasks', '100 tasks'))
    """
    layout = find_named("grid", name, GRIDS)
    if name == "table-faults" and request.preset == "reference":
        raise InputError("table-faults adds one fault at a time, but preset reference has them all; choose another")
    rows = chosen_rows(request, layout)
    tasks = tuple(dict.fromkeys(request.tasks)) or tuple(int(label.split()[0]) for label in layout.columns)
    entries = []
    columns = {number: f"{number} task{'s' if number > 1 else ''}" for number in tasks}
    recipe = None if request.recipe is None else get_recipe(request.recipe, preset=request.preset)
    own_stream = recipe is not None and recipe.stream.kind not in ("regular", "irregular")
    if recipe is not None and own_stream:
        if request.tasks:
            raise InputError(f"recipe {request.recipe} has a {recipe.stream.kind} stream; leave --tasks out")
        tasks = (recipe.stream.tasks,)
        columns = {recipe.stream.tasks: recipe.stream.kind}
    for row in rows:
        where, bound = {**layout.where}, find_method(row.method).uses("batch", IidChunks)
        if bound or own_stream:
            where.pop("stream.kind", None)  # no tasks, so no irregular ones
        for number, seed in product(tasks, request.chosen_seeds(layout.seeds)):
            own = min(IID_TASKS, max(tasks)) if bound and not own_stream else number
            config = configure(request, row, seed=seed, tasks=own, where=where)
            entries.append(Entry(row=row.label, column=columns[number], config=config))
    for learner in {entry.config.learner for entry in entries}:
        check_config(learner)  # before the first run starts
    # A preset that evaluates teachers evaluates the student of a method without one.
    varies: tuple[Aspect, ...] = ("networks evaluated",) if NETWORK[request.preset] == "teacher" else ()
    layout = replace(layout, rows=rows, columns=tuple(columns.values()), varies=(*layout.varies, *varies))
    if recipe is not None and (capacity := recipe.learner.memory.capacity) != PAPER_MEMORY.capacity:
        scaled = f"recipe {request.recipe}: sizes of memories are the paper's times {capacity}/{PAPER_MEMORY.capacity}"
        layout = replace(layout, note="; ".join(filter(None, [layout.note, scaled])))
    first = {(entry.row, entry.column): entry for entry in reversed(entries)}
    repeats = [
        replace(entry, config=replace(entry.config, repeat=repeat))
        for entry in first.values()
        if layout.row(entry.row).kind == "method"
        for repeat in range(1, request.repeats + 1)
    ]
    return Grid(layout=layout, entries=tuple(entries), repeats=tuple(repeats))


def configure(
    request: Request, row: RowSpec = CLIMB, *, seed: int, tasks: int, where: Settings | None = None
) -> RunConfig:
    """One run of a grid.

    Args:
        request: dataset, scale, preset.
        row: method and settings, with memory sizes at full scale.
        seed: the seed.
        tasks: number of tasks at full scale.
        where: the settings of all rows.

    >>> configure(Request(), seed=0, tasks=20).learner.memory.short_term
    100
    """
    config = _base(request, tasks)
    settings = {**(where or {}), **row.where}
    values = {OPTIONS[name]: _scaled(config.learner, name, value) for name, value in settings.items()}
    asked = {"preset": request.preset, "objective": "simclr", **values, "method": row.method}
    config = resolve(config, {name: asked[name] for name in ("preset", "objective", "method")}, own_rates=row.own_rates)
    # Afterwards, because `resolve` scales the centroids with a given capacity.
    return with_settings(config, {"seed": seed, **values})


def chosen_rows(request: Request, layout: Layout) -> tuple[RowSpec, ...]:
    """The paper's rows, or the requested ones: in the paper's order, then methods that its table lacks.

    >>> [row.label for row in chosen_rows(Request(methods=("lump", "climb")), LAYOUTS["table-regular"])]
    ['CLIMB', 'lump']
    """
    if not request.methods:
        return layout.rows
    known = {row.method for row in layout.rows}
    if len(known) == 1 < len(layout.rows) and {*request.methods} != known:
        methods = " ".join(request.methods)
        raise InputError(f"the rows of {layout.name} are settings of climb; given --methods {methods}: leave it out")
    added = [name for name in dict.fromkeys(request.methods) if name not in known]
    kept = (row for row in layout.rows if row.method in request.methods)
    return (*kept, *(method_row(name, label=name, where={}) for name in added))


def _base(request: Request, tasks: int) -> RunConfig:
    """Dataset, stream, network and sizes of a grid's runs, before rows and presets."""
    if request.scale == "tiny":
        return _tiny(request, tasks)
    if request.recipe is None:
        return _full(request, tasks)
    config = get_recipe(request.recipe, preset=request.preset)
    _check_tasks(config.data.dataset, tasks)
    return replace(config, stream=replace(config.stream, tasks=tasks))


def _check_tasks(dataset: str, tasks: int) -> None:
    classes = DATASET_SIZES.get(dataset, (tasks,))[0]
    if tasks > classes:
        raise InputError(f"{dataset} has {classes} classes, and a task at least one; given {tasks} tasks")


def _full(request: Request, tasks: int) -> RunConfig:
    side = own_image_size(request.dataset)
    _check_tasks(request.dataset, tasks)
    return RunConfig(
        recipe=f"{request.dataset}-{tasks}",
        data=DataConfig(dataset=request.dataset),
        stream=StreamConfig(tasks=tasks),
        learner=LearnerConfig(backbone="resnet18", image_size=side, memory=PAPER_MEMORY),
    )


def _tiny(request: Request, tasks: int) -> RunConfig:
    own_image_size(request.dataset)  # rejects an unknown name
    return RunConfig(
        recipe=f"tiny-{tasks}",
        data=DataConfig(dataset="synthetic", image_size=16, options=dict(TINY_IMAGES)),
        stream=StreamConfig(tasks=TINY_TASKS.get(tasks, min(tasks, TINY_IMAGES["classes"]))),
        learner=LearnerConfig(backbone="micro", image_size=16, replay_batch=16, memory=TINY_MEMORY),
        evaluation=EvaluationConfig(epochs=10),
    )


def _scaled(learner: LearnerConfig, name: str, value: Any) -> Any:
    """A setting at the scale of a learner: sizes of memories in proportion to those of its own."""
    field = name.removeprefix("learner.memory.")
    if name == field or not isinstance(value, int):
        return value
    memory = learner.memory
    own = {"stm_centroids": memory.short_term, "ltm_centroids": memory.long_term}
    least = 2 * learner.replay_batch if field == "capacity" else 1
    return max(least, round(value * own.get(field, getattr(memory, field)) / getattr(PAPER_MEMORY, field)))
