"""From a configuration and a folder to a result: the way into a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from climb.config import Execution, RunConfig, check_choices
from climb.datasets import fingerprint
from climb.engine import resolve_device
from climb.errors import InputError
from climb.impossible import check_config
from climb.parallel import joined, own_device
from climb.runs.folder import RunFolder
from climb.runs.result import Result
from climb.runs.run import Run
from climb.runs.versions import versions

log = logging.getLogger("climb.runs")


def execute(config: RunConfig, execution: Execution, out: str | Path) -> Result:
    """Run an experiment in the folder ``out``, or continue it, or give its result if it is finished.

    In processes that torchrun started, all train one learner together; the first evaluates and has the folder.

    Raises:
        InputError: before any work, for a configuration, a dataset or a folder that cannot be used.
        Interrupted: a signal asked to stop; the same call continues.
        Finished: a signal asked to stop when the result was being written; it is.
    """
    check_choices(config)
    check_choices(execution)
    if not execution.checkpoint_seconds >= 0:
        raise InputError(f"checkpoint_seconds must be at least 0; given {execution.checkpoint_seconds}")
    check_config(config.learner)
    _check_apart(config, execution, Path(out))
    with determinism(execution.deterministic):
        device = resolve_device(own_device(execution.device))
        with joined(device) as group:
            folder = RunFolder(out)
            images = _fingerprint(config, execution) if group.first else None
            looked = _looked_at(folder, config, images) if group.first else None
            finished: dict[str, Any] | None = group.from_first(looked)
            if finished is not None:
                return Result(finished)
            run = Run(config, execution, folder, device)
            if not group.first:
                return Result(run.execute())
            # Not before: a run that cannot start leaves no folder.
            with folder.claimed(config, execution, versions(device), images=images):
                return Result(folder.result() or run.execute())  # another process may have finished it meanwhile


def _check_apart(config: RunConfig, execution: Execution, out: Path) -> None:
    """Refuse to write among the images of a folder: a run would find itself as one more class, and not continue."""
    if config.data.dataset != "folder" or execution.data_root is None:
        return
    root = Path(execution.data_root).expanduser()
    parts = [root / part for part in ("train", "test", "val")] if (root / "train").is_dir() else [root]
    if any(out.resolve().is_relative_to(part.resolve()) for part in parts):
        raise InputError(f"{out} lies among the images of {root}, and would count as a class; give --out elsewhere")


def _fingerprint(config: RunConfig, execution: Execution) -> str | None:
    return fingerprint(config.data.dataset, root=execution.data_root, **config.data.options)


def _looked_at(folder: RunFolder, config: RunConfig, images: str | None) -> dict[str, Any] | None:
    """The result of a finished run; a folder that is another run's, or of other images, is refused."""
    folder.check(config)
    folder.check_images(images)
    result = folder.result()
    if result is not None and images is None and "data_fingerprint" in result:
        log.warning("the images of %s were not found: its result was not held to them", folder.path)
    return result


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Inside, only operations that give the same bits every time; as before after it."""
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
