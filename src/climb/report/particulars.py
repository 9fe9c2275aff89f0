"""What it cost, how it was set up, what it was measured with, and where the rest is."""

from __future__ import annotations

import os
import stat
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from climb.files import files_below
from climb.report.figure import quiet, section
from climb.report.record import Record
from climb.report.table import flattened, table

PAGE = "report.html"
COUNTED_LIVE = (
    ("images", "Images", "of the stream, learned from so far"),
    ("passed_over", "Passed over", "images that could not be used"),
    ("dropped", "Dropped", "frames that came faster than they could be learned"),
    ("memory_bytes", "Memory, bytes", "reserved for images and embeddings"),
    ("resident_bytes", "Process, bytes", "of the machine's memory, all in all"),
)
FILES = {
    "config.json": "the configuration, and what it was started with",
    "journal.jsonl": "one line per event: losses, memory, evaluations",
    "result.json": "the numbers; there once the run is finished",
    "scenario.json": "which classes came in which task, to be replayed with --manifest",
    "model.safetensors": "the trained encoder",
    "memory.safetensors": "what the memory held at the end, images made small",
    "accuracy.png": "accuracy by task, as a picture",
    "memory.png": "the memory's life, as a picture",
    "checkpoint/state.safetensors": "the state that an interrupted run continues from",
}


def cost(record: Record) -> str:
    """What the run spent and what its memory took."""
    if record.result is not None:
        return section("cost", "What it cost", table(_spent(record.result, _capacity(record)), numbers=[1]))
    rows = _stored_so_far(record)
    counted = "What the run spent is counted up when it is finished." if record.labelled else ""
    return section(
        "cost", "What it cost", *([table(rows, numbers=[1])] if rows else []), *([quiet(counted)] if counted else [])
    )


def configuration(record: Record) -> str:
    """Every setting, folded."""
    settings = flattened(record.config)
    execution = [(f"execution.{key}", value) for key, value in flattened(record.execution)]
    rows = [*settings, *execution, ("config hash", record.config_hash)]
    return section("settings", "Configuration", f"<details><summary>All settings</summary>{table(rows)}</details>")


def versions(record: Record) -> str:
    """Which libraries and device, and which arithmetic where it is known."""
    rows = flattened(dict(record.versions))
    if record.result is not None:
        rows += [
            (key, str(record.result[key]))
            for key in ("precision", "engine", "processes", "deterministic")
            if key in record.result
        ]
    return section("versions", "Measured with", table(rows))


def files(record: Record) -> str:
    """What lies beside the page, with links that work while it stays there."""
    lines = []
    for path in sorted(files_below(record.path)):
        if not _listed(path.relative_to(record.path)):
            continue
        try:
            status = path.stat()
        except OSError:  # gone meanwhile, as a journal is that is being continued in another file
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        name = path.relative_to(record.path).as_posix()
        said = f", {FILES[name]}" if name in FILES else ""
        size = readable_bytes(status.st_size)
        address = quote(os.fsencode(f"./{name}"))  # by its bytes: a name need not be UTF-8
        lines.append(f'<li><a href="{escape(address)}">{escape(name)}</a> ({size}){escape(said)}</li>')
    return section("files", "Files", "<ul>", *lines, "</ul>")


def readable_bytes(count: int) -> str:
    """A size as people say it.

    >>> readable_bytes(512), readable_bytes(757760), readable_bytes(2_500_000_000)
    ('512 bytes', '757.8 kB', '2.5 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _listed(name: Path) -> bool:
    # The page does not list itself, so that writing it twice gives the same page; dotted names are half-written files.
    return name.as_posix() != PAGE and not any(part.startswith(".") for part in name.parts)


def _capacity(record: Record) -> int | None:
    capacity: int | None = record.config.get("learner", {}).get("memory", {}).get("capacity")
    return capacity


def _stored_so_far(record: Record) -> list[list[str]]:
    stored = record.latest("stored")
    rows = [] if stored is None else [_stored(int(stored), _capacity(record), bounded=True)]
    rows += [
        [name, f"{record.latest(key):,.0f}", meaning]
        for key, name, meaning in COUNTED_LIVE
        if record.latest(key) is not None
    ]
    return rows


def _stored(count: int, capacity: int | None, *, bounded: bool) -> list[str]:
    limit = f", of {capacity:,} at most" if bounded and capacity is not None else ""
    return ["Stored images", f"{count:,}", f"in the memory{limit}"]


def _spent(result: dict[str, Any], capacity: int | None) -> list[list[str]]:
    seconds = result["seconds"]
    bounded = result.get("memory_bounded", True)
    return [
        ["CBP", f"{result['cbp']:,}", "cumulative backward passes: views that got a gradient"],
        ["Gradient steps", f"{result['gradient_steps']:,}", "steps of the optimiser"],
        ["Forward only", f"{result['forward_only_images']:,}", "views or images that went through without a gradient"],
        _stored(result["stored_images"], capacity, bounded=bounded),
        [
            "Memory",
            readable_bytes(result["memory_bytes"]),
            f"{result['memory_bytes']:,} bytes for images and embeddings, "
            + ("within a fixed bound" if bounded else "without a bound"),
        ],
        ["Training", f"{seconds['train']:,.1f} s", "time on the stream"],
        ["Evaluating", f"{seconds['evaluate']:,.1f} s", "time of the probes, the random encoder's too"],
        ["In all", f"{seconds['total']:,.1f} s", "from start to end"],
    ]
