"""Time of one evaluation: features of all images, then the joint probe and the up-to probe by the full protocol.

    python benchmarks/probe.py --recipe cifar100-20 --data FOLDER --device cuda
    python benchmarks/probe.py                          the demo's stream, on the CPU

The network first trains on a few hundred mini-batches: the number of epochs of a probe depends on the features. The
evaluation is that of a run in the middle of its stream, where the up-to probe knows half of the classes. Median of
--repeats after one evaluation that does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

import torch

from climb.datasets import load, own_image_size
from climb.engine import resolve_device, resolve_engine, resolve_precision
from climb.methods.build import build_engine
from climb.session.evaluation import Evaluator
from climb.session.experiments import images_of, manifest_of
from climb.settings.config import EvaluationConfig, LearnerConfig
from climb.settings.presets import apply_preset
from climb.settings.recipes import get_recipe
from climb.streams import Stream


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", default="demo")
    arguments.add_argument("--data", default=None)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--engine", default="auto", help="engine of the training; no effect on the evaluation")
    arguments.add_argument("--batches", type=int, default=300, help="mini-batches of training")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    device = resolve_device(given.device)
    config = get_recipe(given.recipe)
    learner: LearnerConfig = apply_preset(config.learner, "default")
    size = None if config.data.image_size in (None, own_image_size(config.data.dataset)) else config.data.image_size
    data = load(config.data.dataset, root=given.data, image_size=size, seed=0, **config.data.options)
    stream = Stream(manifest_of(replace(config, learner=learner), images_of(data)), data.train.labels, data.test.labels)
    data = data.to(device)
    engine = build_engine(
        learner,
        mean=data.mean,
        std=data.std,
        seed=0,
        device=device,
        precision=resolve_precision("auto", device),
        kind=resolve_engine(given.engine, device),
    )
    for batch, _ in zip(stream.batches(learner.stream_batch), range(given.batches), strict=False):
        engine.observe(data.train.images[batch.indices.to(device)])
    evaluator = Evaluator(replace(config, evaluation=EvaluationConfig(network="student")), data, stream)
    after = len(stream.groups) // 2 - 1
    seconds = []
    for _ in range(given.repeats + 1):
        began = time.perf_counter()
        accuracies, _ = evaluator.rows(engine, after=after)["student"]
        seconds.append(time.perf_counter() - began)
    row = {
        "recipe": given.recipe,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "images": len(data.train.images) + len(data.test.images),
        "seconds": round(statistics.median(seconds[1:]), 3),
        "first": round(seconds[0], 3),
        "joint": accuracies.joint,
        "upto": accuracies.upto,
    }
    print(json.dumps(row, indent=2) if given.json else "  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
