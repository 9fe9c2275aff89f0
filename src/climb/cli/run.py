"""`climb run`: one experiment, from the stream to its accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from climb.config import Execution, Views


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
        objective: simclr, simsiam, byol, barlow-twins, vicreg, osiris or scale.
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
    from climb.cli.result_table import print_result
    from climb.parallel import is_first
    from climb.report import write_report
    from climb.runs import Finished, execute, experiment  # imports the datasets and the networks: not needed for --help

    config = experiment(
        recipe,
        method=method,
        dataset=dataset,
        classes=classes,
        class_list=class_list,
        tasks=tasks,
        scenario=scenario,
        sizes=sizes,
        cap=cap,
        blur=blur,
        manifest=manifest,
        seed=seed,
        preset=preset,
        objective=objective,
        views=views,
        backbone=backbone,
        image_size=image_size,
        capacity=capacity,
        prune=prune,
        passes=passes,
        stream_batch=stream_batch,
        replay_batch=replay_batch,
        lr=lr,
        alignment_weight=alignment_weight,
        faults=faults,
        evaluate=evaluate,
        knn=knn,
        ridge=ridge,
    )
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
    try:
        result = execute(config, execution, folder)
    except Finished as stopped:  # too late to stop anything
        result = stopped.result
    if is_first():
        write_report(folder)
        print_result(result, folder, objective=config.learner.objective)
