"""The layouts of the paper's tables: rows, columns and metrics. Labels are those of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from climb.errors import find_named
from climb.settings.presets import FAULTS

Aspect = Literal["presets", "networks evaluated", "memory capacities", "memory bounds"]
Settings = Mapping[str, object]
"""Values by dotted name in a run's configuration: ``{"learner.memory.capacity": 2500}``."""

CellKey = tuple[str, str, str]
"""Row label, column label, metric label."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a run that a table shows."""

    key: str
    """Dotted name in `result.json`: ``diversity.vendi_score``."""
    label: str
    """Heading: "CA", "FA"."""
    digits: int = 2
    """Decimals shown."""
    higher_is_better: bool | None = True
    """None: there is no better, so nothing is bold."""
    scale: float = 1.0
    """Factor for display (seconds to hours)."""


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """A row of a table."""

    label: str
    method: str
    kind: Literal["method", "bound", "indicative"] = "method"
    """Bounds and indicative rows are never bold and have no budget to keep."""
    group: str = ""
    """Rows are compared within their group. A rule separates groups."""
    latex: str | None = None
    """The label in LaTeX, if it has symbols."""
    where: Settings = field(default_factory=dict)
    """Settings of the row's runs, besides the method: a grid makes these runs, and a table looks for them."""
    own_rates: bool = True
    """Whether the method runs at its own learning rate; False means CLIMB's."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The shape of a table: rows by columns by metrics."""

    name: str
    title: str
    description: str = ""
    """One line for the list of grids."""
    rows: tuple[RowSpec, ...]
    columns: tuple[str, ...]
    """Labels such as "20 tasks"."""
    metrics: tuple[Metric, ...]
    where: Settings = field(default_factory=dict)
    """Settings that all runs of the table share."""
    varies: tuple[Aspect, ...] = ()
    """Aspects in which the runs differ on purpose (a table of capacities: "memory capacities")."""
    seeds: int = 5
    """Number of seeds in the paper (section 4 and appendices)."""
    note: str = ""
    """A note for every such table."""
    printed_in: str = ""
    """The paper's table with these numbers, if its name differs."""

    def row(self, label: str) -> RowSpec:
        """The row with this label."""
        return find_named(f"row of {self.name}", label, {row.label: row for row in self.rows})


CA = Metric(key="continual_accuracy", label="CA")
FA = Metric(key="final_accuracy", label="FA")
CA_UPTO = Metric(key="continual_accuracy_upto", label="CA up-to")
"""CA with a probe on the classes seen so far. The paper's text describes it, but its numbers agree with `CA`."""
PER_IMAGE = tuple(Metric(key=f"{metric.key}_per_image", label=f"{metric.label} per image") for metric in (CA, FA))
"""Means over test images instead of tasks. They differ if tasks differ in size."""
FORGETTING = Metric(key="forgetting", label="forgetting", higher_is_better=False)
USUAL_METRICS = (CA, FA, CA_UPTO, FORGETTING)
"""The metrics of a table that is made for its runs."""

IID = RowSpec(label="i.i.d.", method="iid", kind="bound")
SCALE, OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB = (
    RowSpec(label=label, method=label.lower()) for label in ("SCALE", "Osiris-R", "MinRed", "CLA-R", "CLA-E", "CLIMB")
)
PCMC = RowSpec(label="PCMC", method="pcmc", kind="indicative")
SSL, ALIGN = r"$\mathcal{L}_{\text{SSL}}$", r"$\mathcal{L}_{\text{align}}$"

REGULAR: Settings = {"stream.kind": "regular", "learner.objective": "simclr"}
CHOICES: dict[str, tuple[str, float]] = {
    "N": ("learner.memory.capacity", 2500),
    "L": ("learner.memory.stm_centroids", 100),
    "K": ("learner.memory.ltm_centroids", 60),
    "M": ("learner.memory.images_per_centroid", 30),
    "p": ("learner.memory.novelty_percentile", 0.95),
    "tau_ema": ("learner.ema_decay", 0.999),
    "alpha_stm": ("learner.memory.stm_rate", 0.1),
}
"""The settings that the tables of sensitivity vary one at a time, and CLIMB's values."""
CLIMB_CHOICES: Settings = dict(CHOICES.values())


