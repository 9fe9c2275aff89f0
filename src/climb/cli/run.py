"""`climb run`: one experiment, from the stream to its accuracy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from climb.cli.result_table import print_result
from climb.config import DataConfig, Execution, RunConfig
from climb.errors import InputError
from climb.presets import apply_preset
from climb.recipes import get_recipe


def run(
    recipe: Annotated[str, tyro.conf.Positional] = "demo",
    /,
    *,
    method: str | None = None,
    dataset: str | None = None,
    data: str | None = None,
    tasks: int | None = None,
    scenario: str | None = None,
    manifest: str | None = None,
    seed: int = 0,
    preset: str = "default",
    backbone: str | None = None,
    image_size: int | None = None,
    capacity: int | None = None,
    passes: int | None = None,
    replay_batch: int | None = None,
    lr: float | None = None,
    alignment_weight: float | None = None,
    evaluate: Literal["student", "teacher", "both"] | None = None,
    knn: bool = False,
    ridge: bool = False,
    device: str = "auto",
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto",
    engine: Literal["auto", "eager", "captured"] = "auto",
    deterministic: bool = False,
    checkpoint_seconds: float = 60.0,
    keep: bool = False,
    out: str | None = None,
) -> None:
    """Train and evaluate one method on one stream. Without arguments: the built-in demo.

    The same command on the same folder continues an interrupted run, or prints a finished one.

    Args:
        recipe: a named experiment (see: climb recipes).
        method: another method than the recipe's.
        dataset: another dataset than the recipe's (see: climb data).
        data: folder that holds the dataset; by default $CLIMB_DATA, then the cache.
        tasks: number of tasks the stream is cut into.
        scenario: regular, irregular, blurred or iid.
        manifest: a saved scenario (scenario.json of another run) to replay.
        seed: seed of everything random.
        preset: paper (as printed), default (best measured), reference (the released code, faults included).
        backbone: resnet18, resnet34, resnet50 or micro.
        image_size: side of the images, where the dataset leaves the choice.
        capacity: images the memory stores at most.
        passes: gradient steps per stream mini-batch.
        replay_batch: images replayed in each pass.
        lr: learning rate, in place of the preset's.
        alignment_weight: weight of the alignment loss, in place of the preset's.
        evaluate: which network is probed, in place of the preset's.
        knn: also report a k-nearest-neighbour probe at the end.
        ridge: also report a ridge classifier at the end.
        device: auto, cpu, cuda, cuda:N or mps.
        precision: arithmetic of the networks; auto is bf16 on a capable GPU, float32 elsewhere.
        engine: eager, or captured (the step as one CUDA graph); auto chooses by device.
        deterministic: bit-identical repetition on a GPU too.
        checkpoint_seconds: time between two checkpoints.
        keep: keep the last checkpoint of a finished run.
        out: run folder; by default runs/RECIPE-PRESET-SEED.
    """
    from climb.methods import choose_method
    from climb.runs import execute  # imports the datasets and the networks: not needed for --help

    config = get_recipe(recipe, preset=preset)
    config = _with_data(config, dataset, image_size, tasks, scenario, manifest)
    memory = _changed(config.learner.memory, capacity=capacity)
    if capacity is not None:  # centroids scale with the capacity, unless the recipe is left as it is
        memory = replace(memory, stm_centroids=None, ltm_centroids=None)
    learner = apply_preset(_changed(config.learner, backbone=backbone), preset)
    if method is not None:
        learner = choose_method(learner, method)
    learner = _changed(
        learner,
        passes=passes,
        replay_batch=replay_batch,
        lr=lr,
        alignment_weight=alignment_weight,
        memory=memory,
    )
    evaluation = _changed(config.evaluation, network=evaluate, knn=knn, ridge=ridge)
    config = replace(config, seed=seed, learner=learner, evaluation=evaluation)
    execution = Execution(
        device=device,
        precision=precision,
        engine=engine,
        deterministic=deterministic,
        data_root=data,
        checkpoint_seconds=checkpoint_seconds,
        keep=keep,
    )
    folder = Path(out) if out is not None else Path("runs") / f"{recipe}-{preset}-{seed}"
    print_result(execute(config, execution, folder), folder)


def _changed(config: Any, **values: Any) -> Any:
    return replace(config, **{name: value for name, value in values.items() if value is not None})


def _with_data(
    config: RunConfig,
    dataset: str | None,
    image_size: int | None,
    tasks: int | None,
    scenario: str | None,
    manifest: str | None,
) -> RunConfig:
    from climb.datasets import own_image_size

    if dataset is not None:
        config = replace(config, data=DataConfig(dataset=dataset))
    config = replace(config, data=_changed(config.data, image_size=image_size))
    side = config.data.image_size or own_image_size(config.data.dataset)
    stream = _changed(config.stream, tasks=tasks, kind=scenario)
    if manifest is not None:
        try:
            stream = replace(stream, manifest=json.loads(Path(manifest).read_text(encoding="utf-8")))
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"cannot read the scenario {manifest}: {error}") from error
    return replace(config, learner=replace(config.learner, image_size=side), stream=stream)
