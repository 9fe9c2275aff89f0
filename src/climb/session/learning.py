"""`learn`: learning from a live source, as one function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from climb.arguments import checked
from climb.engine import resolve_device
from climb.runs import RunFolder
from climb.runs.provenance import versions
from climb.session.configure import live_learner
from climb.session.feeds import LiveFeed
from climb.session.health import GuardLines
from climb.session.journal_lines import LearnerLines
from climb.session.labelled_probe import LabelledProbe
from climb.session.novelty import novelty_observers
from climb.session.observer import Observer, check_observers
from climb.session.results import Learned, LearnerResult
from climb.session.session import Session
from climb.session.trackers import check_tracker
from climb.settings.config import Execution, LearnOptions
from climb.settings.fields import pop_settings
from climb.sources import open_source


@checked()
def learn(
    images: str | Path | Iterable[Any], *, out: str | Path, observers: Sequence[Observer] = (), **options: Any
) -> Learned:
    """Learn from a stream of images into the folder ``out``, or continue the learner in it.

    Args:
        images: a source of `climb.sources.open_source`: a folder, tar shards, a video, a camera, ``hf:OWNER/NAME``,
            ``-``; or any iterable of pictures, uint8 arrays, tensors, paths or bytes.
        out: the learner's folder. An existing one continues under its stored configuration; given options that differ
            from it are refused.
        observers: called during learning, after climb's own observers.
        options: the options of ``climb learn`` by name, with underscores: the fields of
            `climb.settings.config.LearnOptions`, ``device``, ``precision``, ``engine`` and ``checkpoint_seconds`` of
            `Execution`, ``seed``, ``pixel_range``, and the settings of `LearnerConfig` and `MemoryConfig`.

    Raises:
        InputError: before any work, for settings, a source or a folder that cannot be used.
        climb.session.Interrupted: a signal stopped it; all is saved, and the same call continues.
        climb.session.Finished: a signal arrived after all images were learned.
    """
    if isinstance(options.get("budget"), int):
        options["budget"] = str(options["budget"])
    live = pop_settings(LearnOptions, options)
    execution = replace(pop_settings(Execution, options), keep=True)
    check_tracker(live.track)
    novelty = novelty_observers(live)
    plugins = check_observers(observers)
    config = live_learner(size=live.size, budget=live.budget, device=execution.device, out=out, **options)
    side = config.learner.image_size
    source = open_source(
        images,
        image_size=side,
        watch=live.watch,
        every=live.every,
        workers=live.workers,
        pixel_range=config.data.options.get("pixel_range"),
    )
    probes = [LabelledProbe(live.probe, config)] if live.probe is not None else []
    folder = RunFolder(out)
    with folder.claimed(config, execution, versions(resolve_device(execution.device)), by="learn"):
        feed = LiveFeed(source, size=config.learner.stream_batch, path=folder.path / "learned.u64")
        lines = LearnerLines(feed, every_seconds=live.journal_seconds, tracker=live.track)
        own = [lines, GuardLines(), *novelty, *probes, LearnerResult(feed)]
        learned: Learned = Session(config, execution, folder, feed, observers=own, plugins=plugins).run()
    return learned
