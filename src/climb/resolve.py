"""From options to a configuration. `resolve` is the one way for runs, learners, grids, tuning and `climb.Climb`.

Options are the settings of `climb.settings.config` by name, in one flat mapping, with ``faults`` and ``budget``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import groupby
from operator import getitem
from pathlib import Path
from typing import Any

import torch

from climb.arguments import check_value
from climb.errors import InputError, unknown
from climb.methods import PartFactory, build_parts, choose_method, choose_objective
from climb.methods.validate import refuse_unused
from climb.nets.foreign import MODULE
from climb.nets.weight_files import read_weights
from climb.nets.weights import OWN, PUBLISHED, RANDOM, absolute, weights_of
from climb.settings.config import (
    DataConfig,
    DataOptions,
    EvaluationConfig,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
    StreamOptions,
    from_dict,
    to_dict,
)
from climb.settings.fields import sections_of, settings_of
from climb.settings.presets import ADAPT, FAULTS, NETWORK, apply_preset, learning_rates, with_faults
from climb.settings.recipes import with_rates


def _paths(section: type, *path: str) -> dict[str, tuple[str, ...]]:
    """Where a configuration holds each option of a section and of the sections in it; ``path`` leads to the section."""
    paths = {each.option: (*path, name) for name, each in settings_of(section).items() if each.kind is not dict}
    for name, inner in sections_of(section).items():
        paths |= _paths(inner, *path, name)
    return paths


PATHS = {
    **_paths(RunConfig),
    **_paths(DataOptions, "data", "options"),
    **_paths(StreamOptions, "stream", "options"),
    "manifest": ("stream", "manifest"),
}
"""Where a `RunConfig` holds each option."""
DECLARED = {
    each.option: each
    for section in (RunConfig, LearnerConfig, MemoryConfig, StreamConfig, DataConfig, DataOptions, EvaluationConfig)
    for each in settings_of(section).values()
    if each.has_option
}
"""The setting behind each option."""
OF_STREAM = {each.option for each in settings_of(StreamOptions).values()} - {"manifest"}
"""The options of scenarios."""


def resolve(
    base: RunConfig,
    options: Mapping[str, Any],
    *,
    own_rates: bool = True,
    own_side: Callable[[str], int] | None = None,
) -> RunConfig:
    """The configuration of a run: base, preset, rates of method, objective and recipe, given values, faults, budget; in
    this order.

    Args:
        base: a recipe, a size, or a grid's setting.
        options: settings by option name; None and () mean "not given".
        own_rates: False for CLIMB's rates whatever the method.
        own_side: gives the image size of a dataset by name; by default, ``base`` has the size.

    >>> config = resolve(RunConfig(), {"method": "cla-r", "capacity": 1000, "passes": None})
    >>> config.learner.lr, config.learner.memory.capacity, config.learner.passes
    (0.1, 1000, 3)
    """
    given = given_options(options)
    if "weights" in given and "backbone" not in given:
        given |= {name: value for name, value in network_of(given["weights"]).items() if name == "backbone"}
    config = base
    if "dataset" in given:  # the options of another dataset's loader do not apply
        config = replace(config, data=DataConfig(dataset=given["dataset"]))
    side = given.get("image_size", config.data.image_size)
    if side is None:
        side = own_side(config.data.dataset) if own_side else config.learner.image_size
    preset = given.get("preset", config.learner.preset)
    weights = given.get("weights", config.learner.weights)
    if preset == LearnerConfig.preset and "preset" not in given and weights != RANDOM:
        preset = ADAPT
    learner = apply_preset(replace(config.learner, image_size=side), preset)
    learner = choose_method(learner, given.get("method", learner.method))
    if not own_rates or preset == ADAPT:  # rates for random weights would destroy pretrained ones
        learner = replace(learner, **learning_rates(preset, side))
    if "objective" in given:
        learner = choose_objective(learner, given["objective"])
    learner = with_rates(learner, config.recipe)
    if "capacity" in given:  # centroids scale with it
        learner = replace(learner, memory=replace(learner.memory, stm_centroids=None, ltm_centroids=None))
    config = replace(config, learner=learner, evaluation=replace(config.evaluation, network=NETWORK[preset]))
    config = with_settings(config, {name: value for name, value in given.items() if name in PATHS})
    if "image_size" in given:
        config = replace(config, data=replace(config.data, image_size=side))
    config = _with_budget_and_faults(config, given)
    learner = config.learner
    if {"weights", "backbone", "image_size"} & given.keys():  # the digest of the base is of other weights
        learner = replace(learner, weights_sha256=given.get("weights_sha256"))
    return replace(config, learner=with_weights(learner))


def with_weights(config: LearnerConfig) -> LearnerConfig:
    """The configuration with the digest of its start weights. Weights that do not fit the network are refused.

    >>> with_weights(LearnerConfig(backbone="micro", weights="pretrained"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: backbone 'micro' comes without pretrained weights; give a file (--weights FILE), or a ...
    """
    settings_of(LearnerConfig)["weights"].check(config.weights)
    config = replace(config, weights=absolute(config.weights))
    if config.weights == OWN and config.backbone.startswith(MODULE):  # `Climb` has the module
        return config
    start = weights_of(config)
    return replace(config, weights_sha256=None if start is None else start.sha256)


def network_of(weights: str) -> dict[str, Any]:
    """The options ``backbone`` and ``image_size`` of the network whose weights a file of climb holds; {} for others."""
    if weights in (RANDOM, PUBLISHED, OWN):
        return {}
    content = read_weights(weights)
    return {} if content.backbone is None else {"backbone": content.backbone, "image_size": content.image_size}


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given. Unknown names are refused, and a scenario is read from its file."""
    given = {name: value for name, value in options.items() if value is not None and not _is_empty(value)}
    if isinstance(given.get("pixel_range"), tuple):  # a stored configuration has a list
        given["pixel_range"] = list(given["pixel_range"])
    for name in given:
        if name not in PATHS and name not in ("faults", "budget"):
            raise unknown("setting", name, [*PATHS, "faults", "budget"])
        if (each := DECLARED.get(name)) is not None and not each.choices:
            check_value(name, given[name], each.hint)
    if "manifest" in given:
        if clashing := ({"tasks", "scenario"} | OF_STREAM) & given.keys():
            raise InputError(f"--manifest replays a saved scenario: leave out --{', --'.join(sorted(clashing))}")
        given["manifest"] = _read_manifest(given["manifest"])
    if isinstance(given.get("order"), str | Path):
        given["order"] = _read_order(given["order"])
    return given


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and not value


def with_settings(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The configuration with other values, by option name, and nothing else changed.

    >>> with_settings(RunConfig(), {"lr": 0.1, "capacity": 500}).learner.memory.capacity
    500
    """
    data = to_dict(config)
    for name, value in values.items():
        *sections, field = PATHS[name]
        reduce(getitem, sections, data)[field] = value
    return from_dict(RunConfig, data)


def option_values(config: RunConfig, names: Iterable[str]) -> dict[str, Any]:
    """The values of a configuration by option name; None where it does not say.

    >>> option_values(RunConfig(), ["lr", "cap"])
    {'lr': 0.3, 'cap': None}
    """
    data: Any = to_dict(config)
    return {name: reduce(lambda node, key: node.get(key), PATHS[name], data) for name in names}


def continued(stored: RunConfig, options: Mapping[str, Any], where: Path) -> RunConfig:
    """The configuration of an existing folder. Given options that differ from it are refused.

    Options that are not given do not count: their defaults may have changed since the folder was made.

    Args:
        stored: the folder's configuration.
        options: as from `given_options`.
        where: the folder, for the error.
    """
    resolved = stored.resolved()
    wanted = {name: value for name, value in options.items() if name in PATHS}
    if "weights" in wanted:  # a file may have been moved: its content counts
        moved = with_weights(replace(stored.learner, weights=wanted["weights"], weights_sha256=None))
        if moved.weights_sha256 == stored.learner.weights_sha256:
            del wanted["weights"]
            stored = replace(stored, learner=replace(stored.learner, weights=moved.weights))
    for fault in options.get("faults", ()):
        wanted |= FAULTS.get(fault, {})
    if "budget" in options:
        wanted["capacity"] = with_budget(resolved.learner, options["budget"]).memory.capacity
    old = option_values(resolved, wanted)
    different = [
        f"{'.'.join(PATHS[name])}: {old[name]} there, {value} given"
        for name, value in wanted.items()
        if old[name] != value
    ]
    if different:
        raise InputError(
            f"{where} holds another run ({'; '.join(different)}); give another --out, leave these options out to "
            "continue it, or delete the folder to start over"
        )
    return stored


def _with_budget_and_faults(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    learner, faults = config.learner, given.get("faults", ())
    if faults and learner.preset == "reference":
        raise InputError("the preset reference has the faults of the released code already; leave --faults out")
    learner = with_faults(learner, faults)
    refuse_unused(learner.method, faults=faults, prune=given.get("prune"))
    if "budget" in given:
        learner = with_budget(learner, given["budget"])
        if "replay_batch" not in given:  # a given one that does not fit is refused later
            learner = replace(learner, replay_batch=max(1, min(learner.replay_batch, learner.memory.capacity // 2)))
    return replace(config, learner=learner)


def _read_manifest(path: str | Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # also files that are not text, and endless brackets
        raise InputError(f"cannot read the scenario {path}: {error}") from error
    return manifest


def _read_order(path: str | Path) -> list[list[int | str]]:
    """The segments of a custom stream: indices, or names if any line is none."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the order {path}: {error}") from error
    blocks = [list(block) for filled, block in groupby(lines, key=bool) if filled]
    if not blocks:
        raise InputError(f"the order {path} is empty; give an index or a file name of a training image per line")
    if all(line.isdecimal() for block in blocks for line in block):
        return [[int(line) for line in block] for block in blocks]
    return [[*block] for block in blocks]


# -- memory budgets ------------------------------------------------------------------------------------------------


def with_budget(config: LearnerConfig, budget: str | int) -> LearnerConfig:
    """The configuration whose memory holds so many images ("2500") or takes so many megabytes ("200MB").

    A megabyte is 1,000,000 bytes. Megabytes cover all that the memory reserves: images, centroids, embeddings.

    >>> with_budget(LearnerConfig(), "1000").memory.capacity
    1000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(MB|GB)?\s*", str(budget), re.IGNORECASE)
    if match is None or (match[2] is None and "." in match[1]):
        raise InputError(f"budget is '{budget}'; type a number of images (2500) or of megabytes (200MB)")
    if match[2] is None:
        return _with_capacity(config, int(match[1]))
    most = int(float(match[1]) * (1_000_000 if match[2].upper() == "MB" else 1_000_000_000))
    _check_bytes(most, "that budget is")
    fits, too_many = 0, most // (3 * config.image_size**2) + 1
    # To half a percent: memories with centroids or pairs take more bytes an image when they hold more.
    while too_many - fits > max(1, too_many // 200):
        middle = (fits + too_many) // 2
        if _memory_bytes(_with_capacity(config, middle)) <= most:
            fits = middle
        else:
            too_many = middle
    if fits == 0:
        raise InputError(f"a budget of {budget} has no room for an image of {config.image_size} px; give more")
    return _with_capacity(config, fits)


def check_room(config: LearnerConfig) -> None:
    """Refuse a memory whose images alone exceed the main memory of this machine.

    >>> check_room(with_budget(LearnerConfig(), 10**12))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: a memory of 1000000000000 images of 32 px takes 3072000.0 GB; this machine has ... GB: ...
    """
    capacity, side = config.memory.capacity, config.image_size
    _check_bytes(3 * side**2 * capacity, f"a memory of {capacity} images of {side} px takes")


def _check_bytes(nbytes: int, subject: str) -> None:
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > available:
        raise InputError(
            f"{subject} {nbytes / 1e9:.1f} GB; this machine has {available / 1e9:.1f} GB: give a smaller --budget or "
            "capacity"
        )


def _with_capacity(config: LearnerConfig, capacity: int) -> LearnerConfig:
    return replace(config, memory=replace(config.memory, capacity=capacity))


def _memory_bytes(config: LearnerConfig) -> int:
    """Bytes that the memory of a configuration would reserve; on the meta device it reserves none."""
    try:
        memory = build_parts(PartFactory(config=config, seed=0, device=torch.device("meta"), restored=True)).memory
    except InputError:  # too small to be built; refused later, with all limits
        return 0
    return 0 if memory is None else memory.nbytes
