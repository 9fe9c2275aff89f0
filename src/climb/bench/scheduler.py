"""Run the jobs of a plan, show their progress, then write tables and figures.

A failed run does not affect the others. All runs can be resumed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from climb.bench.estimate import say_seconds, work_of
from climb.bench.executors import Executor, Job, Outcome
from climb.bench.figures import FIGURES, draw_figure
from climb.bench.grids import Grid
from climb.bench.plan import Plan
from climb.bench.render import SUFFIXES, render
from climb.bench.tables import Against, Table, build_table
from climb.engine import IidChunks
from climb.errors import InputError
from climb.files import write_text
from climb.methods import find_method
from climb.runs import RunFolder
from climb.session.signals import handling

MIN_PROGRESS = 0.02
"""Runs, or parts of one, that must be done before the time left is estimated."""
MAX_SHOWN = 12
"""At most this many running and failed runs are shown by name."""


@dataclass(kw_only=True)
class Report:
    """The outcomes of some jobs."""

    done: list[str] = field(default_factory=list)
    """Labels of the runs finished now."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Label and error of each failed run. Its folder has the full error in ``error.txt``."""
    unfinished: list[str] = field(default_factory=list)
    """Labels of the runs that were stopped."""


def run_jobs(
    jobs: Sequence[Job], executor: Executor, *, metric: str = "final_accuracy", console: Console | None = None
) -> Report:
    """Run jobs and show their progress.

    Ctrl-C or SIGTERM stops all runs, which can be resumed, and reaches the caller as KeyboardInterrupt.

    Args:
        jobs: the jobs.
        executor: where they run.
        metric: key of the result that is shown.
        console: for progress; by default standard error.
    """
    overview = Overview(jobs, metric=metric, console=console)
    # A shell starts background jobs with SIGINT ignored.
    interrupt = handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM), signal.default_int_handler))
    with overview.live, interrupt, closing(executor(jobs)) as outcomes:  # closing stops running jobs
        for job, outcome in outcomes:
            overview.note(job, outcome)
    return overview.report


class Overview:
    """Progress of some jobs: a live display on a terminal, a line per finished run elsewhere.

    It reads the run folders, which all executors share.
    """

    def __init__(self, jobs: Sequence[Job], *, metric: str = "final_accuracy", console: Console | None = None) -> None:
        self.report = Report()
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._waiting = {job.folder: job for job in jobs}
        self._total = len(jobs)
        self._metric = metric
        self._done_at_start = self._runs_done()
        self._started = time.monotonic()
        self._started_at = time.time()
        self._best: tuple[float, str] | None = None
        self.live = Live(get_renderable=self.render, console=self._console, refresh_per_second=1, transient=True)
        """Shows the progress inside a ``with`` block, on a terminal only."""

    def note(self, job: Job, outcome: Outcome) -> None:
        """Record the outcome of a job."""
        self._waiting.pop(job.folder, None)
        if outcome.status == "done":
            self.report.done.append(job.label)
            message = self._note_result(job)
        elif outcome.status == "failed":
            self.report.failed.append((job.label, outcome.error))
            message = f"FAILED: {outcome.error}"
        else:
            self.report.unfinished.append(job.label)
            message = "interrupted; the same command continues it"
        if not self._console.is_terminal:
            count = f"[{self._total - len(self._waiting)}/{self._total}]"
            self._console.print(f"{count} {job.label}: {message}{self._time_left()}", markup=False)

    def seconds_left(self) -> float | None:
        """Estimated from the pace so far, counting parts of runs; None before there is a pace."""
        now = self._runs_done()
        done, elapsed = now - self._done_at_start, time.monotonic() - self._started
        return elapsed * (self._total - now) / done if done > MIN_PROGRESS else None

    def _runs_done(self) -> float:
        """The number of runs that are over, with the shares of the others that they have done."""
        waiting = list(self._waiting.values())
        return self._total - len(waiting) + sum(map(_share_done, waiting))

    def _time_left(self) -> str:
        left = self.seconds_left()
        return "" if left is None or not self._waiting else f"; about {say_seconds(left)} left"

    def _note_result(self, job: Job) -> str:
        result = RunFolder(job.folder).result() or {}
        value = result.get(self._metric)
        if value is None:
            return "done"
        self._best = max(self._best or (value, job.label), (value, job.label), key=itemgetter(0))
        return f"{self._metric.replace('_', ' ')} {value:.2f} % ({say_seconds(result['seconds']['total'])})"

    def _running(self) -> list[Job]:
        """Unfinished runs with an entry in their journals since the start."""
        return [
            job
            for folder, job in list(self._waiting.items())
            if (path := RunFolder(folder).journal.path).exists() and path.stat().st_mtime >= self._started_at
        ]

    def render(self) -> RenderableType:
        """The progress as lines for the terminal."""
        running, report = self._running(), self.report
        counts = f"{len(running)} running, {len(report.done)} of {self._total} done, {len(report.failed)} failed"
        head = RichTable.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, self._total), completed=self._total - len(self._waiting), width=20)
        head.add_row(bar, Text(counts + self._time_left()))
        lines: list[RenderableType] = [head]
        for job in running[:MAX_SHOWN]:
            last = RunFolder(job.folder).journal.last()
            lines.append(Text(f"  {job.label}: {'starting' if last is None else 'mini-batch ' + str(last['batch'])}"))
        lines += [Text(f"  and {len(running) - MAX_SHOWN} more")] if len(running) > MAX_SHOWN else []
        for label, error in report.failed[-MAX_SHOWN:]:
            lines.append(Text(f"  failed: {label}: {error}", style="red", no_wrap=True, overflow="ellipsis"))
        lines += [Text(f"best so far: {self._best[0]:.2f} %, {self._best[1]}")] if self._best is not None else []
        return Group(*lines)


