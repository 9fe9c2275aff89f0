"""`climb report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def report(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")], /, *, beside: tuple[str, ...] = ()
) -> None:
    """Write report.html, one page that needs nothing else, into a run folder; say where it is.

    Args:
        run: the folder of a run, finished or not, or of `climb learn`.
        beside: folders of other runs, to be shown beside it.
    """
    from climb.report import write_report  # imports what a run needs: not needed for --help

    print(write_report(Path(run), others=[Path(other) for other in beside]))
