"""Does every method learn? All of them on the demo's stream, a few seeds, beside the random encoder (make verify).

    python benchmarks/verify_methods.py --seeds 3 --out runs/verify --results results/synthetic-methods

Runs are ordinary run folders: what is finished is not repeated, so it can be stopped and continued. The table says for
each method its mean final accuracy, the random encoder's, and the backward passes as executed. It is a check that
methods work, at a size that two CPU cores finish in an hour, and no comparison: the stream is 50 times shorter than the
paper's.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from climb.config import Execution
from climb.methods import METHODS, choose_method
from climb.recipes import get_recipe
from climb.runs import execute

OUTSIDE = {"finetune": "the lower bound", "pcmc": "sleeps 200 epochs at a time; not at this size"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--methods", nargs="+", default=[name for name in METHODS if name != "pcmc"])
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--out", type=Path, default=Path("runs/verify"))
    arguments.add_argument("--results", type=Path, default=Path("results/synthetic-methods"))
    given = arguments.parse_args()
    jobs = [(name, seed, given.out) for name in given.methods for seed in range(given.seeds)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in given.methods}
    with ProcessPoolExecutor(given.workers) as pool:
        for (name, seed, _), result in zip(jobs, pool.map(run_one, jobs), strict=True):
            found[name].append(result)
            print(f"{name} seed {seed}: {result['final_accuracy']:.2f}", flush=True)
    table, failed = summarise(found)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "README.md").write_text(table, encoding="utf-8")
    print(table)
    if failed:
        raise SystemExit(f"not above the random encoder: {', '.join(failed)}")


def run_one(job: tuple[str, int, Path]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    name, seed, out = job
    config = get_recipe("demo")
    learner = choose_method(config.learner, name)
    return execute(replace(config, seed=seed, learner=learner), Execution(device="cpu"), out / f"{name}-{seed}")


def summarise(found: dict[str, list[dict[str, Any]]]) -> tuple[str, list[str]]:
    """The table as Markdown, and the methods that did not beat the random encoder and should have."""
    lines = [
        "# Every method on the demo's stream",
        "",
        "    make verify",
        "",
        "Synthetic textures, 10 classes in 5 tasks, 2700 images, micro network, 240 stored images. A check that each",
        "method learns; no comparison: the stream is 50 times shorter than the paper's, and no rate was tuned for it.",
        "",
        "| method | FA, mean (std) | random encoder | seeds | CBP | forward only | network |",
        "|---|---|---|---|---|---|---|",
    ]
    failed = []
    for name, results in found.items():
        accuracies = [result["final_accuracy"] for result in results]
        floor = statistics.mean(result["random_encoder_accuracy"] for result in results)
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        if statistics.mean(accuracies) <= floor and name not in OUTSIDE:
            failed.append(name)
        lines.append(
            f"| `{name}` | {statistics.mean(accuracies):.2f} ({spread:.2f}) | {floor:.2f} | {len(results)} "
            f"| {results[0]['cbp']:,} | {results[0]['forward_only_images']:,} | {results[0]['evaluated']} |"
        )
    versions = next(iter(found.values()))[0]["versions"]
    lines += ["", f"torch {versions['torch']}, {versions['device_name']}, preset `default`. Not run: `pcmc`."]
    return "\n".join(lines) + "\n", failed


if __name__ == "__main__":
    main()
