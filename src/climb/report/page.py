"""The page itself."""

from __future__ import annotations

from html import escape
from pathlib import Path

from climb.files import write_text
from climb.report.headline import every_number, headline
from climb.report.particulars import PAGE, budget, configuration, files, versions
from climb.report.pictures import accuracy, losses, matrix, memory
from climb.report.record import Record, read_record
from climb.report.style import STYLE

SECTIONS = (headline, accuracy, matrix, memory, losses, every_number, budget, configuration, versions, files)


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder: one file that needs nothing else, from what is in the folder.

    A run that is not finished gets a page of what there is so far. The same folder always gives the same page.

    Raises:
        InputError: the folder holds no run.

    >>> write_report(Path("no-such-folder"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: no-such-folder holds no run: ...
    """
    record = read_record(folder)
    path = record.path / PAGE
    write_text(path, render(record))
    return path


def render(record: Record) -> str:
    """The page as text. It is well-formed XML too, so that anything can read it back."""
    body = "\n".join(section(record) for section in SECTIONS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(record.title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""
