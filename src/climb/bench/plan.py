"""What is left to do of some grids: which runs they share, which are finished, which can be continued."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from climb.bench.cell import Placed
from climb.bench.collect import Found, find_runs
from climb.bench.estimate import Clock, say_seconds, work_of
from climb.bench.executors.job import ERROR_FILE, Job
from climb.bench.grids import Grid
from climb.config import Execution, RunConfig, from_dict, to_dict
from climb.datasets import check_root, fingerprint
from climb.errors import InputError
from climb.runs import RunFolder

log = logging.getLogger("climb.bench")
RECORDED = ("precision", "engine", "deterministic")
"""What a result says of how it was carried out, by the names of `Execution`, and a person may have asked for."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run, and where it lies or will lie."""

    config: RunConfig
    folder: Path
    label: str
    """Its first place: "CLIMB, 20 tasks, seed 0"."""
    status: str
    """"done", "begun", "failed" or "new"."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs of some grids, each once, by configuration hash; in the order in which they are carried out."""

    runs: Mapping[str, Planned]

    def jobs(self, execution: Execution) -> tuple[Job, ...]:
        """What is left to do; refused where all of it would fail for want of its images."""
        left = [run for run in self.runs.values() if run.status != "done"]
        for name in dict.fromkeys(run.config.data.dataset for run in left):
            check_root(name, execution.data_root)
        return tuple(Job(config=run.config, execution=execution, folder=run.folder, label=run.label) for run in left)

    def count(self, status: str) -> int:
        """How many runs stand so."""
        return sum(run.status == status for run in self.runs.values())

    def describe(self, device: str, *, parallel: int | None = None) -> str:
        """The plan in a few words: runs, images, expected time on a kind of device.

        ``parallel`` is how many runs proceed at full speed at once; None where a cluster decides.
        """
        left = [run.config for run in self.runs.values() if run.status != "done"]
        parts = [f"{self.count('done')} done"]
        parts += [f"{self.count('begun')} begun"] if self.count("begun") else []
        parts += [f"{self.count('failed')} failed before"] if self.count("failed") else []
        text = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''} ({', '.join(parts)}), {len(left)} to do"
        works = [work for config in left if (work := work_of(config, device)) is not None]
        if not left:
            return text
        if len(works) < len(left):
            return f"{text}; the number of images is not known before they are read"
        text += f": {sum(work.stream_images for work in works):,} stream images"
        clock = Clock(device, self._finished())
        seconds = [clock.seconds(config) for config in left]
        untimed = _methods(left, [one is None for one in seconds])
        unforeseen = f"{untimed}: how much is trained there shows only in a run"
        if all(one is None for one in seconds):
            return f"{text}; nothing is known of the time of {unforeseen}"
        uncounted = _methods(left, [work.backward_passes is None for work in works])
        if any(work.backward_passes is not None for work in works):
            text += f", {sum(work.backward_passes or 0 for work in works):,} backward passes"
            text += f" beside those of {uncounted}" if uncounted else ""
        known = [one or 0.0 for one in seconds]
        time = say_seconds(max(sum(known) / (parallel or 1), max(known)))  # no run is shared between devices
        time += "" if parallel else " of device time"
        basis = "by the finished runs" if clock.measured else "a rough guess"
        return f"{text}; about {time} on {device} ({basis}{f', without {unforeseen}' if untimed else ''})"

    def made_otherwise(self, execution: Execution) -> str:
        """How many finished runs were not made as is asked for now, in what, and how to have them so; "" if none.

        They are never repeated, so their numbers would be taken for what was asked for.
        """
        usual = Execution()
        asked = {name: value for name in RECORDED if (value := getattr(execution, name)) != getattr(usual, name)}
        found = [
            said
            for _, result in self._finished()
            if (said := [f"{name} {result[name]}" for name, value in asked.items() if result.get(name, value) != value])
        ]
        if not found:
            return ""
        names = ", ".join(f"{name} {value}" for name, value in asked.items())
        return (
            f"{len(found)} finished run{'s were' if len(found) != 1 else ' was'} not made with {names} but with "
            f"{', '.join(sorted({one for said in found for one in said}))}; for new ones, give another --out, without "
            "--reuse"
        )

    def placed(self, grid: Grid) -> list[Placed]:
        """The finished runs of a grid, each at its places."""
        runs = self.finished(grid)
        return [
            Placed(row=entry.row, column=entry.column, result=run.result, config=run.config)
            for entry in grid.entries
            if (run := runs.get(entry.config.config_hash())) is not None
        ]

    def finished(self, grid: Grid) -> dict[str, Found]:
        """The finished runs of a grid, each once, by configuration hash."""
        found: dict[str, Found] = {}
        for key in dict.fromkeys(entry.config.config_hash() for entry in grid.entries):
            run = self.runs[key]
            result = result_of(run.folder)
            if result is not None:
                found[key] = Found(path=run.folder, result=result, config=to_dict(run.config.resolved()))
        return found

    def _finished(self) -> Iterable[tuple[RunConfig, dict[str, Any]]]:
        for run in self.runs.values():
            result = result_of(run.folder) if run.status == "done" else None
            if result is not None:
                yield run.config, result


