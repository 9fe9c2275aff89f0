"""The run at a place of a grid: the paper's setting, or its rehearsal on a few synthetic images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from climb.bench.estimate import DATASET_SIZES
from climb.bench.grids.grid import Request
from climb.config import DataConfig, EvaluationConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.datasets import own_image_size
from climb.errors import InputError
from climb.methods import choose_method, choose_objective
from climb.presets import apply_preset, evaluated_network

PAPER_MEMORY = MemoryConfig(stm_centroids=100, ltm_centroids=60)
"""The paper's N, L, K and M in numbers."""
TINY_MEMORY = MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=6, images_per_centroid=6, window=100)
"""The same proportions, small enough that 100 images fill it: it promotes and prunes."""
TINY_TASKS = {20: 2, 50: 4, 100: 5}
TINY_CLASSES = 10


def configure(
    request: Request,
    *,
    seed: int,
    tasks: int,
    method: str = "climb",
    kind: str = "regular",
    objective: str = "simclr",
    own_rates: bool = True,
    preset: str | None = None,
    memory: dict[str, Any] | None = None,
    **learner: Any,
) -> RunConfig:
    """One run of a grid.

    Args:
        request: dataset, scale, preset.
        seed: seed of everything random.
        tasks: number of tasks, in the paper's numbers.
        method: which method.
        kind: "regular" or "irregular".
        objective: what is learned.
        own_rates: whether the method starts from its own learning rate; False takes CLIMB's.
        preset: another preset than the one asked for.
        memory: fields of the memory other than the reference's, in the paper's numbers.
        learner: fields of the learner other than the preset's.

    >>> configure(Request(), seed=0, tasks=20).learner.memory.short_term
    100
    """
    config = _tiny(request, tasks) if request.scale == "tiny" else _full(request, tasks)
    preset = preset or request.preset
    chosen = choose_method(apply_preset(config.learner, preset), method)
    if not own_rates:
        rates = apply_preset(config.learner, preset)
        chosen = replace(chosen, lr=rates.lr, alignment_weight=rates.alignment_weight)
    if objective != "simclr":
        chosen = choose_objective(chosen, objective)
    changed = replace(chosen.memory, **{name: _scaled(request, name, value) for name, value in (memory or {}).items()})
    return replace(
        config,
        seed=seed,
        stream=replace(config.stream, kind=kind),
        learner=replace(chosen, memory=changed, **learner),
        evaluation=evaluated_network(config.evaluation, preset),
    )


def _full(request: Request, tasks: int) -> RunConfig:
    side = own_image_size(request.dataset)
    classes = DATASET_SIZES.get(request.dataset, (tasks,))[0]
    if tasks > classes:
        raise InputError(f"{request.dataset} has {classes} classes, and a task at least one; given {tasks} tasks")
    return RunConfig(
        recipe=f"{request.dataset}-{tasks}",
        data=DataConfig(dataset=request.dataset),
        stream=StreamConfig(tasks=tasks),
        learner=LearnerConfig(backbone="resnet18", image_size=side, memory=PAPER_MEMORY),
    )


def _tiny(request: Request, tasks: int) -> RunConfig:
    own_image_size(request.dataset)  # an unknown name is refused in a rehearsal too
    return RunConfig(
        recipe=f"tiny-{tasks}",
        data=DataConfig(
            dataset="synthetic",
            image_size=16,
            options={"classes": TINY_CLASSES, "train_per_class": 11, "test_per_class": 3},
        ),
        stream=StreamConfig(tasks=TINY_TASKS.get(tasks, min(tasks, TINY_CLASSES))),
        learner=LearnerConfig(backbone="micro", image_size=16, replay_batch=16, memory=TINY_MEMORY),
        evaluation=EvaluationConfig(epochs=10),
    )


def _scaled(request: Request, name: str, value: Any) -> Any:
    """A size of the memory in the paper's numbers, as the scale has it."""
    if request.scale == "full" or not isinstance(value, int):
        return value
    reference, tiny = getattr(PAPER_MEMORY, name), getattr(TINY_MEMORY, name)
    least = 32 if name == "capacity" else 1  # twice the replay batch
    return max(least, round(value * tiny / reference))
