"""Do people's own files learn as well as a data set of the table? The same images, by both ways.

    python benchmarks/own_images.py --recipe cifar100-20 --data FOLDER --device cuda
    python benchmarks/own_images.py                           the demo's stream, on the CPU

Writes the training and test images of a recipe's data set as PNG files, a folder a class. `climb learn` sees the images
that `climb run` trains on, class after class as in a run of one class a task, and `climb probe` its encoder; that
`climb run` does the whole on its own. Prints both accuracies, and `climb probe` of the run's encoder, so that a
difference of the probes can be told from a difference of the learners. With --run FOLDER the run is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from climb.config import RunConfig
from climb.datasets import Dataset, load, own_image_size
from climb.recipes import get_recipe
from climb.runs.run import manifest_of
from climb.streams import Stream


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", default="demo")
    arguments.add_argument("--data", default=None)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--run", type=Path, default=None, help="a finished run of the recipe, seed 0")
    arguments.add_argument("--folder", type=Path, default=None, help="keep the files here")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="climb-own-") as temporary:
        folder = given.folder or Path(temporary)
        config = get_recipe(given.recipe)
        classes = write_images(config, given.data, folder)
        learner = folder / "learner"
        climb("learn", folder / "stream", "--out", learner, *learner_options(config), "--device", given.device)
        run = given.run or folder / "run"
        if given.run is None:
            data = () if given.data is None else ("--data", given.data)
            climb("run", given.recipe, "--tasks", classes, *data, "--device", given.device, "--out", run)
        found = {
            "recipe": given.recipe,
            "tasks": classes,
            "learned_from_files": probed(learner, folder, given.device),
            "run": json.loads((run / "result.json").read_text())["final_accuracy"],
            "run_probed_on_files": probed(run, folder, given.device),
        }
    print(json.dumps(found, indent=2))


def write_images(config: RunConfig, root: str | None, folder: Path) -> int:
    """``labelled/train|test/CLASS/*.png``: all images. ``stream/NUMBER-CLASS/*.png``: what the run trains on.

    Gives the number of classes.
    """
    size = None if config.data.image_size in (None, own_image_size(config.data.dataset)) else config.data.image_size
    data = load(config.data.dataset, root=root, image_size=size, seed=0, **config.data.options)
    for part in ("train", "test"):
        write_part(data, part, folder / "labelled" / part)
    config = replace(config, stream=replace(config.stream, tasks=len(data.classes)))
    stream = Stream(manifest_of(config, len(data.classes)), data.train.labels, data.test.labels)
    order = [label for task in stream.manifest.tasks for label in task]
    seen = torch.cat([segment.train for segment in stream.segments])
    for place, label in enumerate(order):
        name = data.classes[label]
        here = folder / "stream" / f"{place:03d}-{name}"
        here.mkdir(parents=True)
        for index in seen[data.train.labels[seen] == label].tolist():
            os.link(folder / "labelled" / "train" / name / f"{index}.png", here / f"{index}.png")
    return len(order)


def write_part(data: Dataset, part: str, folder: Path) -> None:
    rows = getattr(data, part)
    for name in data.classes:
        (folder / name).mkdir(parents=True)

    def write(index: int) -> None:
        pixels = rows.images[index].permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(folder / data.classes[int(rows.labels[index])] / f"{index}.png")

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(len(rows.labels))))


def learner_options(config: RunConfig) -> list[Any]:
    """The recipe's learner, said to `climb learn`."""
    learner = config.learner
    return [
        *("--backbone", learner.backbone, "--image-size", learner.image_size, "--passes", learner.passes),
        *("--stream-batch", learner.stream_batch, "--replay-batch", learner.replay_batch),
        *("--budget", learner.memory.capacity, "--workers", 4),
    ]


def probed(model: Path, folder: Path, device: str) -> float:
    """What `climb probe` says of a learner's or a run's encoder."""
    out = folder / f"probe-{model.name}.json"
    climb("probe", model, folder / "labelled", "--device", device, "--out", out)
    return float(json.loads(out.read_text())["linear_accuracy"])


def climb(*words: Any) -> None:
    subprocess.run([sys.executable, "-m", "climb", *map(str, words)], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