def coupled(name: str, value: float) -> dict[str, int]:
    """The sizes that follow when another one varies, so that the memory keeps its bound (appendix B).

    With N, K varies in proportion. With M, K keeps the long-term images near 1800.

    >>> coupled("N", 1000), coupled("M", 50), coupled("L", 50)
    ({'K': 24}, {'K': 36}, {})
    """
    capacity, ltm, images = (CHOICES[size][1] for size in "NKM")
    return {"N": {"K": round(ltm * value / capacity)}, "M": {"K": round(ltm * images / value)}}.get(name, {})


RELEASED = "as the released code"
"""Label of the row with the preset `reference`."""


def _sensitivity(name: str, symbol: str, *values: str) -> tuple[RowSpec, ...]:
    rows = []
    for text in values:
        value = type(CHOICES[name][1])(text)
        changed = {CHOICES[key][0]: size for key, size in {name: value, **coupled(name, value)}.items()}
        label, latex = f"{name} = {text}", f"${symbol} = {text}$"
        rows.append(RowSpec(label=label, method="climb", group=name, latex=latex, where={**CLIMB_CHOICES, **changed}))
    return tuple(rows)


def _faults() -> tuple[RowSpec, ...]:
    """CLIMB under the chosen preset, CLIMB with each fault of the released code, and the released code's behaviour."""
    faults = {"no fault": {}, **{f"+ {name}": fields for name, fields in FAULTS.items()}}
    where = {
        label: {"learner.memory_faults": False, **{f"learner.{field}": value for field, value in fields.items()}}
        for label, fields in faults.items()
    }
    where[RELEASED] = {"learner.preset": "reference"}
    return tuple(RowSpec(label=label, method="climb", where=settings) for label, settings in where.items())


def _climb_rates(label: str, method: str, latex: str | None = None) -> RowSpec:
    return RowSpec(label=label, method=method, latex=latex, own_rates=False)


TASKS = ("20 tasks", "50 tasks", "100 tasks")
_table = partial(Layout, columns=TASKS[:1], metrics=(CA, FA), where=REGULAR)