def make_plan(grids: Sequence[Grid], out: Path, *, reuse: Sequence[Path] = (), data_root: str | None = None) -> Plan:
    """Find out what is there, below ``out`` and in folders of finished runs to ``reuse``. Writes nothing.

    Equal configurations are one run. Seeds are the outermost loop, so that a table fills evenly. A run below ``out``
    that was made from other images than those in ``data_root`` is refused; one to reuse is passed over.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; --out takes a folder")
    images = _Images(data_root)
    known = finished_runs(reuse, images)
    entries = sorted((entry for grid in grids for entry in grid.entries), key=lambda entry: entry.config.seed)
    runs: dict[str, Planned] = {}
    for entry in entries:
        key = entry.config.config_hash()
        if key in runs:
            continue
        folder = out / "runs" / key
        if _legible(folder):
            RunFolder(folder).check_images(images.of(entry.config))
        status = status_of(folder)
        if status != "done" and key in known:
            folder, status = known[key], "done"
        label = f"{entry.row}, {entry.column}, seed {entry.config.seed}"
        runs[key] = Planned(config=entry.config, folder=folder.absolute(), label=label, status=status)
    return Plan(runs=runs)


def _legible(folder: Path) -> bool:
    """Whether what a run was started with can be read; if not, that run fails and the others go on."""
    try:
        RunFolder(folder).data_fingerprint()
    except InputError:
        return False
    return True


def _methods(runs: Sequence[RunConfig], which: Sequence[bool]) -> str:
    """The methods of some of the runs, by name."""
    return ", ".join(sorted({run.learner.method for run, one in zip(runs, which, strict=True) if one}))


def status_of(folder: Path) -> str:
    """How a run stands: "done", "failed", "begun" or "new"."""
    run = RunFolder(folder)
    if result_of(folder) is not None:
        return "done"
    if run.result_path.exists() or (folder / ERROR_FILE).exists():
        return "failed"
    return "begun" if run.config_path.exists() else "new"


def result_of(folder: Path) -> dict[str, Any] | None:
    """What a run found; None where it is not finished, or its result cannot be read: that costs the others nothing."""
    try:
        return RunFolder(folder).result()
    except InputError:
        return None


def finished_runs(folders: Sequence[Path], images: _Images | None = None) -> dict[str, Path]:
    """Finished runs anywhere below some folders, by configuration hash; those of other images are passed over.

    The hash is taken anew from the configuration: one that an older version wrote may know fewer settings, all of
    which it had at what is now their default.
    """
    found: dict[str, Path] = {}
    for run in reversed(find_runs(folders) if folders else []):
        config = from_dict(RunConfig, run.config)
        there, given = run.result.get("data_fingerprint"), None if images is None else images.of(config)
        if None in (there, given) or there == given:
            found[config.config_hash()] = run.path
        else:
            log.warning("%s is not reused: it was made from other images (%s there, %s given)", run.path, there, given)
    return found


class _Images:
    """What the images of runs are known by; each dataset is looked at once for all of its runs."""

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._seen: dict[str, str | None] = {}

    def of(self, config: RunConfig) -> str | None:
        """The fingerprint of a run's images as they lie here."""
        key = f"{config.data.dataset} {config.data.options}"
        if key not in self._seen:
            self._seen[key] = fingerprint(config.data.dataset, root=self._root, **config.data.options)
        return self._seen[key]


def refreshed(plan: Plan) -> Plan:
    """The same plan, as its runs stand now."""
    runs = {
        key: run if run.status == "done" else replace(run, status=status_of(run.folder))
        for key, run in plan.runs.items()
    }
    return Plan(runs=runs)
