"""The report of a run: one self-contained HTML file, `report.html`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from climb.errors import ClimbError
from climb.files import write_text
from climb.memory.snapshot import MemorySnapshot
from climb.report.accuracy_section import accuracy_section
from climb.report.compare import compare
from climb.report.details import PAGE, configuration, cost, files, reproduce, versions
from climb.report.gallery import gallery
from climb.report.markup import document
from climb.report.memory_charts import memory_charts, training_charts
from climb.report.record import Record, read_record
from climb.report.summary import all_numbers, summary
from climb.runs import RunFolder
from climb.runs.memory_snapshot import with_small_images

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
"""Theme, values under the pointer, sorting, live updates."""


def write_report(folder: Path, *, others: Sequence[Path] = ()) -> Path:
    """Write `report.html` into a run folder and return its path.

    An unfinished run gets a page of what the folder holds so far. The same folder always gives the same page.

    Args:
        folder: folder of the run.
        others: folders of runs to compare it with.

    Raises:
        InputError: a folder holds no run, or its files are damaged.

    >>> write_report(Path("no-such-folder"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: there is no no-such-folder; ...
    """
    record = read_record(folder)
    path = record.path / PAGE
    distinct = {path.resolve(): path for path in (folder, *others)}  # a run may be named twice, by different paths
    records = [read_record(other) for other in list(distinct.values())[1:]]
    write_text(path, render(record, others=records, memory=read_memory(folder)))
    return path


def read_memory(folder: Path) -> MemorySnapshot | None:
    """The content of the memory, with reduced images. None if it is missing or cannot be read."""
    try:
        snapshot = RunFolder(folder).load_memory()
    except (ClimbError, OSError, LookupError, TypeError, ValueError):  # damaged, or written by a newer version
        return None
    # A checkpoint holds images of full size, which would make a huge page.
    return None if snapshot is None else with_small_images(snapshot)


def render(record: Record, *, others: Sequence[Record] = (), memory: MemorySnapshot | None = None) -> str:
    """The page as text."""
    live = live_sections(record)
    top = [live.pop("summary"), live.pop("accuracy"), compare([record, *others]), gallery(memory)]
    body = "\n".join([*top, *live.values(), *fixed_sections(record), files(record)])
    inline = f"\n//<![CDATA[\n{SCRIPT}//]]>\n"  # well-formed XML, too
    policy = (
        f"default-src 'none'; script-src {_digest(inline)}; style-src {_digest(STYLE)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"/>\n<style>{STYLE}</style>'
    return document(record.title, body, head=head, end=f"<script>{inline}</script>")


def live_sections(record: Record) -> dict[str, str]:
    """The sections that change during a run, by id, without the memory."""
    return {
        "summary": summary(record),
        "accuracy": accuracy_section(record),
        "memory-charts": memory_charts(record),
        "training": training_charts(record),
        "cost": cost(record),
        "numbers": all_numbers(record),
    }


def fixed_sections(record: Record) -> list[str]:
    """The sections that stay the same during a run, without the files."""
    return [reproduce(record), configuration(record), versions(record)]


def _digest(text: str) -> str:
    """A source of a content security policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
