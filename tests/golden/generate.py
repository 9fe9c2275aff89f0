"""Write the golden values of the code that PYTHONPATH names: ``python tests/golden/generate.py OUT.json``.

The script runs on any version of climb since commit 4b5022b. It uses only names that all versions share, and `shared`
is the one place that knows where a version keeps them. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import numpy as np
import torch

PRESETS = ("default", "paper")
BATCHES, BATCH, SIDE = 40, 10, 16
SHORT = {17: 7, 33: 1}
"""Mini-batches with fewer images than the others, as at the end of a task."""
IID_BATCH = 54
"""Images that ``iid`` takes at a time: passes * (stream_batch + replay_batch)."""
MIDDLE = BATCHES // 2
MEMORY_KEYS = ("ids", "held", "counts", "stm_pool", "ltm_pool", "pool", "seen")
"""Keys of a memory's state that name images. The state is a file format, so they are stable."""

HOMES = {
    "METHODS": ("climb.methods",),
    "choose_method": ("climb.methods",),
    "LearnerConfig": ("climb.settings", "climb.config"),
    "MemoryConfig": ("climb.settings", "climb.config"),
    "DataConfig": ("climb.settings", "climb.config"),
    "StreamConfig": ("climb.settings", "climb.config"),
    "EvaluationConfig": ("climb.settings", "climb.config"),
    "RunConfig": ("climb.settings", "climb.config"),
    "Execution": ("climb.settings", "climb.config"),
    "apply_preset": ("climb.settings", "climb.presets"),
    "experiment": ("climb.session", "climb.settings", "climb.runs"),
    "get_recipe": ("climb.settings", "climb.recipes"),
    "build_engine": ("climb.learner", "climb.methods"),
    "execute": ("climb.session", "climb.runs"),
}
"""Modules that define or defined each name, the newest first."""


