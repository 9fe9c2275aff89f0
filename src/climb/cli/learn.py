"""`climb learn`: from images of one's own."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro


def learn(
    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")],
    /,
    *,
    out: str,
    watch: bool = False,
    size: Literal["auto", "edge", "cpu", "gpu"] = "auto",
    budget: str | None = None,
    method: str = "climb",
    preset: str = "default",
    objective: str | None = None,
    backbone: str | None = None,
    image_size: int | None = None,
    stream_batch: int | None = None,
    replay_batch: int | None = None,
    passes: int | None = None,
    lr: float | None = None,
    alignment_weight: float | None = None,
    seed: int = 0,
    device: str = "auto",
    every: int = 1,
    workers: int = 2,
    checkpoint_seconds: float = 60.0,
    journal_seconds: float = 10.0,
    track: Literal["tensorboard", "wandb"] | None = None,
) -> None:
    """Learn from images of your own, without a label, for as long as they come.

    Stop it at any time: the same command continues, and learns no file twice.

    Args:
        images: a folder, a tar shard or a pattern of them ('shards/*.tar'), a video file, a camera (/dev/video0) or
            stream (rtsp://...), hf:OWNER/NAME or hf:OWNER/NAME@SPLIT, or - for paths on standard input.
        out: folder of the learner: its encoder (model.safetensors), memory, journal.
        watch: follow a folder or a pattern of shards: take new files as they appear, do not end.
        size: settings for a kind of machine; auto goes by the device.
        budget: most images in memory (2500), or most megabytes of it (200MB).
        method: which method (see: climb methods).
        preset: default (best measured), paper (as printed), reference (the released code, faults included).
        objective: simclr, simsiam, byol, barlow-twins, vicreg, osiris or scale.
        backbone: resnet18, resnet34, resnet50, vit-tiny, micro or timm/NAME, in place of the size's.
        image_size: side that images are resized and cropped to, in place of the size's.
        stream_batch: images of one mini-batch.
        replay_batch: images replayed in each pass.
        passes: gradient steps per mini-batch.
        lr: learning rate, in place of the preset's.
        alignment_weight: weight of the alignment loss, in place of the preset's.
        seed: seed of everything random.
        device: auto, cpu, cuda, cuda:N or mps.
        every: take every n-th frame of a video or camera.
        workers: threads that load images.
        checkpoint_seconds: time between two checkpoints.
        journal_seconds: time between two journal lines.
        track: where numbers go beside the journal.
    """
    from rich.console import Console

    from climb.learn import learn as learn_from  # imports the networks: not needed for --help
    from climb.runs import Finished

    try:
        learned = learn_from(
            images,
            out=out,
            watch=watch,
            size=size,
            budget=budget,
            method=method,
            preset=preset,
            objective=objective,
            backbone=backbone,
            image_size=image_size,
            stream_batch=stream_batch,
            replay_batch=replay_batch,
            passes=passes,
            lr=lr,
            alignment_weight=alignment_weight,
            seed=seed,
            device=device,
            every=every,
            workers=workers,
            checkpoint_seconds=checkpoint_seconds,
            journal_seconds=journal_seconds,
            track=track,
        )
    except Finished as stopped:  # too late to stop anything
        learned = stopped.result
    console = Console(highlight=False, markup=False, soft_wrap=True)
    in_all = f"{learned.images:,} in all sittings, {learned.seconds:,.0f} s"
    console.print(f"learned {learned.new_images:,} images; {in_all}")
    for reason, count in sorted(learned.passed_over.items()):
        console.print(f"passed over: {count:,} {reason}")
    console.print(f"memory: {learned.stored:,} of {learned.capacity:,} images, {learned.memory_bytes / 1e6:.1f} MB")
    there = [name for name in ("model.safetensors", "journal.jsonl", "checkpoint") if (learned.folder / name).exists()]
    console.print(f"folder: {learned.folder} ({', '.join(there)})")
