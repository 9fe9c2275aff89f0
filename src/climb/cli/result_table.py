"""The table at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from climb.config import LearnerConfig
from climb.evaluation.accuracies import ACCURACIES

OPENED_FIRST = ("report.html", "result.json", "accuracy.png", "memory.png", "model.safetensors")
"""What people open first, of what a run leaves behind; `memory.png` is there for a memory with centroids."""


def print_result(result: dict[str, Any], folder: Path, *, objective: str) -> None:
    """Say what a run found, what it cost, and where the rest is."""
    console = Console(highlight=False, markup=False, soft_wrap=True)  # a folder's name may have brackets
    other = result.get("other")
    told = result["preset"] if objective == LearnerConfig.objective else f"{result['preset']}, {objective}"
    table = Table(
        title=f"{result['method']} ({told}) on {result['dataset']}, {result['tasks']} tasks, seed {result['seed']}",
        title_justify="left",
    )
    table.add_column("linear probe accuracy")
    table.add_column(result["evaluated"], justify="right")
    if other:
        table.add_column(other["evaluated"], justify="right")
    table.add_column("")
    for key in dict.fromkeys(("random_encoder_accuracy", *ACCURACIES)):  # first, what must be exceeded
        accuracy = ACCURACIES[key]
        if accuracy.brief and result.get(key) is not None:
            cells = [f"{result[key]:.2f}"]
            if other:
                cells.append(f"{other[key]:.2f}" if other.get(key) is not None else "")
            table.add_row(accuracy.name, *cells, accuracy.brief)
    console.print(table)
    gain = result["final_accuracy"] - result["random_encoder_accuracy"]
    console.print(f"FA {result['final_accuracy']:.2f} against {result['random_encoder_accuracy']:.2f}: {gain:+.2f}")
    console.print(_memory(result))
    seconds = result["seconds"]
    console.print(
        f"budget: {result['cbp']:,} backward passes in {result['gradient_steps']:,} steps, "
        f"{result['forward_only_images']:,} forward only; "
        f"{seconds['train']:.0f} s training, {seconds['evaluate']:.0f} s evaluating, {seconds['total']:.0f} s in all"
    )
    there = [name for name in OPENED_FIRST if (folder / name).exists()]
    console.print(f"folder: {folder} ({', '.join(there)})")


def _memory(result: dict[str, Any]) -> str:
    """What is stored; of a memory with centroids, also what became of them."""
    if not result["memory_bytes"]:
        return "memory: none"
    memory = result["memory"]
    said = f"memory: {result['stored_images']} images, {result['memory_bytes'] / 1e6:.1f} MB"
    if "stm_centroids" in memory:
        events = (("promoted", "promotions"), ("merged", "merges"), ("pruned", "prunes"))
        said += "; " + ", ".join(f"{memory.get(key, 0)} {word}" for key, word in events)
    threshold = memory.get("threshold")
    return said if threshold is None else f"{said}; final threshold {threshold:.3f}"
