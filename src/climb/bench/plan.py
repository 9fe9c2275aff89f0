"""The runs of some grids: which are finished, which can be continued, and how long the rest will take."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from climb.bench.collect import FinishedRun, PlacedRun, find_runs
from climb.bench.estimate import Clock, say_seconds, work_of
from climb.bench.executors.job import ERROR_FILE, Job
from climb.bench.grids import Entry, Grid
from climb.bench.noise import split_repeats
from climb.datasets import check_root, fingerprint
from climb.errors import InputError
from climb.runs import RunFolder
from climb.settings.config import Execution, RunConfig, from_dict, to_dict

log = logging.getLogger("climb.bench")
RECORDED = ("precision", "engine", "deterministic")
"""Fields of `Execution` that a result records."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run and its folder."""

    config: RunConfig
    folder: Path
    label: str
    """Its first place: "CLIMB, 20 tasks, seed 0"."""
    result: dict[str, Any] | None
    """None if it is not finished."""

    @property
    def status(self) -> str:
        """What became of it: "done", "begun", "failed before" or "new"."""
        run = RunFolder(self.folder)
        if self.result is not None:
            return "done"
        if run.result_path.exists() or (self.folder / ERROR_FILE).exists():
            return "failed before"
        return "begun" if run.config_path.exists() else "new"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs of some grids, each once, by configuration hash, in the order of execution."""

    runs: Mapping[str, PlannedRun]

    def jobs(self, execution: Execution) -> tuple[Job, ...]:
        """The jobs of all unfinished runs.

        Raises:
            InputError: a dataset is missing, so its runs would fail.
        """
        left = [run for run in self.runs.values() if run.result is None]
        for name in dict.fromkeys(run.config.data.dataset for run in left):
            check_root(name, execution.data_root)
        return tuple(Job(config=run.config, execution=execution, folder=run.folder, label=run.label) for run in left)

    def describe(
        self, device: str, *, parallel: int | None = None, timed: Callable[[RunConfig], float | None] | None = None
    ) -> str:
        """The plan in a line: runs, images, expected time.

        Args:
            device: "cpu" or "cuda".
            parallel: runs that proceed at full speed at once; None if a cluster decides.
            timed: gives the seconds of a run whose method has no finished run, from a few steps on this machine.
        """
        left = [run.config for run in self.runs.values() if run.result is None]
        counts = Counter(run.status for run in self.runs.values())
        shown = [status for status in ("done", "begun", "failed before") if counts[status] or status == "done"]
        parts = [f"{counts[status]} {status}" for status in shown]
        text = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''} ({', '.join(parts)}), {len(left)} to do"
        if not left:
            return text
        works = [work for config in left if (work := work_of(config, device)) is not None]
        if len(works) < len(left):
            return f"{text}; the number of images is not known before they are read"
        text += f": {sum(work.stream_images for work in works):,} stream images"
        known_runs = [(run.config, run.result) for run in self.runs.values() if run.result is not None]
        clock = Clock(device, known_runs, timed)
        seconds = [known for config in left if (known := clock.seconds(config)) is not None]
        untimed = _methods(config for config in left if clock.seconds(config) is None)
        unknown = f"{untimed}: only a run shows how much it trains"
        if not seconds:
            return f"{text}; time unknown for {unknown}"
        if passes := [work.backward_passes for work in works if work.backward_passes is not None]:
            pairs = zip(left, works, strict=True)
            uncounted = _methods(config for config, work in pairs if work.backward_passes is None)
            text += f", {sum(passes):,} backward passes" + (f", not counting {uncounted}" if uncounted else "")
        time = say_seconds(max(sum(seconds) / (parallel or 1), *seconds))  # one run never uses two devices
        basis = "from finished runs" if clock.measured else "a rough guess"
        if timed is not None:
            basis = "from finished runs and a few steps" if clock.measured else "from a few steps on this machine"
        basis += f", without {unknown}" if untimed else ""
        return f"{text}; about {time}{'' if parallel else ' of device time'} on {device} ({basis})"

    def execution_differences(self, execution: Execution) -> str:
        """A warning about finished runs that were not executed as requested now; "" if there are none.

        Finished runs are never repeated, so their numbers would pass for those of the requested execution.
        """
        asked = {name: value for name in RECORDED if (value := getattr(execution, name)) != getattr(Execution, name)}
        results = [run.result for run in self.runs.values() if run.result is not None]
        used = [{name: result.get(name, value) for name, value in asked.items()} for result in results]
        other = [values for values in used if values != asked]
        if not other:
            return ""
        unlike = sorted({pair for values in other for pair in values.items() - asked.items()})
        wanted, actual = (", ".join(f"{name} {value}" for name, value in pairs) for pairs in (asked.items(), unlike))
        runs = f"{len(other)} finished run{'s' if len(other) != 1 else ''}"
        return f"{runs} did not use {wanted} but {actual}; for new runs, give another --out, without --reuse"

    def placed(self, grid: Grid) -> list[PlacedRun]:
        """The finished runs of a grid at their places."""
        runs = self.finished(grid)
        return [runs[entry.key].at(entry.row, entry.column) for entry in grid.entries if entry.key in runs]

    def finished(self, grid: Grid) -> dict[str, FinishedRun]:
        """The finished runs of a grid, each once, by configuration hash."""
        return self._finished(grid.entries)

    def repeats(self, grid: Grid) -> list[list[FinishedRun]]:
        """The finished runs of a grid that differ only by rounding, in groups."""
        return split_repeats(self._finished((*grid.entries, *grid.repeats)).values())[1]

    def _finished(self, entries: Iterable[Entry]) -> dict[str, FinishedRun]:
        return {
            key: FinishedRun(path=run.folder, result=run.result, config=to_dict(run.config.resolved()))
            for key, run in {entry.key: self.runs[entry.key] for entry in entries}.items()
            if run.result is not None
        }

    def refreshed(self) -> Plan:
        """The same plan with the present results of its runs."""
        return Plan(runs={key: replace(run, result=result_of(run.folder)) for key, run in self.runs.items()})


def make_plan(grids: Sequence[Grid], out: Path, *, reuse: Sequence[Path] = (), data_root: str | None = None) -> Plan:
    """Look for the runs of some grids below ``out`` and in folders of finished runs. Writes nothing.

    Runs with equal configurations are one run. Seeds are the outermost loop, so that a table fills evenly.

    Args:
        grids: the grids.
        out: folder of the runs. A run in it with other images than those in ``data_root`` is an error.
        reuse: folders of finished runs. A run in them with other images is skipped.
        data_root: folder of the datasets.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; --out takes a folder")
    fingerprints: dict[str, str | None] = {}

    def images(config: RunConfig) -> str | None:
        key = f"{config.data.dataset} {config.data.options}"
        if key not in fingerprints:
            fingerprints[key] = fingerprint(config.data.dataset, root=data_root, **config.data.options)
        return fingerprints[key]

    known = finished_runs(reuse, images)
    runs: dict[str, PlannedRun] = {}
    entries = [entry for grid in grids for entry in (*grid.entries, *grid.repeats)]
    for entry in sorted(entries, key=lambda entry: entry.config.seed):
        if (key := entry.key) in runs:
            continue
        folder = out / "runs" / key
        _check_images(folder, images(entry.config))
        if (result := result_of(folder)) is None and key in known:
            folder, result = known[key].path, known[key].result
        label = f"{entry.row}, {entry.column}, seed {entry.config.seed}"
        label += f", repeat {entry.config.repeat}" if entry.config.repeat else ""
        runs[key] = PlannedRun(config=entry.config, folder=folder.absolute(), label=label, result=result)
    return Plan(runs=runs)


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a run; None if it is not finished or its result cannot be read."""
    try:
        return RunFolder(folder).result()
    except InputError:
        return None


def finished_runs(
    folders: Sequence[Path], images: Callable[[RunConfig], str | None] = lambda config: None
) -> dict[str, FinishedRun]:
    """Finished runs below some folders, by configuration hash; runs with other images are skipped.

    The hash is computed anew: an older version may have known fewer settings, all at their present defaults.
    """
    runs: dict[str, FinishedRun] = {}
    for run in reversed(find_runs(folders) if folders else []):
        config = from_dict(RunConfig, run.config)
        theirs, ours = run.result.get("data_fingerprint"), images(config)
        if None in (theirs, ours) or theirs == ours:
            runs[config.config_hash()] = run
        else:
            log.warning("skipped %s: made from other images (fingerprint %s, here %s)", run.path, theirs, ours)
    return runs


def _check_images(folder: Path, images: str | None) -> None:
    """Reject a run with other images. A run whose header cannot be read fails later, without affecting the others."""
    run = RunFolder(folder)
    try:
        run.data_fingerprint()
    except InputError:
        return
    run.check_images(images)


def _methods(configs: Iterable[RunConfig]) -> str:
    return ", ".join(sorted({config.learner.method for config in configs}))
