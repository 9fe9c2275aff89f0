"""The grids of the paper's tables. Numbers of seeds are the paper's (section 4 and appendices)."""

from __future__ import annotations

from typing import Any

from climb.bench.cell import RowSpec
from climb.bench.grids.fill import fill
from climb.bench.grids.grid import Grid, Request
from climb.bench.layouts import MEMORY_SIZES, RELEASED, coupled, find_layout
from climb.errors import InputError
from climb.presets import FAULTS


def table_regular(request: Request) -> Grid:
    """Methods on tasks of equal size."""
    return fill(request, find_layout("table-regular"), seeds=5)


def table_irregular(request: Request) -> Grid:
    """Methods on tasks of random size."""
    return fill(request, find_layout("table-irregular"), seeds=20, settings=irregular)


def table_ablation(request: Request) -> Grid:
    """CLIMB part by part, then with other memories; all at CLIMB's rates."""
    return fill(request, find_layout("table-ablation"), seeds=5)


def table_sensitivity_architecture(request: Request) -> Grid:
    """CLIMB with other sizes of its memory: N, L, K and M."""
    return fill(request, find_layout("table-sensitivity-architecture"), seeds=5, settings=architecture)


def table_sensitivity_update(request: Request) -> Grid:
    """CLIMB with another novelty percentile, teacher or step of the centroids."""
    return fill(request, find_layout("table-sensitivity-update"), seeds=5, settings=update_rule)


def table_pruning(request: Request) -> Grid:
    """The two ways the short-term memory shrinks."""
    return fill(request, find_layout("table-pruning"), seeds=5)


def table_diversity(request: Request) -> Grid:
    """What CLIMB's and three other memories hold at the end of one run, within CLIMB's learner."""
    return fill(request, find_layout("table-diversity"), seeds=1)


def table_simsiam(request: Request) -> Grid:
    """Methods with SimSiam as the objective."""
    return fill(request, find_layout("table-simsiam"), seeds=5, settings=lambda row: {"objective": "simsiam"})


def table_forgetting(request: Request) -> Grid:
    """How much old tasks lose: a second look at the runs of the table of regular tasks."""
    return fill(request, find_layout("table-forgetting"), seeds=5)


def table_faults(request: Request) -> Grid:
    """What each fault of the released code costs: CLIMB with one at a time, then the released code's behaviour."""
    if request.preset == "reference":
        raise InputError("table-faults adds one fault at a time, and the preset reference has them all; give another")
    return fill(request, find_layout("table-faults"), seeds=1, settings=faulty)


def faulty(row: RowSpec) -> dict[str, Any]:
    """Settings for a row of the table of faults.

    >>> faulty(RowSpec(label="+ frozen-aligner", method="climb"))
    {'train_aligner': False}
    """
    if row.label == RELEASED:
        return {"preset": "reference"}
    return FAULTS.get(row.label.removeprefix("+ "), {})


def irregular(row: RowSpec) -> dict[str, Any]:
    """Settings of a row of the irregular table. The bound has no tasks, so no irregular ones either."""
    return {} if row.method == "iid" else {"kind": "irregular"}


def architecture(row: RowSpec) -> dict[str, Any]:
    """Sizes of the memory for a row such as "N = 1000", with the paper's coupling rules.

    >>> architecture(RowSpec(label="N = 1000", method="climb"))["memory"]
    {'capacity': 1000, 'ltm_centroids': 24}
    >>> architecture(RowSpec(label="M = 50", method="climb"))["memory"]
    {'images_per_centroid': 50, 'ltm_centroids': 36}
    """
    name, text = row.label.split(" = ")
    sizes = {name: int(text), **coupled(name, int(text))}
    return {"memory": {MEMORY_SIZES[key][0].rpartition(".")[2]: value for key, value in sizes.items()}}


def update_rule(row: RowSpec) -> dict[str, Any]:
    """Settings for a row such as "p = 0.90".

    >>> update_rule(RowSpec(label="tau_ema = 0.995", method="climb"))
    {'ema_decay': 0.995}
    """
    name, text = row.label.split(" = ")
    value = float(text)
    settings: dict[str, dict[str, Any]] = {
        "p": {"memory": {"novelty_percentile": value}},
        "tau_ema": {"ema_decay": value},
        "alpha_stm": {"memory": {"stm_rate": value}},
    }
    return settings[name]
