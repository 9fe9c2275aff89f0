"""From what a person chooses to a configuration with nothing left open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from climb.config import DataConfig, EvaluationConfig, LearnerConfig, RunConfig, StreamConfig
from climb.engine import IidChunks, resolve_device
from climb.errors import InputError
from climb.impossible import check_config
from climb.learn.sizes import base_config, check_room, size_for, with_budget
from climb.methods import choose_method, choose_objective, small_parts
from climb.presets import apply_preset, evaluated_network


def settle(
    *,
    size: str,
    budget: str | int | None,
    method: str,
    preset: str,
    objective: str | None,
    backbone: str | None,
    image_size: int | None,
    stream_batch: int | None,
    replay_batch: int | None,
    passes: int | None,
    lr: float | None,
    alignment_weight: float | None,
    seed: int,
    device: str,
) -> RunConfig:
    """The configuration; None leaves a field to the size, the preset or the method."""
    _check_endless(method)
    config = base_config(size_for(size, resolve_device(device)))
    config = _changed(config, backbone=backbone, image_size=image_size)
    config = choose_method(apply_preset(config, preset), method)
    if objective is not None:
        config = choose_objective(config, objective)
    config = _changed(config, stream_batch=stream_batch, passes=passes, lr=lr, alignment_weight=alignment_weight)
    if budget is not None:
        config = with_budget(config, budget)
    # The size's own replay shrinks with a small budget; one that was asked for is refused if it does not fit.
    if replay_batch is None:
        replay_batch = max(1, min(config.replay_batch, config.memory.capacity // 2))
    config = replace(config, replay_batch=replay_batch)
    check_config(config)
    check_room(config)
    return RunConfig(
        recipe="learn",
        seed=seed,
        data=DataConfig(dataset="own images", image_size=config.image_size),
        stream=StreamConfig(kind="own", tasks=0),
        learner=config,
        evaluation=evaluated_network(EvaluationConfig(), preset),
    )


def _check_endless(method: str) -> None:
    """Refuse methods that are for benchmarks alone."""
    parts = small_parts(method)
    for unfit, reason in (
        (isinstance(parts.batch, IidChunks), "it needs all images at once"),
        (
            parts.alignment is not None and parts.alignment.needs_boundaries,
            "it must be told where tasks end, and a stream of one's own has no tasks",
        ),
        (parts.memory is not None and not parts.memory.bounded, "its memory has no bound"),
    ):
        if unfit:
            raise InputError(f"method '{method}' cannot learn from a stream of one's own: {reason}")


def _changed(config: LearnerConfig, **values: Any) -> LearnerConfig:
    return replace(config, **{name: value for name, value in values.items() if value is not None})
