"""Check that every method learns: accuracy on the demo's stream, compared with the random encoder (make verify).

    python benchmarks/verify_methods.py --seeds 3 --out runs/verify --results results/synthetic-methods
    python benchmarks/verify_methods.py --methods pcmc --device cuda      # its sleeps are long on a CPU

Runs are ordinary run folders. Finished runs are not repeated, so the command can be stopped and continued. The table
has the mean final accuracy of each method, the random encoder's accuracy and the executed backward passes; other
methods keep their rows. Two CPU cores take an hour. It is no comparison of methods: the stream is 50 times shorter
than the paper's.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from climb.methods import METHODS, choose_method
from climb.session import execute
from climb.settings.config import Execution
from climb.settings.recipes import get_recipe

BELOW = ("finetune",)
"""Methods that may end below the random encoder: the lower bound."""

KEPT = (
    "method",
    "seed",
    "final_accuracy",
    "continual_accuracy",
    "random_encoder_accuracy",
    "cbp",
    "forward_only_images",
    "stored_images",
    "evaluated",
    "config_hash",
    "versions",
)
"""Keys of a run's result in the file beside the table."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--methods", nargs="+", help="default: all, without a GPU all but pcmc")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--out", type=Path, default=Path("runs/verify"))
    arguments.add_argument("--results", type=Path, default=Path("results/synthetic-methods"))
    given = arguments.parse_args()
    if given.methods is None:
        given.methods = [name for name in METHODS if name != "pcmc" or given.device.startswith("cuda")]
        if "pcmc" not in given.methods:
            print("without pcmc, whose sleeps are for a GPU: --methods pcmc --device cuda", flush=True)
    jobs = [(name, seed, given.device, given.out) for name in given.methods for seed in range(given.seeds)]
    found = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        for result in pool.map(run_one, jobs):
            found.append({key: result[key] for key in KEPT})
            print(f"{result['method']} seed {result['seed']}: {result['final_accuracy']:.2f}", flush=True)
    given.results.mkdir(parents=True, exist_ok=True)
    file = given.results / "results.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    records = [record for record in before if record["method"] not in given.methods] + found
    records.sort(key=lambda record: (list(METHODS).index(record["method"]), record["seed"]))
    file.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    table = summarise(records)
    page = given.results / "README.md"
    page.write_text(with_table(page.read_text(encoding="utf-8") if page.exists() else "", table), encoding="utf-8")
    print(table)
    if failed := not_learning(records):
        raise SystemExit(f"not above the random encoder: {', '.join(failed)}")


def run_one(job: tuple[str, int, str, Path]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    name, seed, device, out = job
    config = get_recipe("demo")
    learner = choose_method(config.learner, name)
    return execute(replace(config, seed=seed, learner=learner), Execution(device=device), out / f"{name}-{seed}")


def by_method(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {name: found for name in METHODS if (found := [record for record in records if record["method"] == name])}


def not_learning(records: list[dict[str, Any]]) -> list[str]:
    """The methods that did not beat the random encoder and should have."""
    return [
        name
        for name, found in by_method(records).items()
        if name not in BELOW and mean(found, "final_accuracy") <= mean(found, "random_encoder_accuracy")
    ]


def summarise(records: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = [
        "| method | FA, mean (std) | random encoder | seeds | CBP | forward only | network | torch | device |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in by_method(records).items():
        first, versions = found[0], found[0]["versions"]
        spread = statistics.stdev(record["final_accuracy"] for record in found) if len(found) > 1 else 0.0
        lines.append(
            f"| `{name}` | {mean(found, 'final_accuracy'):.2f} ({spread:.2f}) "
            f"| {mean(found, 'random_encoder_accuracy'):.2f} | {len(found)} | {first['cbp']:,} "
            f"| {first['forward_only_images']:,} | {first['evaluated']} | {versions['torch']} | {versions['device']} |"
        )
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str) -> str:
    """``page`` with ``table`` in place of the one it has, or at its end."""
    lines = page.splitlines(keepends=True)
    place = next((index for index, line in enumerate(lines) if line.startswith("|")), len(lines))
    rest = [line for line in lines if not line.startswith("|")]
    return "".join([*rest[:place], table, *rest[place:]])


def mean(records: list[dict[str, Any]], key: str) -> float:
    return statistics.fmean(record[key] for record in records)


if __name__ == "__main__":
    main()
