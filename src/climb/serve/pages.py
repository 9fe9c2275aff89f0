"""The pages of the server, and the parts of them that are replaced while they are open."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from climb.bench.collect import lookup
from climb.errors import InputError
from climb.evaluation.metrics import ACCURACIES
from climb.report.accuracy_section import accuracy_on_tasks_seen
from climb.report.compare import compare
from climb.report.details import FILES, file_list
from climb.report.gallery import gallery
from climb.report.markup import document
from climb.report.page import fixed_sections, live_sections
from climb.report.record import Record
from climb.runs.run_file_checks import is_number
from climb.serve.watched_run import Parts, State, WatchedRun

EVERY = 2000  # milliseconds between two requests of an open page
LONGEST = 200  # characters of a cell
STATES: dict[State, str] = {
    "finished": "the run is complete",
    "learning": "the journal was written to in the last five minutes",
    "waiting": "the process is alive, but wrote nothing for five minutes",
    "silent": "nothing was written for five minutes, and no process on this machine holds the folder",
}
HEAD = """<link rel="stylesheet" href="/page.css"/>
<link rel="icon" href="data:,"/>
<script src="/page.js" defer="defer"></script>"""


class Column(NamedTuple):
    """One column of the index."""

    heading: str
    value: Callable[[Record], Any]
    """The sort key; None leaves the cell empty."""
    form: str = ""
    """Format of a number, empty for text."""
    meaning: str = ""


def _at(name: str) -> Callable[[Record], Any]:
    """The value at a dotted name of the record, None if it is missing."""
    return lambda record: lookup(vars(record), name)


def _now(record: Record) -> float | None:
    return accuracy_on_tasks_seen(record)[-1][1] if record.matrix else None


COLUMNS = (
    Column("Method", _at("config.learner.method")),
    Column("Preset", _at("config.learner.preset")),
    Column("Data", lambda record: record.data, "", "dataset or source"),
    Column("Seed", _at("config.seed"), "d"),
    Column("Tasks", lambda record: len(record.matrix) or None, "d", "evaluated so far"),
    Column("Now", _now, ".2f", "accuracy on the tasks seen, after the latest one"),
    *(
        Column(ACCURACIES[key].heading, _at(f"result.{key}"), ".2f", ACCURACIES[key].meaning)
        for key in ("final_accuracy", "continual_accuracy", "forgetting")
    ),
    Column("Loss", lambda record: record.latest("objective"), ".3f", "latest loss"),
    Column("Stored", lambda record: record.latest("stored"), ",.0f", "images in the memory"),
    Column("Batches", lambda record: record.batches, ",d", "mini-batches so far"),
    Column("Train s", _at("result.seconds.train"), ",.1f", "seconds of training"),
)


def index_page(runs: Sequence[WatchedRun], folder: str) -> str:
    """All runs in a table that sorts, with checkboxes to compare them."""
    heads = "".join(
        f'<th scope="col" class="{"number" if form else "text"}" title="{escape(meaning)}">'
        f'<button type="button">{escape(heading)}</button></th>'
        for heading, _, form, meaning in COLUMNS
    )
    body = f"""<header><h1>Runs in {escape(folder)}</h1>
<p class="quiet">Click a heading to sort. Select two to six runs to compare them. The table updates by itself.</p>
</header>
<form action="/compare" method="get">
<p><button class="action compare" type="submit">Compare</button></p>
<div class="wide"><table class="sortable">
<thead><tr><th scope="col"></th><th scope="col"><button type="button">Run</button></th>
<th scope="col"><button type="button">State</button></th>{heads}</tr></thead>
{index_parts(runs)["rows"]}
</table></div>
</form>"""
    return _page(f"Runs in {folder}", body, live=["/api/index"])


def index_parts(runs: Sequence[WatchedRun]) -> Parts:
    """The rows of the index."""
    empty = f'<tr><td></td><td colspan="{len(COLUMNS) + 2}">No runs here yet. New ones appear by themselves.</td></tr>'
    rows = "\n".join(map(_row, runs)) or empty
    return {"rows": f'<tbody id="rows">{rows}</tbody>'}


def _row(run: WatchedRun) -> str:
    """The row of a run. A damaged folder gets a row with its error."""
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
    cells = "".join(_cell(column.value(record), column.form) for column in COLUMNS)
    name = escape(run.name)
    box = f'<input type="checkbox" name="run" value="{name}" aria-label="compare {escape(run.title)}"/>'
    return f'<tr><td>{box}</td><th scope="row">{_link(run)}</th><td>{_badge(state)}</td>{cells}</tr>'


def _cell(value: Any, form: str) -> str:
    fits = isinstance(value, int) or not form.endswith("d")
    if form and fits and is_number(value):
        return f'<td class="number" data-value="{value}">{format(value, form)}</td>'
    text = "" if value is None else escape(str(value)[:LONGEST])
    return f'<td data-value="{text}">{text}</td>'


def run_page(run: WatchedRun) -> str:
    """The page of one run. The memory is requested later, because reading a checkpoint takes a moment."""
    record, parts = run.record(), run_parts(run)
    files = {name: path for name in FILES if (path := run.file(name)) is not None}
    live = ("summary", "accuracy", "memory", "memory-charts", "training", "cost", "numbers")
    body = "\n".join(
        [
            f'<nav class="bar"><a href="/">All runs</a>{parts["state"]}<span>{escape(run.title)}</span></nav>',
            *(parts.get(key) or f'<section id="{key}"></section>' for key in live),
            *fixed_sections(record),
            file_list(files, prefix=f"/file/{run.name}/" if run.name else "/file/"),
        ]
    )
    name = quote(run.name)
    return _page(record.title, body, live=[f"/api/live/{name}", f"/api/memory/{name}"])


def run_parts(run: WatchedRun) -> Parts:
    """The parts that change during a run, without the memory."""
    return {"state": _badge(run.state(), attributes=' id="state"'), **live_sections(run.record())}


def memory_parts(run: WatchedRun) -> Parts:
    """The part with the memory."""
    return {"memory": gallery(run.memory())}


def compare_page(runs: Sequence[WatchedRun]) -> str:
    """A comparison of several runs."""
    body = f'<nav class="bar"><a href="/">All runs</a></nav>\n<h1>Compare</h1>\n<p>{", ".join(map(_link, runs))}</p>\n'
    address = "/api/compare?" + urlencode([("run", run.name) for run in runs])
    return _page("Compare runs", body + compare_parts(runs)["compare"], live=[address])


def compare_parts(runs: Sequence[WatchedRun]) -> Parts:
    """The part of the comparison that changes."""
    return {"compare": compare([run.record() for run in runs], heading="Side by side")}


def combined_version(runs: Sequence[WatchedRun]) -> str:
    """A text that changes whenever one of the runs does."""
    text = "\n".join(f"{run.name} {run.version()} {run.state()}" for run in runs)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _page(title: str, body: str, *, live: Sequence[str]) -> str:
    """A page that requests its parts again from the addresses ``live``."""
    attributes = f' data-live="{escape(" ".join(live))}" data-every="{EVERY}"'
    return document(title, body, head=HEAD, attributes=attributes)


def _link(run: WatchedRun) -> str:
    return f'<a href="/runs/{escape(quote(run.name))}">{escape(run.title)}</a>'


def _badge(state: State, *, attributes: str = "") -> str:
    """The state of a run, explained by a tooltip."""
    return f'<span{attributes} class="badge {state}" title="{escape(STATES[state])}">{state}</span>'
