"""The page itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from climb.errors import ClimbError
from climb.files import write_text
from climb.report.again import again
from climb.report.assets import inline_script, policy_of_a_file, style
from climb.report.beside import beside
from climb.report.encodable import encodable
from climb.report.gallery import gallery
from climb.report.headline import every_number, headline
from climb.report.learned import learned
from climb.report.lived import lived, training
from climb.report.particulars import PAGE, configuration, cost, files, versions
from climb.report.record import Record, read_record
from climb.runs import RunFolder
from climb.runs.remembered import Remembered

NO_XML = {code: "\ufffd" for code in (*range(32), 0xFFFE, 0xFFFF) if chr(code) not in "\t\n\r"}
"""Characters that XML has no place for, and a file's name may hold."""
TOGGLE = '<button type="button" class="theme" aria-label="light or dark" title="light or dark">◐</button>'


def write_report(folder: Path, *, others: Sequence[Path] = ()) -> Path:
    """Write `report.html` into a run folder: one file that needs nothing else, from what is in the folder.

    A run that is not finished gets a page of what there is so far. The same folder always gives the same page.

    Args:
        folder: the run's.
        others: folders of runs to show beside it.

    Raises:
        InputError: a folder holds no run.

    >>> write_report(Path("no-such-folder"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: there is no no-such-folder; ...
    """
    record = read_record(folder)
    path = record.path / PAGE
    beside = {other.resolve(): other for other in others}  # each once, however its path is written
    records = [read_record(other) for other in beside.values()]
    write_text(path, render(record, others=records, memory=read_memory(folder)))
    return path


def read_memory(folder: Path) -> Remembered | None:
    """What the folder keeps of the memory, images made small: a checkpoint has them as large as the network takes them.

    None also for one that cannot be read, which is no reason for no page.
    """
    try:
        found = RunFolder(folder).load_memory()
    except (ClimbError, OSError, LookupError, TypeError, ValueError):  # also one that a newer version wrote
        return None
    return None if found is None else found.smaller()


def render(record: Record, *, others: Sequence[Record] = (), memory: Remembered | None = None) -> str:
    """The page as text. It is well-formed XML too, so that anything can read it back."""
    body = "\n".join(
        [
            headline(record),
            learned(record),
            beside([record, *others]),
            gallery(memory),
            lived(record),
            training(record),
            cost(record),
            every_number(record),
            again(record),
            configuration(record),
            versions(record),
            files(record),
        ]
    )
    whole = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{escape(policy_of_a_file())}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(record.title)}</title>
<style>{style()}</style>
</head>
<body>
{TOGGLE}
<main>
{body}
</main>
<script>{inline_script()}</script>
</body>
</html>
"""
    return encodable(whole).translate(NO_XML)
