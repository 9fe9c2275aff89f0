"""What the verbs print: text and tables as they are, log messages and errors with escaped control characters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.console import Console
from rich.table import Table


class OneLine(logging.Formatter):
    """Log messages with escaped control characters: names of files may contain line breaks or move the cursor.

    >>> OneLine("%(message)s").format(logging.makeLogRecord({"msg": "skipped a\\x1b[2Jb\\nclimb: done"}))
    'skipped a\\\\x1b[2Jb\\\\x0aclimb: done'
    """

    CONTROLS: ClassVar = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message on one line."""
        return super().formatMessage(record).translate(self.CONTROLS)


def print_error(error: object) -> None:
    """Print an error with escaped control characters. It may have several lines."""
    print("climb: " + "\n".join(line.translate(OneLine.CONTROLS) for line in str(error).split("\n")), file=sys.stderr)


def plain_console() -> Console:
    """A console without markup, because names of folders may have brackets, and without line breaks of its own."""
    return Console(highlight=False, markup=False, soft_wrap=True)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, numbers: Sequence[int] = ()
) -> None:
    """Print a table whose first column is never wrapped, so that names can be copied.

    Args:
        headings: of all columns; all empty for a table without a head.
        rows: the cells, as plain text.
        title: text above the table.
        numbers: the columns that are right-aligned.
    """
    table = Table(title=title, title_justify="left", show_header=any(headings))
    for place, heading in enumerate(headings):
        justify = "right" if place in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=place == 0)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    plain_console().print(table)
