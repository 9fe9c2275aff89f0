"""`learn`: the whole thing as one function."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from climb.config import Execution, check_choices
from climb.datasets.decode import EXTENSIONS
from climb.engine import resolve_device
from climb.errors import InputError
from climb.learn.loop import Learning
from climb.learn.settings import settle
from climb.learn.sizes import SizeName
from climb.learn.track import TrackerName, check_tracker, tracking
from climb.runs import Finished, Result, RunFolder
from climb.runs.versions import versions
from climb.sources import open_source
from climb.sources.open import STANDARD_INPUT

log = logging.getLogger("climb.learn")


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a learner has become."""

    folder: Path
    images: int
    """Images learned, in all sittings."""
    new_images: int
    """Those of this sitting."""
    passed_over: dict[str, int]
    """Images that were not used, by reason, in all sittings."""
    stored: int
    """Images in the memory."""
    capacity: int
    """The most that may be in it; 0 for a method without a memory."""
    memory_bytes: int
    seconds: float

    def _repr_html_(self) -> str:
        return Result({**asdict(self), "folder": str(self.folder)})._repr_html_()


def learn(
    images: str | Path | Iterable[Any],
    *,
    out: str | Path,
    watch: bool = False,
    size: SizeName = "auto",
    budget: str | int | None = None,
    method: str = "climb",
    preset: str = "default",
    objective: str | None = None,
    backbone: str | None = None,
    image_size: int | None = None,
    stream_batch: int | None = None,
    replay_batch: int | None = None,
    passes: int | None = None,
    lr: float | None = None,
    alignment_weight: float | None = None,
    seed: int = 0,
    device: str = "auto",
    every: int = 1,
    workers: int = 2,
    checkpoint_seconds: float = 60.0,
    journal_seconds: float = 10.0,
    track: TrackerName | None = None,
) -> Learned:
    """Learn from a stream of images in the folder ``out``, or go on with what was learned there before.

    Args:
        images: whatever `climb.sources.open_source` takes: a folder, tar shards, a video, a camera, ``hf:OWNER/NAME``,
            ``-``; or any iterable of pictures, uint8 arrays, tensors, paths or bytes.
        out: the learner's folder; the same settings continue it, others are refused.
        watch: follow a folder or a pattern of shards, and do not end.
        size: settings for a kind of machine: "edge", "cpu", "gpu", or "auto" by the device.
        budget: most images in memory (2500), or most megabytes of it ("200MB").
        method: which method (``climb methods``).
        preset: "default", "paper" or "reference".
        objective: another objective than the method's.
        backbone: another network than the size's.
        image_size: side that images are resized and cropped to.
        stream_batch: images of one mini-batch.
        replay_batch: images replayed in each pass.
        passes: gradient steps per mini-batch.
        lr: learning rate; None takes the preset's or the method's.
        alignment_weight: weight of the alignment loss.
        seed: seed of everything random.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        every: take every n-th frame of a video or camera.
        workers: threads that load images.
        checkpoint_seconds: time between two checkpoints; a source that cannot be read again loses at most so much.
        journal_seconds: time between two journal lines.
        track: "tensorboard" or "wandb", beside the journal.

    Raises:
        InputError: before any work, for settings, a source or a folder that cannot be used.
        climb.runs.Interrupted: a signal asked to stop; all is saved, and the same call continues.
        climb.runs.Finished: a signal asked to stop when all was learned; there is nothing to continue.
    """
    if not (checkpoint_seconds >= 0 and journal_seconds >= 0):
        raise InputError(
            f"checkpoint_seconds and journal_seconds must be at least 0; given {checkpoint_seconds}, {journal_seconds}"
        )
    check_tracker(track)
    config = settle(
        size=size,
        budget=budget,
        method=method,
        preset=preset,
        objective=objective,
        backbone=backbone,
        image_size=image_size,
        stream_batch=stream_batch,
        replay_batch=replay_batch,
        passes=passes,
        lr=lr,
        alignment_weight=alignment_weight,
        seed=seed,
        device=device,
    )
    source = open_source(images, image_size=config.learner.image_size, watch=watch, every=every, workers=workers)
    execution = Execution(device=device, checkpoint_seconds=checkpoint_seconds, keep=True)
    check_choices(execution)
    folder = RunFolder(out)
    with folder.claimed(config, execution, versions(resolve_device(device)), by="learn"):
        said = "standard input" if source.name == STANDARD_INPUT else source.name
        if not source.rereadable:
            log.warning(
                "what %s gives cannot be asked for again: a crash or a power cut loses what came since the last "
                "checkpoint, at most the last %g s (--checkpoint-seconds)",
                said,
                checkpoint_seconds,
            )
        learning = Learning(config, execution, folder, journal_seconds=journal_seconds)
        before = learning.engine.budget.images
        with tracking(track, folder.path, config, before) as tracker:
            asked_too_late = learning.follow(source, tracker)
    nothing = learning.engine.budget.images == 0 and not learning.passed_over
    if nothing and not source.rereadable:
        log.warning("no image came from %s", said)
    elif nothing:
        log.warning(
            "no image was found in %s: files count by their extension (%s). Tar shards are given by a pattern, in "
            "quotes: 'FOLDER/*.tar'; Parquet files too: 'hf:FOLDER/*.parquet'; videos one at a time",
            source.name,
            " ".join(sorted(EXTENSIONS)),
        )
    memory = learning.engine.parts.memory
    learned = Learned(
        folder=folder.path,
        images=learning.engine.budget.images,
        new_images=learning.engine.budget.images - before,
        passed_over=dict(learning.passed_over),
        stored=0 if memory is None else len(memory),
        capacity=0 if memory is None else memory.capacity,
        memory_bytes=0 if memory is None else memory.nbytes,
        seconds=learning.seconds,
    )
    if asked_too_late:
        raise Finished(learned)
    return learned
