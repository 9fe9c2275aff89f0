"""`climb run` and `climb learn`: train on a labelled dataset, or on a stream without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from climb.cli.options import SEED, options_of, with_settings
from climb.cli.output import print_table
from climb.settings.config import (
    DataConfig,
    DataOptions,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    LearnerOptions,
    LearnOptions,
    MemoryConfig,
    StreamConfig,
    StreamOptions,
)
from climb.settings.fields import pop_settings


@with_settings(
    data=(
        *options_of(DataConfig, DataOptions),
        *options_of(Execution, only=["data"]),
        *options_of(LearnerConfig, only=["image_size"]),
    ),
    stream=(*options_of(StreamConfig, StreamOptions), SEED),
    learner=options_of(LearnerConfig, LearnerOptions, without=["image_size"]),
    memory=options_of(MemoryConfig),
    evaluation=options_of(EvaluationConfig),
    execution=options_of(Execution, without=["data"]),
)
def run(recipe: str | None = None, /, *, out: str | None = None, **options: Any) -> None:
    """Train and evaluate one method on one stream. Without arguments: the built-in demo.

    An option that is not given has the value of the recipe, the preset or the method. The same command on the same
    folder continues an interrupted run, or prints a finished one. Several processes train one learner, with a GPU each:
    torchrun --nproc-per-node 2 -m climb run.

    Args:
        recipe: a named experiment (climb recipes); by default demo.
        out: run folder. By default runs/RECIPE-PRESET-SEED. A different method, dataset, objective, views, scenario,
            number of tasks or faults is added to the name. Give --out when you change anything else.
    """
    from climb.parallel import is_first
    from climb.session import Finished, execute, experiment  # not needed for --help

    folder = Path(out) if out is not None else Path("runs") / _name(recipe or "demo", options)
    execution = pop_settings(Execution, options)
    config = experiment(recipe, out=folder, **options)
    try:
        result = execute(config, execution, folder)
    except Finished as stopped:  # the signal came too late
        result = stopped.result
    if is_first():
        print_result(result, folder, objective=config.learner.objective)


def _name(recipe: str, options: dict[str, Any]) -> str:
    """Name of the folder of a run.

    >>> _name("demo", {"method": "lump", "tasks": 2, "seed": 3})
    'demo-default-lump-2tasks-3'
    """
    changed = [options.get(name) for name in ("method", "dataset", "objective", "views", "scenario")]
    changed += [f"{options['tasks']}tasks" if "tasks" in options else None, *options.get("faults", ())]
    parts = (recipe, options.get("preset", "default"), *filter(None, changed), options.get("seed", 0))
    return "-".join(map(str, parts))


MAIN_FILES = ("report.html", "result.json", "accuracy.png", "memory.png", "model.safetensors")
"""The files of a run that are printed at its end, if they exist."""


def print_result(result: dict[str, Any], folder: Path, *, objective: str) -> None:
    """Print the accuracies, the budget and the folder of a run."""
    from climb.evaluation.metrics import ACCURACIES
    from climb.report.markup import number_rows

    setting = result["preset"] if objective == LearnerConfig.objective else f"{result['preset']}, {objective}"
    title = f"{result['method']} ({setting}) on {result['dataset']}, {result['tasks']} tasks, seed {result['seed']}"
    networks = [result, result["other"]] if result.get("other") else [result]
    headings = ["linear probe accuracy", *(network["evaluated"] for network in networks), ""]
    shown = {key: (each.name, ".2f", each.brief) for key, each in ACCURACIES.items() if each.brief}
    baseline = {"random_encoder_accuracy": shown["random_encoder_accuracy"]}  # first
    print_table(headings, number_rows(networks, baseline | shown), title=title, numbers=(1, len(networks)))
    gain = result["final_accuracy"] - result["random_encoder_accuracy"]
    print(f"FA {result['final_accuracy']:.2f} against {result['random_encoder_accuracy']:.2f}: {gain:+.2f}")
    print(_memory(result))
    seconds = result["seconds"]
    print(
        f"budget: {result['cbp']:,} backward passes in {result['gradient_steps']:,} steps, "
        f"{result['forward_only_images']:,} forward only; "
        f"{seconds['train']:.0f} s training, {seconds['evaluate']:.0f} s evaluating, {seconds['total']:.0f} s in all"
    )
    print(f"folder: {folder} ({', '.join(name for name in MAIN_FILES if (folder / name).exists())})")


def _memory(result: dict[str, Any]) -> str:
    """The content of the memory; for one with centroids, also its events."""
    from climb.report.memory_charts import EVENTS

    if not result["memory_bytes"]:
        return "memory: none"
    memory = result["memory"]
    text = f"memory: {result['stored_images']} images, {result['memory_bytes'] / 1e6:.1f} MB"
    if "stm_centroids" in memory:
        text += "; " + ", ".join(f"{memory.get(key, 0)} {word}" for key, word in EVENTS.items())
    threshold = memory.get("threshold")
    return text if threshold is None else f"{text}; final threshold {threshold:.3f}"


@with_settings(
    data=(
        *options_of(LearnOptions, only=["watch", "every", "workers"]),
        *options_of(DataOptions, only=["pixel_range"]),
        *options_of(LearnerConfig, only=["image_size"]),
    ),
    learner=(*options_of(LearnOptions, only=["size"]), *options_of(LearnerConfig, without=["image_size"]), SEED),
    memory=(*options_of(LearnOptions, only=["budget"]), *options_of(MemoryConfig, without=["capacity"])),
    novelty=options_of(LearnOptions, only=["novel", "novel_to", "false_alarms"]),
    execution=(
        *options_of(Execution, only=["device", "precision", "engine", "checkpoint_seconds", "imports"]),
        *options_of(LearnOptions, only=["journal_seconds", "track"]),
    ),
)
def learn(images: str, /, *, out: str, **options: Any) -> None:
    """Learn from your own images, without labels, for as long as they arrive.

    An option that is not given has the value of the size, the preset or the method. Stop it at any time: the same
    command continues, and learns no file twice.

    Args:
        images: a folder, a tar shard or a pattern of them ('shards/*.tar'), a video file, a camera (/dev/video0) or
            stream (rtsp://...), hf:OWNER/NAME or hf:OWNER/NAME@SPLIT, or - for paths on standard input.
        out: folder of the learner: its encoder (model.safetensors), memory, journal.
    """
    from climb.session import Finished
    from climb.session import learn as learn_from
    from climb.session.first_line import FirstLine

    try:
        learned = learn_from(images, out=out, observers=[FirstLine(images, say=print)], **options)
    except Finished as stopped:  # the signal came too late
        learned = stopped.result
    print(f"learned {learned.new_images:,} new images, {learned.images:,} in total, {learned.seconds:,.0f} s")
    for reason, count in sorted(learned.passed_over.items()):
        print(f"passed over: {count:,} {reason}")
    print(f"memory: {learned.stored:,} of {learned.capacity:,} images, {learned.memory_bytes / 1e6:.1f} MB")
    files = [name for name in ("model.safetensors", "journal.jsonl", "checkpoint") if (learned.folder / name).exists()]
    print(f"folder: {learned.folder} ({', '.join(files)})")


VERBS = ("run", "learn")
