"""From a recipe's name and what is to be different to the configuration of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from climb.config import DataConfig, Network, RunConfig, Views
from climb.datasets import own_image_size
from climb.errors import InputError
from climb.methods import choose_method, choose_objective
from climb.presets import apply_preset, with_faults
from climb.recipes import get_recipe
from climb.unused import refuse_unused


def experiment(
    recipe: str = "demo",
    *,
    method: str | None = None,
    dataset: str | None = None,
    classes: int | None = None,
    class_list: str | None = None,
    tasks: int | None = None,
    scenario: str | None = None,
    sizes: str | None = None,
    cap: int | None = None,
    blur: int | None = None,
    manifest: str | Path | None = None,
    seed: int = 0,
    preset: str = "default",
    objective: str | None = None,
    views: Views | None = None,
    backbone: str | None = None,
    image_size: int | None = None,
    capacity: int | None = None,
    prune: Literal["anchor", "selective"] | None = None,
    passes: int | None = None,
    stream_batch: int | None = None,
    replay_batch: int | None = None,
    lr: float | None = None,
    alignment_weight: float | None = None,
    faults: Sequence[str] = (),
    evaluate: Network | None = None,
    knn: bool = False,
    ridge: bool = False,
) -> RunConfig:
    """The configuration that `climb run` makes of the same options, which `climb run --help` explains.

    >>> config = experiment("cifar100-20", preset="paper", method="cla-e", tasks=50)
    >>> config.learner.method, config.learner.lr, config.stream.tasks
    ('cla-e', 0.3, 50)
    >>> experiment("cifar100-20", preset="papers")
    Traceback (most recent call last):
    climb.errors.InputError: unknown preset 'papers'; did you mean 'paper'? Allowed: default, paper, reference

    Raises:
        InputError: a name that does not exist, or options that do not go together.
    """
    config = get_recipe(recipe, preset=preset)
    if manifest is not None and any(given is not None for given in (tasks, scenario, sizes, cap, blur)):
        raise InputError("--manifest replays a saved scenario: leave out --tasks, --scenario, --sizes, --cap, --blur")
    config = _with_data(config, dataset, image_size, {"classes": classes, "class_list": class_list})
    stream = _changed(config.stream, tasks=tasks, kind=scenario, manifest=_read_manifest(manifest))
    given = {"generator": sizes, "cap": cap, "blur": blur}
    stream = replace(stream, options={**stream.options, **_present(given)})
    memory = _changed(config.learner.memory, capacity=capacity, prune=prune)
    if capacity is not None:  # centroids scale with the capacity, unless the recipe is left as it is
        memory = replace(memory, stm_centroids=None, ltm_centroids=None)
    learner = apply_preset(_changed(config.learner, backbone=backbone), preset)
    if method is not None:
        learner = choose_method(learner, method)
    if objective is not None:
        learner = choose_objective(learner, objective)
    learner = _changed(
        learner,
        views=views,
        passes=passes,
        stream_batch=stream_batch,
        replay_batch=replay_batch,
        lr=lr,
        alignment_weight=alignment_weight,
        memory=memory,
    )
    if faults and preset == "reference":
        raise InputError("the preset reference has the faults of the released code already; leave --faults out")
    learner = with_faults(learner, faults)
    refuse_unused(learner.method, faults=faults, prune=prune)
    evaluation = _changed(config.evaluation, network=evaluate, knn=knn, ridge=ridge)
    return replace(config, seed=seed, stream=stream, learner=learner, evaluation=evaluation)


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _changed(config: Any, **values: Any) -> Any:
    return replace(config, **_present(values))


def _with_data(config: RunConfig, dataset: str | None, image_size: int | None, options: dict[str, Any]) -> RunConfig:
    if dataset is not None:
        config = replace(config, data=DataConfig(dataset=dataset))
    data = _changed(config.data, image_size=image_size)
    data = replace(data, options={**data.options, **_present(options)})
    side = data.image_size or own_image_size(data.dataset)
    return replace(config, data=data, learner=replace(config.learner, image_size=side))


def _read_manifest(path: str | Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        manifest: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # also what is no text, and brackets without end
        raise InputError(f"cannot read the scenario {path}: {error}") from error
    return manifest
