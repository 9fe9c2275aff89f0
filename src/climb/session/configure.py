"""Configurations of experiments and learners: from options, or from the folder that they continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from climb.arguments import checked
from climb.datasets import own_image_size
from climb.engine import IidChunks, resolve_device
from climb.errors import InputError
from climb.methods import check_config, find_method
from climb.resolve import check_room, continued, given_options, option_values, resolve
from climb.runs import RunFolder
from climb.settings.config import DataConfig, RunConfig, StreamConfig
from climb.settings.fields import check_settings
from climb.settings.recipes import SIZES, get_recipe
from climb.streams import takes_tasks

LIVE = "own"
"""Kind of the stream of a learner: live images, without tasks."""


@checked()
def experiment(recipe: str | None = None, *, out: str | Path | None = None, **options: Any) -> RunConfig:
    """The configuration that ``climb run`` resolves from the same options (``climb run --help``).

    Args:
        recipe: a named experiment; by default "demo".
        out: folder of the run. If it exists, its stored configuration is the result, and given options that differ are
            refused.
        options: settings by option name: method, tasks, preset, lr, faults, ...

    >>> config = experiment("cifar100-20", preset="paper", method="cla-e", tasks=50)
    >>> config.learner.method, config.learner.lr, config.stream.tasks
    ('cla-e', 0.3, 50)
    >>> experiment("cifar100-20", preset="papers")
    Traceback (most recent call last):
    climb.errors.InputError: unknown preset 'papers'; did you mean 'paper'? Allowed: default, paper, reference

    Raises:
        InputError: for unknown names, and for options that exclude each other.
    """
    config = resolve(get_recipe(recipe or "demo"), options, own_side=own_image_size)
    if config.stream.manifest is None and not takes_tasks(config.stream.kind):
        if options.get("tasks"):
            raise InputError(f"scenario '{config.stream.kind}' decides the number of tasks itself; leave --tasks out")
        config = replace(config, stream=replace(config.stream, tasks=0))
    return _or_stored(config, given_options({"recipe": recipe, **options}), out)


def live_learner(
    *, size: str = "auto", device: str = "auto", out: str | Path | None = None, **options: Any
) -> RunConfig:
    """The configuration that ``climb learn`` resolves from the same options (``climb learn --help``).

    Args:
        size: settings for a kind of machine; "auto" chooses by the device.
        device: where the learner runs.
        out: folder of the learner. If it exists, its stored configuration is the result, and given options that differ
            are refused.
        options: settings by option name, and ``budget``.

    Raises:
        InputError: for unknown names, impossible values, and methods that cannot learn from a live stream.
    """
    name = size if size != "auto" else "cpu" if resolve_device(device).type == "cpu" else "gpu"
    learner = SIZES[name]
    base = RunConfig(
        recipe="learn",
        data=DataConfig(dataset="own images", image_size=learner.image_size),
        stream=StreamConfig(kind=LIVE, tasks=0),
        learner=learner,
    )
    config = resolve(base, options)
    given = given_options(options)
    if size != "auto":
        own = {"backbone", "image_size", "passes", *(() if "budget" in given else ("replay_batch", "capacity"))}
        given = {**option_values(base, own), **given}
    config = _or_stored(config, given, out)
    if reason := unfit_for_live_streams(config.learner.method):
        allowed = "climb learn --help lists the methods that can"
        raise InputError(f"method '{config.learner.method}' cannot learn from a live stream: {reason}; {allowed}")
    check_config(config.learner)
    check_room(config.learner)
    return config


def unfit_for_live_streams(method: str) -> str | None:
    """Why a method cannot learn from an endless stream without tasks; None if it can.

    >>> unfit_for_live_streams("iid"), unfit_for_live_streams("climb")
    ('it needs all images at once', None)
    """
    declared = find_method(method)
    if declared.uses("batch", IidChunks):
        return "it needs all images at once"
    if declared.needs_boundaries:
        return "it needs task boundaries, and a live stream has none"
    if not getattr(declared.memory, "bounded", True):
        return "its memory has no bound"
    return None


def _or_stored(config: RunConfig, options: Mapping[str, Any], out: str | Path | None) -> RunConfig:
    """The stored configuration of the folder ``out``, or ``config`` for a new folder."""
    check_settings(config)  # before the comparison: a value that no run may have is not "another run"
    stored = None if out is None else RunFolder(out).stored_config()  # None if it was edited: the folder refuses it
    if stored is None or stored.config_hash() == config.config_hash():
        return config
    if (stored.stream.kind == LIVE) != (config.stream.kind == LIVE):
        return config  # a run in a learner's folder or the reverse: the folder refuses it
    return continued(stored, options, Path(str(out)))
