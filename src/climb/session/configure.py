"""Configurations of experiments and learners: from options, or from the folder that they continue."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from climb.arguments import checked
from climb.datasets import own_image_size
from climb.engine import IidChunks, resolve_device
from climb.errors import ClimbError, InputError
from climb.methods import check_config, find_method
from climb.nets import check_backbone, start_weights
from climb.nets.build import find_backbone, missing_extra
from climb.nets.weights import PUBLISHED, RANDOM
from climb.resolve import check_room, continued, given_options, network_of, option_values, resolve
from climb.runs import RunFolder
from climb.settings.config import DataConfig, LearnerConfig, RunConfig, StreamConfig
from climb.settings.fields import check_settings
from climb.settings.recipes import PRETRAINED, SIZES, get_recipe
from climb.streams import takes_tasks

log = logging.getLogger("climb.session")
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
    climb.errors.InputError: unknown preset 'papers'; did you mean 'paper'? Allowed: adapt, default, paper, reference

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
    given = given_options(options)
    stored = None if out is None else RunFolder(out).stored_config()
    if stored is None or stored.stream.kind != LIVE:
        learner = starting_learner(name, given)
    elif size == "auto":
        learner = stored.learner
    else:  # what this size meant when the folder was made may have come from an extra that was or was not installed
        choices = (*PRETRAINED[name], SIZES[name])
        learner = next((each for each in choices if each.backbone == stored.learner.backbone), SIZES[name])
    base = RunConfig(
        recipe="learn",
        data=DataConfig(dataset="own images", image_size=learner.image_size),
        stream=StreamConfig(kind=LIVE, tasks=0),
        learner=learner,
    )
    config = resolve(base, options)
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


def starting_learner(size: str, given: Mapping[str, Any]) -> LearnerConfig:
    """The learner that a new folder of ``climb learn`` starts from: pretrained if the extra is installed.

    Options that decide the network or its weights lead to the size's learner with random weights, which they change.

    Args:
        size: a name of `SIZES`.
        given: options as from `given_options`.
    """
    scratch, weights, backbone = SIZES[size], given.get("weights"), given.get("backbone")
    if weights not in (None, RANDOM, PUBLISHED):
        return replace(scratch, **network_of(weights))
    if weights == PUBLISHED and backbone is not None:
        of_size = next((each for each in PRETRAINED[size] if each.backbone == backbone), None)
        published = find_backbone(backbone).pretrained
        side = scratch.image_size if published is None else published().image_size
        return of_size or replace(scratch, image_size=side)
    custom = "method" in given and find_method(given["method"]).custom_engine
    if weights == RANDOM or backbone is not None or custom:
        return scratch
    missing = []
    for learner in PRETRAINED[size]:
        extra, side = missing_extra(learner.backbone), given.get("image_size", learner.image_size)
        if extra is not None:
            missing.append(extra)
            continue
        try:
            check_backbone(learner.backbone, side)
            start_weights(learner.backbone, learner.weights, side)
        except ClimbError as error:  # too small images, a library that does not import, no connection
            log.warning("not starting from %s: %s", learner.backbone, error)
        else:
            return learner
    if missing and weights is None:
        log.warning(
            "starting from random weights. To start from pretrained ones, in a new folder: pip install 'climb-ssl[%s]'",
            missing[0],
        )
    return PRETRAINED[size][0] if weights == PUBLISHED and PRETRAINED[size] else scratch


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