_TABLES = (
    _table(
        name="table-regular",
        title="Regular tasks",
        description="Methods on tasks of equal size.",
        rows=(IID, SCALE, OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB, PCMC),
        columns=TASKS,
        metrics=(CA, FA, CA_UPTO),
    ),
    _table(
        name="table-irregular",
        title="Irregular tasks",
        description="Methods on tasks of random size.",
        rows=(OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB, PCMC),
        columns=TASKS[:2],
        metrics=(CA, FA, *PER_IMAGE),
        where={**REGULAR, "stream.kind": "irregular"},
        seeds=20,
    ),
    _table(
        name="table-ablation",
        title="Ablation",
        description="CLIMB part by part, then with other memories; all at CLIMB's rates.",
        rows=(
            _climb_rates("SSL", "finetune", SSL),
            _climb_rates("SSL + memory", "climb-memory-only", f"{SSL} + Memory"),
            _climb_rates("SSL + memory + alignment", "climb-previous-step", f"{SSL} + Memory + {ALIGN}"),
            _climb_rates("SSL + memory + alignment + EMA (CLIMB)", "climb", f"{SSL} + Memory + {ALIGN} + EMA (CLIMB)"),
            _climb_rates("SSL + FIFO + alignment + EMA", "climb-fifo", f"{SSL} + FIFO + {ALIGN} + EMA"),
            _climb_rates("SSL + MinRed + alignment + EMA", "climb-minred", f"{SSL} + MinRed + {ALIGN} + EMA"),
            _climb_rates("SSL + reservoir + alignment + EMA", "climb-reservoir", f"{SSL} + Reservoir + {ALIGN} + EMA"),
        ),
    ),
    _table(
        name="table-sensitivity-architecture",
        title="Sensitivity to the memory's sizes",
        description="CLIMB with other memory sizes: N, L, K and M.",
        rows=(
            *_sensitivity("N", "N", "1000", "1500", "2000", "2500", "3500", "5000"),
            *_sensitivity("L", "L", "50", "75", "100", "150", "200"),
            *_sensitivity("K", "K", "20", "35", "50", "60", "80"),
            *_sensitivity("M", "M", "10", "20", "30", "50"),
        ),
        varies=("memory capacities",),
    ),
    _table(
        name="table-sensitivity-update",
        title="Sensitivity to the memory's rules of update",
        description="CLIMB with another novelty percentile, teacher rate or centroid rate.",
        rows=(
            *_sensitivity("p", "p", "0.75", "0.85", "0.90", "0.95", "0.99"),
            *_sensitivity("tau_ema", r"\tau_{\text{ema}}", "0.990", "0.995", "0.999", "0.9995"),
            *_sensitivity("alpha_stm", r"\alpha_{\text{stm}}", "0.01", "0.05", "0.1", "0.3", "0.5"),
        ),
    ),
    _table(
        name="table-pruning",
        title="Global pruning",
        description="Two ways to shrink the short-term memory.",
        rows=(RowSpec(label="Anchor", method="climb"), RowSpec(label="Selective", method="climb-selective")),
        columns=TASKS[:2],
    ),
    _table(
        name="table-diversity",
        title="Diversity of the memory at the end",
        description="What four memories hold at the end of one run of CLIMB's learner.",
        rows=(CLIMB, *(_climb_rates(label, f"climb-{label.lower()}") for label in ("MinRed", "Reservoir", "FIFO"))),
        metrics=(
            Metric(key="stored_images", label="stored images", digits=0, higher_is_better=None),
            Metric(key="diversity.vendi_score", label="Vendi score", digits=1),
            Metric(key="diversity.uniformity", label="uniformity", digits=3, higher_is_better=False),
            Metric(key="diversity.intra_distance", label="intra-cluster distance", digits=3, higher_is_better=False),
            Metric(key="diversity.inter_intra_ratio", label="inter/intra ratio", digits=3),
            Metric(key="final_accuracy", label="probe accuracy", digits=3, scale=0.01),
        ),
        note="measured on embeddings of the projector; the paper writes 'encoder embeddings'",
        seeds=1,
    ),
    _table(
        name="table-simsiam",
        title="SimSiam as the objective",
        description="Methods with SimSiam as the objective.",
        rows=(IID, MINRED, CLA_R, CLA_E, CLIMB),
        columns=TASKS[:2],
        where={**REGULAR, "learner.objective": "simsiam"},
    ),
    _table(
        name="table-forgetting",
        title="Forgetting (negative: old tasks improved)",
        description="Forgetting of old tasks, from the runs of table-regular.",
        rows=(SCALE, OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB),
        columns=TASKS,
        metrics=(FORGETTING,),
    ),
    _table(
        name="table-faults",
        title="What the faults of the released code cost",
        description="The cost of each fault of the released code, one at a time, then all.",
        rows=_faults(),
        metrics=(CA, FA, CA_UPTO),
        varies=("presets", "memory bounds"),  # the released memory outgrows its bound
        seeds=1,
    ),
)
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _TABLES}


def find_layout(name: str) -> Layout:
    """The table of the paper with this name.

    >>> [row.label for row in find_layout("table-pruning").rows]
    ['Anchor', 'Selective']
    """
    return find_named("layout", name, LAYOUTS)


def with_upto(layout: Layout) -> Layout:
    """The layout with CA up-to, if it has CA.

    >>> [metric.label for metric in with_upto(find_layout("table-ablation")).metrics]
    ['CA', 'FA', 'CA up-to']
    """
    if CA not in layout.metrics or CA_UPTO in layout.metrics:
        return layout
    return replace(layout, metrics=(*layout.metrics, CA_UPTO))


def method_row(method: str, *, label: str, where: Settings) -> RowSpec:
    """A row for any method, of the kind that it has in the paper's tables."""
    kinds = {row.method: row.kind for layout in _TABLES for row in layout.rows}
    return RowSpec(label=label, method=method, kind=kinds.get(method, "method"), where=where)
