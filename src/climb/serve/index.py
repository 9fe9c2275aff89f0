"""The first page: all runs in a table that sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from climb.errors import InputError
from climb.evaluation.accuracies import ACCURACIES
from climb.report.learned import tasks_seen
from climb.report.record import Record
from climb.runs.json_files import is_number
from climb.serve.pages import badge, page
from climb.serve.watched import Parts, State, WatchedRun

LONGEST = 200  # characters of a cell


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table."""

    heading: str
    meaning: str
    value: Callable[[Record], Any]
    """What is sorted by; None is shown as nothing."""
    form: str = ""
    """How a number is written; text has none."""


def _result(*keys: str) -> Callable[[Record], Any]:
    def value(record: Record) -> Any:
        found: Any = record.result
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    return value


COLUMNS = (
    Column(heading="Method", meaning="", value=lambda record: record.config.get("learner", {}).get("method")),
    Column(heading="Preset", meaning="", value=lambda record: record.config.get("learner", {}).get("preset")),
    Column(heading="Data", meaning="where the images come from", value=lambda record: record.data),
    Column(heading="Seed", meaning="", value=lambda record: record.config.get("seed"), form="d"),
    Column(heading="Tasks", meaning="evaluated so far", value=lambda record: len(record.matrix) or None, form="d"),
    Column(
        heading="Now",
        meaning="accuracy on the tasks seen, after the last one",
        value=lambda record: tasks_seen(record)[-1][1] if record.matrix else None,
        form=".2f",
    ),
    *(
        Column(heading=ACCURACIES[key].heading, meaning=ACCURACIES[key].meaning, value=_result(key), form=".2f")
        for key in ("final_accuracy", "continual_accuracy", "forgetting")
    ),
    Column(
        heading="Loss", meaning="of the objective, last", value=lambda record: record.latest("objective"), form=".3f"
    ),
    Column(heading="Stored", meaning="images in the memory", value=lambda record: record.latest("stored"), form=",.0f"),
    Column(heading="Batches", meaning="mini-batches so far", value=lambda record: record.batches, form=",d"),
    Column(heading="Train s", meaning="seconds of training", value=_result("seconds", "train"), form=",.1f"),
)


def index_page(runs: Sequence[WatchedRun], folder: str) -> str:
    """All runs, with a choice of those to compare."""
    heads = "".join(
        f'<th scope="col"{" class=number" if column.form else ""} title="{escape(column.meaning)}">'
        f'<button type="button">{escape(column.heading)}</button></th>'
        for column in COLUMNS
    )
    body = f"""<header><h1>Runs in {escape(folder)}</h1>
<p class="quiet">Click a heading to sort; choose two or more runs to compare them. The table renews itself.</p></header>
<form action="/compare" method="get">
<p><button class="action compare" type="submit">Compare</button></p>
<div class="wide"><table class="sortable">
<thead><tr><th scope="col"></th><th scope="col"><button type="button">Run</button></th>
<th scope="col"><button type="button">State</button></th>{heads}</tr></thead>
{index_parts(runs)["rows"]}
</table></div>
</form>"""
    return page(f"Runs in {folder}", body, live=["/api/index"])


def index_parts(runs: Sequence[WatchedRun]) -> Parts:
    """The rows of the table."""
    rows = "\n".join(_row(run) for run in runs)
    if not rows:
        said = "There is no run here yet. It will appear once it begins."
        rows = f'<tr><td></td><td colspan="{len(COLUMNS) + 2}">{said}</td></tr>'
    return {"rows": f'<tbody id="rows">{rows}</tbody>'}


def _row(run: WatchedRun) -> str:
    """A run in one line, or what is wrong with it: others must not suffer for one odd folder."""
    state = run.state()
    try:
        return run.brief("row", f"{run.version()} {state}", lambda record: _cells(run, state, record))
    except (InputError, OSError) as error:
        return (
            f'<tr><td></td><th scope="row">{escape(run.title)}</th>'
            '<td><span class="badge failed">unreadable</span></td>'
            f'<td colspan="{len(COLUMNS)}">{escape(str(error))}</td></tr>'
        )


def _cells(run: WatchedRun, state: State, record: Record) -> str:
    name = escape(run.name)
    cells = "".join(_cell(column, record) for column in COLUMNS)
    return (
        f'<tr><td><input type="checkbox" name="run" value="{name}" aria-label="compare {escape(run.title)}"></td>'
        f'<th scope="row"><a href="/runs/{escape(quote(run.name))}">{escape(run.title)}</a></th>'
        f"<td>{badge(state)}</td>{cells}</tr>"
    )


def _cell(column: Column, record: Record) -> str:
    value = column.value(record)
    if value is None:
        return '<td data-value=""></td>'
    counted = isinstance(value, int) or not column.form.endswith("d")
    if not column.form or not counted or not is_number(value):
        said = escape(str(value)[:LONGEST])
        return f'<td data-value="{said}">{said}</td>'
    return f'<td class="number" data-value="{value}">{format(value, column.form)}</td>'
