"""Several runs side by side: their numbers, their curves, and the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from climb.errors import InputError
from climb.evaluation.metrics import ACCURACIES
from climb.report.accuracy_section import accuracy_on_tasks_seen
from climb.report.chart import STYLES, styled_curves
from climb.report.markup import chart_figure, flattened, grid, number_rows, remark, section, table
from climb.report.memory_charts import FLAT_CHARTS, MEMORY_CHARTS, TRAINING_CHARTS, stream_figure
from climb.report.record import Record

NUMBERS = {
    **{key: (accuracy.heading, ".2f") for key, accuracy in ACCURACIES.items()},
    "cbp": ("CBP", ",.0f"),
    "forward_only_images": ("Forward only", ",.0f"),
    "stored_images": ("Stored images", ",.0f"),
    "memory_bytes": ("Memory, bytes", ",.0f"),
    "train": ("Training, seconds", ",.1f"),
}
COMPARED = {"objective", "effective_rank", "stored", "threshold"}
CHARTS = [chart for chart in (*TRAINING_CHARTS, *FLAT_CHARTS, *MEMORY_CHARTS) if COMPARED.issuperset(chart.curves)]


def compare(records: Sequence[Record], *, heading: str = "Comparison") -> str:
    """The section that compares runs. Nothing for a single run.

    Raises:
        InputError: there are more runs than line styles.
    """
    if len(records) < 2:
        return ""
    if len(records) > len(STYLES):
        raise InputError(f"a chart can show at most {len(STYLES)} runs; given {len(records)}: leave some out")
    runs = dict(zip(distinct_names([record.path for record in records]), records, strict=True))
    title = "Accuracy on the tasks seen, in percent"
    caption = f"<b>{title}</b>, one probe for all classes."
    curves = styled_curves((name, accuracy_on_tasks_seen(record)) for name, record in runs.items())
    figures = [chart_figure(curves, title=title, caption=caption, x_label="after task", single=True)]
    for chart in CHARTS:
        (key,) = chart.curves
        curves = styled_curves((name, record.points(key)) for name, record in runs.items())
        figures.append(stream_figure(chart, curves, title=f"{chart.title}, compared", single=True))
    drawn = grid(figures, otherwise="There is nothing to draw yet.")
    return section("compare", heading, _numbers(runs), drawn, _differences(runs))


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The shortest end of each path that no other path has.

    >>> distinct_names([Path("runs/a/0"), Path("runs/b/0"), Path("runs/c")])
    ['a/0', 'b/0', 'c']
    """
    paths = [path.resolve() for path in paths]
    names = []
    for path in paths:
        ends = ["/".join(path.parts[-length:]) for length in range(1, len(path.parts) + 1)]
        unique = (end for end in ends if sum(other.as_posix().endswith(f"/{end}") for other in paths) == 1)
        names.append(next(unique, str(path)))
    return names


def _numbers(runs: Mapping[str, Record]) -> str:
    records = runs.values()
    rows = [["Method", *(record.method for record in records)], ["Data", *(record.data for record in records)]]
    rows += number_rows([{**record.result, **record.result.get("seconds", {})} for record in records], NUMBERS)
    unfinished = [name for name, record in runs.items() if record.labelled and not record.result]
    note = remark(f"Not finished: {', '.join(unfinished)}.") if unfinished else ""
    return table(rows, heading=["", *runs], numbers=range(1, len(runs) + 1)) + note


def _differences(runs: Mapping[str, Record]) -> str:
    """A table of the settings that differ."""
    settings = [dict(flattened(record.config)) for record in runs.values()]
    keys = dict.fromkeys(key for config in settings for key in config)
    rows = [[key, *(config.get(key, "") for config in settings)] for key in keys]
    # A setting that a run lacks differs from an empty one.
    rows = [row for row in rows if len({config.get(row[0]) for config in settings}) > 1]
    if not rows:
        return remark("All settings are the same.")
    return f"<h3>Settings that differ</h3>{table(rows, heading=['', *runs])}"
