"""What a session shows and counts while it runs: a live line on the terminal, and seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from climb.session.observer import Observer

if TYPE_CHECKING:
    from climb.engine import Observation
    from climb.session.feeds import Batch
    from climb.session.session import Session


class LiveLine(Observer):
    """One line on the terminal: rate, time left, loss, memory. Silent if the error stream is no terminal.

    Args:
        label: begins the line.
        total: number of mini-batches; None for a stream of unknown length, which gets no bar.
        shown: False in all processes but the first.
    """

    def __init__(self, label: str, *, total: int | None, shown: bool = True) -> None:
        console = Console(stderr=True)
        bar: list[ProgressColumn] = [BarColumn(bar_width=24), MofNCompleteColumn()]
        # Without markup: labels hold names of files, which may contain brackets.
        columns = [TextColumn("{task.description}", markup=False), *(bar if total is not None else [])]
        columns.append(TextColumn("{task.fields[rate]}"))
        if total is not None:
            columns.append(TimeRemainingColumn())
        columns.append(TextColumn("{task.fields[note]}", markup=False))
        self._progress = Progress(*columns, console=console, disable=not (shown and console.is_terminal))
        self._note = self._kept = ""
        self._task = self._progress.add_task(label, total=total, rate="", note="")

    def start(self, session: Session) -> None:
        """Show the line."""
        self._progress.update(self._task, completed=session.done)
        self._progress.start()

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Advance the bar."""
        images_per_second = session.engine.budget.images / max(session.timer.trained, 1e-9)
        self._progress.update(self._task, completed=session.done, rate=f"{images_per_second:,.0f} img/s")

    def close(self, session: Session) -> None:
        """Remove the line."""
        self._progress.stop()

    def note(self, text: str) -> None:
        """Say what is going on."""
        self._note = text
        self._progress.update(self._task, note=f"{text} | {self._kept}" if self._kept else text)

    def keep(self, text: str) -> None:
        """Show a text after every note from now on."""
        self._kept = text
        self.note(self._note)


class Timer:
    """Seconds over all sittings: in total, training, evaluating. It starts outside training."""

    def __init__(self) -> None:
        self.seconds = {"train": 0.0, "evaluate": 0.0, "total": 0.0}
        self._began = time.monotonic()
        self._training_since: float | None = None

    @property
    def trained(self) -> float:
        """Seconds of training until now."""
        since = self._training_since
        return self.seconds["train"] + (0.0 if since is None else time.monotonic() - since)

    def pause(self) -> None:
        """From now on, time does not count as training."""
        self.seconds["train"], self._training_since = self.trained, None

    def resume(self) -> None:
        """From now on, time counts as training."""
        self._training_since = time.monotonic()

    def update(self) -> None:
        """Bring the total up to date."""
        self.seconds["total"] = time.monotonic() - self._began

    def load(self, seconds: dict[str, float] | float) -> None:
        """Continue from a checkpoint. Learners write the total alone."""
        seconds = seconds if isinstance(seconds, dict) else {"total": seconds}
        self.seconds.update({name: float(value) for name, value in seconds.items()})
        self._began = time.monotonic() - self.seconds["total"]
