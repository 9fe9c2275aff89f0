"""Accuracy of `climb learn` on image files and of `climb run` on the same images in the same order.

    python benchmarks/own_images.py --recipe cifar100-100 --data FOLDER --device cuda
    python benchmarks/own_images.py                           the demo's stream, on the CPU

Writes the images of a recipe's dataset as PNG files. For `climb learn`: the training images of `climb run`, numbered
in the order of its stream, a folder per task. For `climb probe`: all images, a folder per class. Prints both
accuracies, and the accuracy of `climb probe` on the run's encoder, which separates differences of the probes from
those of the learners. A run normalises images by the dataset's statistics, `learn` by ImageNet's, and the random
numbers differ: compare the difference with the spread over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from climb.datasets import Dataset, load, own_image_size
from climb.session.experiments import images_of, manifest_of
from climb.settings.config import RunConfig
from climb.settings.recipes import get_recipe
from climb.streams import Stream


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", default="demo")
    arguments.add_argument("--data", default=None)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--backbone", default=None, help="another network than the recipe's")
    arguments.add_argument("--passes", type=int, default=None)
    arguments.add_argument("--replay-batch", type=int, default=None)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--folder", type=Path, default=None, help="keep the files here")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="climb-own-") as temporary:
        print(json.dumps(both_ways(given, given.folder or Path(temporary)), indent=2))


def both_ways(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = replace(get_recipe(given.recipe), seed=given.seed)
    changes = {"backbone": given.backbone, "passes": given.passes, "replay_batch": given.replay_batch}
    changes = {name: value for name, value in changes.items() if value is not None}
    config = replace(config, learner=replace(config.learner, **changes))
    images = write_images(config, given.data, folder)
    common = ["--seed", given.seed, "--device", given.device]
    for name in ("backbone", "passes", "replay_batch"):
        common += [f"--{name.replace('_', '-')}", getattr(config.learner, name)]
    learner, run = folder / "learner", folder / "run"
    size = ["--image-size", config.learner.image_size, "--stream-batch", config.learner.stream_batch]
    budget = ["--budget", config.learner.memory.capacity]
    learn_seconds = climb("learn", folder / "stream", "--out", learner, *size, *budget, "--workers", 4, *common)
    data = [] if given.data is None else ["--data", given.data]
    run_seconds = climb("run", given.recipe, "--out", run, *data, *common)
    result = json.loads((run / "result.json").read_text())
    return {
        "recipe": given.recipe,
        "seed": given.seed,
        **{name: getattr(config.learner, name) for name in ("backbone", "passes", "replay_batch", "image_size")},
        "files": images,
        "learned_from_files": probed(learner, folder, given),
        "run": result["final_accuracy"],
        "run_probed_on_files": probed(run, folder, given),
        "random_encoder": result["random_encoder_accuracy"],
        "seconds": {"learn": learn_seconds, "run": run_seconds},
    }


def write_images(config: RunConfig, root: str | None, folder: Path) -> int:
    """Write all images to ``labelled/train|test/CLASS/``, and the run's training images in order to ``stream/TASK/``.

    Returns the number of files in the stream.
    """
    size = None if config.data.image_size in (None, own_image_size(config.data.dataset)) else config.data.image_size
    data = load(config.data.dataset, root=root, image_size=size, seed=config.seed, **config.data.options)
    for part in ("train", "test"):
        write_part(data, part, folder / "labelled" / part)
    stream = Stream(manifest_of(config, images_of(data)), data.train.labels, data.test.labels)
    files, task = 0, 0
    for batch in stream.batches(config.learner.stream_batch):
        here = folder / "stream" / f"{task:03d}"
        here.mkdir(parents=True, exist_ok=True)
        for index in batch.indices.tolist():
            name = data.classes[int(data.train.labels[index])]
            os.link(folder / "labelled" / "train" / name / f"{index}.png", here / f"{files:06d}.png")
            files += 1
        task += batch.ends_segment is not None
    return files


def write_part(data: Dataset, part: str, folder: Path) -> None:
    rows = getattr(data, part)
    for name in data.classes:
        (folder / name).mkdir(parents=True)

    def write(index: int) -> None:
        pixels = rows.images[index].permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(folder / data.classes[int(rows.labels[index])] / f"{index}.png")

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(len(rows.labels))))


def probed(model: Path, folder: Path, given: argparse.Namespace) -> float:
    """The accuracy of `climb probe` on the encoder of a learner or a run."""
    out = folder / f"probe-{model.name}.json"
    climb("probe", model, folder / "labelled", "--seed", given.seed, "--device", given.device, "--out", out)
    return float(json.loads(out.read_text())["linear_accuracy"])


def climb(*words: Any) -> float:
    """Run a command, with its output on standard error; returns its seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "climb", *map(str, words)], check=True, stdout=sys.stderr)
    return round(time.perf_counter() - began, 1)


if __name__ == "__main__":
    main()
