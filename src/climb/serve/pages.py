"""The pages of the server, and the parts of them that are renewed while one looks on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape
from urllib.parse import quote, urlencode

from climb.report.again import again
from climb.report.beside import beside
from climb.report.encodable import encodable
from climb.report.headline import every_number, headline
from climb.report.learned import learned
from climb.report.lived import lived, training
from climb.report.page import TOGGLE
from climb.report.particulars import FILES, configuration, cost, readable_bytes, versions
from climb.serve.watched import Parts, State, WatchedRun

EVERY = 2000  # milliseconds between two questions of a page
MEANINGS: dict[State, str] = {
    "finished": "done",
    "learning": "its journal was written to in the last five minutes",
    "waiting": "its process is alive, and has had nothing to write for five minutes",
    "silent": "nothing was written for five minutes, and no process of this machine is at work in its folder",
}


def page(title: str, body: str, *, live: Sequence[str]) -> str:
    """A whole page that asks the addresses ``live`` for news."""
    whole = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="stylesheet" href="/page.css">
<link rel="icon" href="data:,">
<script src="/page.js" defer></script>
</head>
<body>
{TOGGLE}
<main data-live="{escape(" ".join(live))}" data-every="{EVERY}">
{body}
</main>
</body>
</html>
"""
    return encodable(whole)


def run_page(run: WatchedRun) -> str:
    """The page of one run. The memory comes later: reading a checkpoint takes a moment."""
    parts = run_parts(run)
    record = run.record()
    name = quote(run.name)
    still = [again(record), configuration(record), versions(record), _files(run)]
    order = ("headline", "learned", "remembered", "lived", "training", "cost", "numbers")
    body = "\n".join(
        [
            f'<nav class="bar"><a href="/">All runs</a>{parts["state"]}<span>{escape(run.title)}</span></nav>',
            *(parts.get(key) or f'<section id="{key}"></section>' for key in order),
            *still,
        ]
    )
    return page(record.title, body, live=[f"/api/live/{name}", f"/api/memory/{name}"])


def run_parts(run: WatchedRun) -> Parts:
    """What changes while a run goes on."""
    record = run.record()
    return {
        "state": badge(run.state(), more=' id="state"'),
        "headline": headline(record),
        "learned": learned(record),
        "lived": lived(record),
        "training": training(record),
        "cost": cost(record),
        "numbers": every_number(record),
    }


def compare_page(runs: Sequence[WatchedRun]) -> str:
    """Runs beside each other."""
    address = "/api/compare?" + urlencode([("run", run.name) for run in runs])
    links = ", ".join(_link(run) for run in runs)
    body = (
        f'<nav class="bar"><a href="/">All runs</a></nav>\n<h1>Compare</h1>\n<p>{links}</p>\n{compared(runs)["beside"]}'
    )
    return page("Compare runs", body, live=[address])


def compared(runs: Sequence[WatchedRun]) -> Parts:
    """What changes on the page that compares."""
    return {"beside": beside([run.record() for run in runs], heading="Side by side")}


def combined_version(runs: Sequence[WatchedRun]) -> str:
    """Changes whenever one of the runs does."""
    told = "\n".join(f"{run.name} {run.version()} {run.state()}" for run in runs)
    return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:16]


def _files(run: WatchedRun) -> str:
    """What can be taken home."""
    lines = [
        f'<li><a href="/file/{quote(f"{run.name}/{name}".lstrip("/"))}">{escape(name)}</a> '
        f"({readable_bytes(path.stat().st_size)}), {escape(meaning)}</li>"
        for name, meaning in FILES.items()
        if (path := run.file(name)) is not None
    ]
    return f'<section id="files"><h2>Files</h2><ul>{"".join(lines)}</ul></section>'


def _link(run: WatchedRun) -> str:
    return f'<a href="/runs/{escape(quote(run.name))}">{escape(run.title)}</a>'


def badge(state: State, *, more: str = "") -> str:
    """The state of a run in a word, and what it means under the pointer."""
    return f'<span{more} class="badge {state}" title="{escape(MEANINGS[state])}">{state}</span>'