def _share_done(job: Job) -> float:
    """The share of its stream that a run has seen, from its journal; 0 if the length of the stream is unknown."""
    last, work = RunFolder(job.folder).journal.last(), work_of(job.config, "cpu")
    if last is None or work is None:
        return 0.0
    return min(1.0, int(last["batch"]) * job.config.learner.stream_batch / work.stream_images)


def publish_each(
    grids: Sequence[Grid], plan: Plan, folder: Path, *, against: Against | None = None, mix: bool = False
) -> Iterator[tuple[Grid, Table | InputError]]:
    """Write the finished runs of each grid into a folder of its name: table.md, .tex, .csv and .html, and its figure.

    If its runs cannot be compared, yield the error in place of the table.
    """
    for grid in grids:
        result: Table | InputError
        try:
            placed, repeats = plan.placed(grid), plan.repeats(grid)
            table = build_table(grid.layout, placed, against=against, mix=mix, repeats=repeats)
            runs = plan.finished(grid)
            result = table = replace(table, notes=(*table.notes, *_notes(grid, finished=set(runs))))
            for form, suffix in SUFFIXES.items():
                write_text(folder / grid.name / f"table.{suffix}", render(table, form))
            if grid.name in FIGURES and runs:
                draw_figure(grid.name, list(runs.values()), folder / grid.name)
        except InputError as error:
            result = error
        yield grid, result


def _notes(grid: Grid, *, finished: set[str]) -> Iterator[str]:
    """Unfinished runs, and the tasks of the i.i.d. bound, whose runs serve columns with other numbers of tasks."""
    if rows := dict.fromkeys(entry.row for entry in grid.entries if entry.key not in finished):
        whole = len({entry.key for entry in grid.entries})
        yield f"not whole: {whole - len(finished)} of {whole} runs are not finished ({', '.join(rows)})"
    places = ((entry.row, entry.config.learner.method, entry.config.stream.tasks) for entry in grid.entries)
    for row, method, tasks in dict.fromkeys(places):
        if find_method(method).uses("batch", IidChunks):
            yield f"{row} knows no tasks: evaluated on {tasks} of equal size in every column"
