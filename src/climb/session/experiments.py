"""`execute`: an experiment, from a configuration and a folder to a result."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from climb.arguments import checked
from climb.datasets import fingerprint, load, own_image_size
from climb.engine import resolve_device
from climb.errors import InputError
from climb.memory.store import fits
from climb.methods.validate import check_config
from climb.parallel import SINGLE, Group, joined, own_device
from climb.registry import load_file
from climb.resolve import with_weights
from climb.runs import Result, RunFolder
from climb.runs.provenance import versions
from climb.runs.run_file_checks import check_complete
from climb.session.evaluation import Evaluator
from climb.session.feeds import DatasetFeed
from climb.session.journal_lines import TrainLines
from climb.session.observer import Observer, check_observers
from climb.session.results import RunResult, write_page
from climb.session.session import Session
from climb.settings.config import Execution, RunConfig
from climb.settings.fields import check_settings
from climb.streams import Manifest, Stream, make

log = logging.getLogger("climb.session")


@checked()
def execute(config: RunConfig, execution: Execution, out: str | Path, *, observers: Sequence[Observer] = ()) -> Result:
    """Run an experiment in the folder ``out``, or continue it, or return its result if it is complete.

    Processes that torchrun started train one learner together; the first evaluates and writes the folder.

    Args:
        config: what to run.
        execution: how to run it; no part of the run's identity.
        out: the run folder.
        observers: called during the run, after climb's own observers.

    Raises:
        InputError: before any work, for a configuration, a dataset or a folder that cannot be used.
        Interrupted: a signal arrived; the same call continues.
        Finished: a signal arrived while the result was written; the result is complete.
    """
    for file in execution.imports:
        load_file(file)
    check_settings(config)
    check_settings(execution)
    config = replace(config, learner=with_weights(config.learner))
    check_config(config.learner)
    _check_apart(config, execution, Path(out))
    plugins = check_observers(observers)
    with determinism(execution.deterministic):
        device = resolve_device(own_device(execution.device))
        with joined(device) as group:
            folder = RunFolder(out)
            images, finished = None, None
            if group.first:
                images = fingerprint(config.data.dataset, root=execution.data_root, **config.data.options)
                finished = _finished(folder, config, images)
            finished = group.from_first(finished)
            if finished is not None:
                return Result(finished)
            session = open_session(config, execution, folder, device, group, plugins)
            if not group.first:
                return Result(session.run())
            # Not before: a run that cannot start leaves no folder.
            with folder.claimed(config, execution, versions(device), images=images):
                return Result(folder.result() or session.run())  # another process may have completed it meanwhile


def open_session(
    config: RunConfig,
    execution: Execution,
    folder: RunFolder,
    device: torch.device,
    group: Group = SINGLE,
    plugins: Sequence[Observer] = (),
) -> Session:
    """The session that trains and evaluates in a folder: dataset, stream, feed and observers."""
    name, side = config.data.dataset, config.data.image_size
    side = None if side == own_image_size(name) else side
    options = {"normalisation": config.resolved().data.normalisation or "measured", **config.data.options}
    # The first process downloads and decodes; the others find its files.
    with group.first_process_first():
        data = load(name, root=execution.data_root, image_size=side, seed=config.seed, **options)
    if data.image_size != config.learner.image_size:
        raise InputError(
            f"dataset '{data.name}' has images of {data.image_size} px, the learner expects "
            f"{config.learner.image_size} px; set both to one size"
        )
    manifest = manifest_of(config, len(data.classes))
    stream = Stream(manifest, data.train.labels, data.test.labels)
    data = data.to(device) if fits(data.train.images.nbytes + data.test.images.nbytes, device) else data
    evaluator = Evaluator(config, data, stream)
    feed = DatasetFeed(data, stream, config.learner, device)
    observers = [TrainLines(), evaluator, RunResult(manifest, evaluator)]
    return Session(config, execution, folder, feed, observers, plugins, group)


def manifest_of(config: RunConfig, classes: int) -> Manifest:
    """The scenario of a configuration: a saved one, or one of the named kinds."""
    stream = config.stream
    if stream.manifest is not None:
        return Manifest.from_json(json.dumps(stream.manifest))
    return make(stream.kind, classes, stream.tasks, seed=config.seed, **stream.options)


def _check_apart(config: RunConfig, execution: Execution, out: Path) -> None:
    """Reject a run folder among the images of a folder: it would count as a class."""
    if config.data.dataset != "folder" or execution.data_root is None:
        return
    root = Path(execution.data_root).expanduser()
    parts = [root / part for part in ("train", "test", "val")] if (root / "train").is_dir() else [root]
    if any(out.resolve().is_relative_to(part.resolve()) for part in parts):
        raise InputError(f"{out} lies among the images of {root}, and would count as a class; give --out elsewhere")


def _finished(folder: RunFolder, config: RunConfig, images: str | None) -> dict[str, Any] | None:
    """The result of a complete run. A folder with another run or of other images is rejected."""
    folder.check(config, images)
    result = folder.result()
    if result is not None:
        check_complete(result, folder.result_path)
    if result is not None and images is None and "data_fingerprint" in result:
        log.warning("the images of %s were not found; fingerprint not checked", folder.path)
    if result is not None and not folder.report_path.exists():  # killed before the page was written
        write_page(folder.path)
    return result


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Inside, torch uses deterministic operations only."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
