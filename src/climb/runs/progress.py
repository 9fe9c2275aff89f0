"""The live line of a run: rate, time left, loss, memory. Silent where nobody looks."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class LiveLine:
    """Shows the run on a terminal; does nothing elsewhere."""

    def __init__(self, total: int, *, start: int = 0, label: str = "", shown: bool = True) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._progress.add_task(label, total=total, completed=start, rate="", note="")

    def __enter__(self) -> LiveLine:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, done: int, images_per_second: float) -> None:
        """``done`` mini-batches are finished."""
        self._progress.update(self._task, completed=done, rate=f"{images_per_second:,.0f} img/s")

    def note(self, text: str) -> None:
        """Say what is going on."""
        self._progress.update(self._task, note=text)
