"""`climb run`: one experiment, from the stream to its accuracy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from climb.cli.result_table import print_result
from climb.config import DataConfig, Execution, RunConfig, Views
from climb.errors import InputError
from climb.presets import apply_preset, with_faults
from climb.recipes import get_recipe


def run(
    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE]")] = "demo",
    /,
    *,
    method: str | None = None,
    dataset: str | None = None,
    data: str | None = None,
    classes: int | None = None,
    class_list: str | None = None,
    tasks: int | None = None,
    scenario: str | None = None,
    sizes: str | None = None,
    cap: int | None = None,
    blur: int | None = None,
    manifest: str | None = None,
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
    faults: tuple[str, ...] = (),
    evaluate: Literal["student", "teacher", "both"] | None = None,
    knn: bool = False,
    ridge: bool = False,
    device: str = "auto",
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto",
    engine: Literal["auto", "eager", "captured", "compiled"] = "auto",
    deterministic: bool = False,
    checkpoint_seconds: float = 60.0,
    keep: bool = False,
    out: str | None = None,
) -> None:
    """Train and evaluate one method on one stream. Without arguments: the built-in demo.

    The same command on the same folder continues an interrupted run, or prints a finished one. Several processes train
    one learner, on a GPU each: torchrun --nproc-per-node 2 -m climb run.

    Args:
        recipe: a named experiment (see: climb recipes).
        method: another method than the recipe's (see: climb methods).
        dataset: another dataset than the recipe's (see: climb data).
        data: folder that holds the dataset; by default $CLIMB_DATA, then the cache.
        classes: number of classes, where the dataset leaves the choice (synthetic, imagenet100).
        class_list: file with one class folder per line (imagenet100), in place of a seeded draw.
        tasks: number of tasks the stream is cut into.
        scenario: regular, irregular, blurred or iid.
        sizes: how irregular task sizes are drawn: uniform (over all within the cap) or released (the paper's code).
        cap: most classes of an irregular task.
        blur: images on each side of a blurred boundary.
        manifest: a saved scenario (scenario.json of another run) to replay.
        seed: seed of everything random.
        preset: paper (as printed), default (best measured), reference (the released code, faults included).
        objective: simclr, simsiam, byol, barlow-twins or vicreg.
        views: random views to learn from, in place of the method's own; simsiam and common change colours less.
        backbone: resnet18, resnet34, resnet50, vit-tiny, micro or timm/NAME.
        image_size: side of the images, where the dataset leaves the choice.
        capacity: images the memory stores at most.
        prune: how CLIMB's memory shrinks at its bound.
        passes: gradient steps per stream mini-batch; methods with smaller batches take more, for the same budget.
        stream_batch: images of one stream mini-batch.
        replay_batch: images replayed in each pass.
        lr: learning rate, in place of the preset's.
        alignment_weight: weight of the alignment loss, in place of the preset's.
        faults: faults of the released code to switch on: batch-views, frozen-aligner, swapped-refresh, train-embedding.
        evaluate: which network is probed, in place of the preset's.
        knn: also report a k-nearest-neighbour probe at the end.
        ridge: also report a ridge classifier at the end.
        device: auto, cpu, cuda, cuda:N or mps.
        precision: arithmetic of the networks; auto is bf16 on a capable GPU, float32 elsewhere.
        engine: eager, captured (the step as one CUDA graph) or compiled (torch.compile inside it); auto: by device.
        deterministic: bit-identical repetition on a GPU too.
        checkpoint_seconds: time between two checkpoints.
        keep: keep the last checkpoint of a finished run.
        out: run folder; by default runs/RECIPE-PRESET-SEED, with another method, dataset, objective, views, scenario,
            number of tasks or faults in its name; give one for other changes.
    """
    from climb.methods import choose_method, choose_objective
    from climb.parallel import is_first
    from climb.report import write_report
    from climb.runs import execute  # imports the datasets and the networks: not needed for --help
    from climb.unused import refuse_unused

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
    config = replace(config, seed=seed, stream=stream, learner=learner, evaluation=evaluation)
    execution = Execution(
        device=device,
        precision=precision,
        engine=engine,
        deterministic=deterministic,
        data_root=data,
        checkpoint_seconds=checkpoint_seconds,
        keep=keep,
    )
    changed = (method, dataset, objective, views, scenario, None if tasks is None else f"{tasks}tasks", *faults)
    name = "-".join([recipe, preset, *(part for part in changed if part is not None), str(seed)])
    folder = Path(out) if out is not None else Path("runs") / name
    result = execute(config, execution, folder)
    if is_first():
        write_report(folder)
        print_result(result, folder)


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _changed(config: Any, **values: Any) -> Any:
    return replace(config, **_present(values))


def _with_data(config: RunConfig, dataset: str | None, image_size: int | None, options: dict[str, Any]) -> RunConfig:
    from climb.datasets import own_image_size

    if dataset is not None:
        config = replace(config, data=DataConfig(dataset=dataset))
    data = _changed(config.data, image_size=image_size)
    data = replace(data, options={**data.options, **_present(options)})
    side = data.image_size or own_image_size(data.dataset)
    return replace(config, data=data, learner=replace(config.learner, image_size=side))


def _read_manifest(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        manifest: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the scenario {path}: {error}") from error
    return manifest
