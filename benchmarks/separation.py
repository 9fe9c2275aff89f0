"""How far a recipe tells methods apart, in units of its repeat noise, and what that costs: for choosing recipes.

    python benchmarks/separation.py demo --over rates=0.1,0.3,1 passes=1,3 --repeats 2
    python benchmarks/separation.py demo --set tasks=10 --over temperature=0.1,0.2,0.5 --methods iid climb finetune

For every combination of settings, each method runs once, and the second one ``--repeats`` times more with first
weights that differ by one part in ten million (`climb.bench.noise`). Printed: accuracies on held-out training images,
the standard deviation of the repeats, the gaps (first - last) and (second - last) divided by the standard deviation of
the difference of two single runs, and the second gap per minute of a run. Test images play no part. Settings are those
of ``climb tune``; ``rates`` multiplies the learning rate of every method. Finished runs are not repeated, so the
command can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from climb.bench.executors import Where, choose_executor
from climb.bench.grids import Entry, Grid
from climb.bench.layouts import Layout, Metric, RowSpec
from climb.bench.noise import measure_noise
from climb.bench.plan import Plan, make_plan
from climb.bench.scheduler import run_jobs
from climb.bench.tuning import METRIC, combinations, parse_over, say_setting
from climb.resolve import with_settings
from climb.session import experiment
from climb.settings.config import Execution, RunConfig

ACCURACY = Metric(key=METRIC, label="validation accuracy")


@dataclass(frozen=True, kw_only=True)
class Separation:
    """What one combination of settings shows."""

    settings: Mapping[str, Any]
    accuracies: Mapping[str, float | None]
    """Accuracy on held-out images, by method."""
    noise: float | None
    """Standard deviation of the second method's repeats."""
    bound_gap: float | None
    """First method minus the last one, in standard deviations of such a difference."""
    gap: float | None
    """Second method minus the last one, in the same unit."""
    minutes: float
    """Mean time of a run, evaluation included."""

    @property
    def value(self) -> float:
        """The gap per minute."""
        return (self.gap or 0.0) / max(self.minutes, 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--over", nargs="+", default=[], help="NAME=VALUE,VALUE: tried in all combinations")
    parser.add_argument("--set", nargs="+", default=[], dest="fixed", help="NAME=VALUE: the same in all runs")
    parser.add_argument("--methods", nargs=3, default=["iid", "climb", "finetune"])
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help="folder of the dataset")
    parser.add_argument("--per-device", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/separation"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    fixed = dict(text.partition("=")[::2] for text in given.fixed)
    fixed = {"preset": given.preset, "seed": given.seed, **{name: _plain(value) for name, value in fixed.items()}}
    rates = [text for text in given.over if text.startswith("rates=")]
    over: dict[str, tuple[Any, ...]] = {"rates": tuple(map(float, rates[0][6:].split(",")))} if rates else {}
    if others := [text for text in given.over if text not in rates]:
        over |= parse_over(others)
    grids = [grid_of(given.recipe, setting, fixed, given.methods, given.repeats) for setting in combinations(over)]
    plan = make_plan(grids, given.out, data_root=given.data)
    execution = Execution(device=given.device, data_root=given.data)
    executor = choose_executor(Where(executor="local", per_device=given.per_device, device=given.device), given.out)
    run_jobs(plan.jobs(execution), executor, metric=METRIC)
    plan = plan.refreshed()
    found = [
        separation(setting, grid, plan, given.methods) for setting, grid in zip(combinations(over), grids, strict=True)
    ]
    found.sort(key=lambda each: -each.value)
    print(json.dumps(list(map(asdict, found)), indent=1) if given.json else as_table(found, given.methods))


def grid_of(
    recipe: str, setting: Mapping[str, Any], fixed: Mapping[str, Any], methods: Sequence[str], repeats: int
) -> Grid:
    """The runs of one combination of settings."""
    rows = tuple(RowSpec(label=f"{say_setting(setting)}, {method}", method=method) for method in methods)
    layout = Layout(name="separation", title="Separation", rows=rows, columns=("run",), metrics=(ACCURACY,))
    configs = [config_of(recipe, setting, fixed, method) for method in methods]
    entries = [Entry(row=row.label, column="run", config=own) for row, own in zip(rows, configs, strict=True)]
    again = [replace(entries[1], config=replace(configs[1], repeat=number)) for number in range(1, repeats + 1)]
    return Grid(layout=layout, entries=tuple(entries), repeats=tuple(again))


def config_of(recipe: str, setting: Mapping[str, Any], fixed: Mapping[str, Any], method: str) -> RunConfig:
    """One run."""
    config: RunConfig = experiment(recipe, **{**fixed, "method": method})
    values = {name: value for name, value in setting.items() if name != "rates"}
    if "rates" in setting:
        values["lr"] = setting["rates"] * config.learner.lr
    return with_settings(config, values)


def separation(setting: Mapping[str, Any], grid: Grid, plan: Plan, methods: Sequence[str]) -> Separation:
    """The gaps of one combination of settings."""
    runs = plan.finished(grid)
    results = [runs[entry.key].result if entry.key in runs else {} for entry in grid.entries]
    accuracies = {method: own.get(METRIC) for method, own in zip(methods, results, strict=True)}
    noise = measure_noise(plan.repeats(grid), ACCURACY)
    first, second, last = accuracies.values()
    unit = None if noise is None else noise.of_difference(1, 1)
    return Separation(
        settings=dict(setting),
        accuracies=accuracies,
        noise=None if noise is None else noise.std,
        bound_gap=(first - last) / unit if unit and None not in (first, last) else None,
        gap=(second - last) / unit if unit and None not in (second, last) else None,
        minutes=mean([own["seconds"]["total"] / 60 for own in results if own] or [0.0]),
    )


def as_table(found: Sequence[Separation], methods: Sequence[str]) -> str:
    """Markdown, best first."""
    head = ["settings", *methods, "noise", f"({methods[0]} - {methods[2]}) / noise"]
    head += [f"({methods[1]} - {methods[2]}) / noise", "minutes", "per minute"]
    rows = [head, ["---"] * len(head)]
    for each in found:
        numbers = [*each.accuracies.values(), each.noise, each.bound_gap, each.gap, each.minutes, each.value]
        rows.append([say_setting(each.settings), *("" if number is None else f"{number:.2f}" for number in numbers)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