def shared(name: str) -> Any:
    """A name of climb, from the first of its homes that has it. Old homes may warn that they are deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for home in HOMES[name]:
            try:
                return getattr(importlib.import_module(home), name)
            except (ModuleNotFoundError, AttributeError):
                continue
    raise SystemExit(f"climb has no {name} in {', '.join(HOMES[name])}; add its new module to HOMES in {__file__}")


# -- settings ------------------------------------------------------------------------------------------------------


def learner_config(method: str, preset: str) -> Any:
    """A small learner: its memory promotes, merges and prunes within a few dozen mini-batches."""
    memory = shared("MemoryConfig")(
        capacity=36, stm_centroids=9, ltm_centroids=3, images_per_centroid=5, window=60, novelty_percentile=0.85
    )
    learner = shared("LearnerConfig")(backbone="micro", image_size=SIDE, replay_batch=8, ema_decay=0.99, memory=memory)
    return shared("choose_method")(shared("apply_preset")(learner, preset), method)


def run_config(method: str, preset: str) -> Any:
    """A run of two short tasks with the same learner."""
    options = {"classes": 4, "train_per_class": 25, "test_per_class": 10}
    return shared("RunConfig")(
        seed=3,
        data=shared("DataConfig")(image_size=SIDE, options=options),
        stream=shared("StreamConfig")(tasks=2),
        learner=learner_config(method, preset),
        evaluation=shared("EvaluationConfig")(network="both", epochs=4, knn=True, ridge=True),
    )


def recipe_hashes(method: str, preset: str) -> dict[str, str]:
    """``config_hash`` of published configurations."""
    hashes = {}
    for recipe in ("demo", "cifar100-20", "imagenet100-irregular-50"):
        config = shared("get_recipe")(recipe, preset=preset)
        learner = shared("choose_method")(config.learner, method)
        hashes[recipe] = replace(config, learner=learner).config_hash()
    hashes["experiment"] = shared("experiment")(
        "cifar100-20", method=method, preset=preset, seed=2, passes=2, capacity=3000, tasks=10
    ).config_hash()
    return hashes


# -- images --------------------------------------------------------------------------------------------------------


def stream(method: str) -> list[torch.Tensor]:
    """Mini-batches of uint8 images: noisy copies of a few patterns, other ones in the second half.

    RandomState keeps its numbers across versions of numpy, and integers do not round.
    """
    random = np.random.RandomState(20)
    patterns = random.randint(0, 256, (16, 3, SIDE // 4, SIDE // 4)).repeat(4, axis=2).repeat(4, axis=3)
    batches = []
    for number in range(BATCHES):
        count = IID_BATCH if method == "iid" else SHORT.get(number, BATCH)
        first = 0 if number < MIDDLE else 8
        chosen = patterns[first + random.randint(0, 8, count)]
        noise = random.randint(-40, 41, chosen.shape)
        batches.append(torch.from_numpy(np.clip(chosen + noise, 0, 255).astype(np.uint8)).contiguous())
    return batches


# -- what is recorded ----------------------------------------------------------------------------------------------


def bits(value: torch.Tensor) -> str:
    """A scalar to the last bit, readable."""
    return float(value).hex()


def digest(tree: Any) -> str:
    """Hash of a state: names, types, shapes and bytes of its tensors, and its plain values."""
    total = hashlib.sha256()

    def add(name: str, node: Any) -> None:
        if isinstance(node, dict):
            for key in sorted(node):
                add(f"{name}/{key}", node[key])
        elif isinstance(node, torch.Tensor):
            plain = node.detach().cpu().contiguous()
            total.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
            total.update(plain.numpy().tobytes())
        else:
            total.update(f"{name} {node!r}".encode())

    add("", tree)
    return total.hexdigest()[:16]


def memory_of(state: dict[str, Any]) -> dict[str, Any]:
    """Ids in memory by key of its state, as one line each, and a hash of its images."""
    memory = state["memory"]
    listed = {key: memory[key] for key in MEMORY_KEYS if key in memory}
    lines = {
        key: " ".join(map(str, value.tolist())) if isinstance(value, torch.Tensor) else value
        for key, value in listed.items()
    }
    return {**lines, "images": digest(memory["images"])} if memory else {}


def learn(method: str, preset: str) -> dict[str, Any]:
    """Losses, memory, budget and network of one method under one preset."""
    engine = shared("build_engine")(
        learner_config(method, preset),
        mean=(0.5, 0.45, 0.4),
        std=(0.25, 0.2, 0.3),
        seed=1,
        device=torch.device("cpu"),
        precision="float32",
        kind="eager",
    )
    if method == "pcmc":  # two short sleeps; by default the first comes after 2,000 images
        engine.sleep = replace(engine.sleep, every=160, epochs=2, batch=64)
    losses, tally, middle = [], Counter[str](), {}
    for number, images in enumerate(stream(method)):
        if number == MIDDLE:
            middle = memory_of(engine.state_dict())
            engine.on_boundary()
        observation = engine.observe(images)
        losses.append(f"{bits(observation.objective)} {bits(observation.alignment)}")
        tally.update(asdict(observation.report))
    state = engine.state_dict()
    return {
        "losses": losses,
        "embeddings": digest(observation.embeddings),
        "tally": dict(sorted(tally.items())),
        "middle": middle,
        "memory": memory_of(state),
        "budget": state["budget"],
        "network": digest(state["network"]),
        "objective": digest(state["objective"]),
        "alignment": digest(state.get("alignment", {})),
    }


def run(method: str, preset: str) -> dict[str, Any]:
    """Accuracies and counters of a run, from its result."""
    config = run_config(method, preset)
    with tempfile.TemporaryDirectory() as folder:
        execution = shared("Execution")(device="cpu", precision="float32", engine="eager")
        result = shared("execute")(config, execution, Path(folder) / "run")
    kept = (
        "accuracy_matrix",
        "accuracy_upto",
        "final_accuracy",
        "continual_accuracy",
        "random_encoder_accuracy",
        "cbp",
        "forward_only_images",
        "stored_images",
        "evaluated",
        "config_hash",
    )
    return {key: result[key] for key in kept}


def golden(methods: list[str] | None = None, presets: tuple[str, ...] = PRESETS) -> dict[str, Any]:
    """All values, by "METHOD PRESET"."""
    values = {}
    for method in shared("METHODS") if methods is None else methods:
        for preset in presets:
            values[f"{method} {preset}"] = {
                "hashes": recipe_hashes(method, preset),
                **learn(method, preset),
                "run": run(method, preset),
            }
    return values


def main() -> None:
    """Write the values of some or all methods to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--methods", nargs="+", help="only these methods; default: all")
    parser.add_argument("--presets", nargs="+", default=PRESETS, help="only these presets; default: default paper")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    values = golden(arguments.methods, tuple(arguments.presets))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    print(f"{arguments.out}: {len(values)} methods and presets", file=sys.stderr)


if __name__ == "__main__":
    main()
