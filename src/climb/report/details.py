"""The end of the page: cost, command, configuration, versions and files of a run."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from climb.errors import InputError
from climb.files import files_below
from climb.report.markup import flattened, number_rows, remark, section, table
from climb.report.record import Record
from climb.settings.config import RunConfig, from_dict
from climb.settings.recipes import get_recipe

PAGE = "report.html"
LONGEST = 300  # characters of a setting
COUNTED_LIVE = {
    "images": ("Images", ",.0f", "learned from the stream so far"),
    "passed_over": ("Skipped", ",.0f", "images that could not be used"),
    "dropped": ("Dropped", ",.0f", "frames that arrived faster than they could be learned"),
    "memory_bytes": ("Memory, bytes", ",.0f", "reserved for images and embeddings"),
    "resident_bytes": ("Process, bytes", ",.0f", "resident memory of the whole process"),
}
"""Rows of an unfinished run: key in the journal to name, format and meaning."""
FILES = {
    "config.json": "the configuration and the environment",
    "journal.jsonl": "one line per event: losses, memory, evaluations",
    "result.json": "the numbers; written when the run has finished",
    "scenario.json": "classes of each task; --manifest repeats them",
    "model.safetensors": "the trained encoder",
    "memory.safetensors": "the content of the memory at the end, images reduced",
    "accuracy.png": "accuracy by task",
    "memory.png": "the memory over time",
    "checkpoint/state.safetensors": "the state from which an interrupted run continues",
    "checkpoint/previous.safetensors": "the state before, for the case that the newest is damaged",
}


def cost(record: Record) -> str:
    """The section on computation, storage and time."""
    capacity = record.config.get("learner", {}).get("memory", {}).get("capacity")
    if record.result:
        return section("cost", "Cost", table(_final_cost(record.result, capacity), numbers=[1]))
    counted = {"stored": ("Stored images", ",.0f", _stored(capacity)), **COUNTED_LIVE}
    rows = number_rows([{key: record.latest(key) for key in counted}], counted)
    text = "The total cost is known when the run has finished." if record.labelled else ""
    return section("cost", "Cost", table(rows, numbers=[1]) if rows else "", remark(text))


def _stored(capacity: int | None) -> str:
    return "in the memory" if capacity is None else f"in the memory, of {capacity:,} at most"


def _final_cost(result: dict[str, Any], capacity: int | None) -> list[list[str]]:
    seconds, bounded = result["seconds"], result.get("memory_bounded", True)
    size = f"{result['memory_bytes']:,} bytes for images and embeddings, {'bounded' if bounded else 'without a bound'}"
    return [
        ["CBP", f"{result['cbp']:,}", "cumulative backward passes: views with a gradient"],
        ["Gradient steps", f"{result['gradient_steps']:,}", "steps of the optimiser"],
        ["Forward only", f"{result['forward_only_images']:,}", "views or images without a gradient"],
        ["Stored images", f"{result['stored_images']:,}", _stored(capacity if bounded else None)],
        ["Memory", readable_bytes(result["memory_bytes"]), size],
        ["Training", f"{seconds['train']:,.1f} s", "time spent on the stream"],
        ["Evaluation", f"{seconds['evaluate']:,.1f} s", "time spent on probes, the random encoder's included"],
        ["Total", f"{seconds['total']:,.1f} s", "from start to end"],
    ]


def reproduce(record: Record) -> str:
    """The section with the command that repeats the run.

    A run started from Python gets the command with the same configuration, if a recipe has it.
    """
    command, text = record.command, "As typed. In the same folder it continues the run, or shows the result."
    if command is None:
        command = _command_of_recipe(record)
        text = "The run was started from Python. This command has the same configuration."
    if command is None:
        text = "The run was started from Python with settings of its own, listed below."
    code = "" if command is None else f'<pre class="command"><code>{escape(command)}</code></pre>'
    return section("command", "Command", code, remark(text))


def _command_of_recipe(record: Record) -> str | None:
    try:
        config = from_dict(RunConfig, record.config)
        recipe = get_recipe(config.recipe, preset=config.learner.preset)
    except (InputError, TypeError):  # settings of another version, or of a learner
        return None
    if RunConfig(**{**vars(recipe), "seed": config.seed}).config_hash() != record.config_hash:
        return None
    return shlex.join(["climb", "run", config.recipe, "--preset", config.learner.preset, "--seed", str(config.seed)])


def configuration(record: Record) -> str:
    """The section with all settings, folded."""
    execution = [(f"execution.{key}", value) for key, value in flattened(record.execution)]
    settings = [(key, _shortened(value)) for key, value in flattened(record.config)]
    rows = [*settings, *execution, ("config hash", record.config_hash)]
    return section("settings", "Configuration", f"<details><summary>All settings</summary>{table(rows)}</details>")


def _shortened(text: str) -> str:
    """A long text cut short: a saved scenario and a custom order list thousands of images."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def versions(record: Record) -> str:
    """The section on libraries, device and, for a finished run, arithmetic."""
    keys = ("precision", "engine", "processes", "deterministic")
    rows = [*flattened(record.versions), *((key, str(record.result[key])) for key in keys if key in record.result)]
    return section("versions", "Versions", table(rows))


def files(record: Record) -> str:
    """The section with links to the files of the folder, relative to the page."""
    paths = {path.relative_to(record.path).as_posix(): path for path in sorted(files_below(record.path))}
    # Without the page itself, a second call writes the same page. Dotted names are half-written files.
    shown = {name: path for name, path in paths.items() if name != PAGE and not path.name.startswith(".")}
    return file_list(shown, prefix="./")


def file_list(paths: dict[str, Path], *, prefix: str) -> str:
    """The section with a link to each file, its size and what it holds. The prefix makes an address of a name."""
    items = []
    for name, path in paths.items():
        with contextlib.suppress(OSError):  # deleted or renamed meanwhile, such as a part of the journal
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                address = quote(os.fsencode(f"{prefix}{name}"))  # by its bytes: a name need not be UTF-8
                meaning = f", {FILES[name]}" if name in FILES else ""
                size = readable_bytes(status.st_size)
                items.append(f'<li><a href="{escape(address)}">{escape(name)}</a> ({size}){escape(meaning)}</li>')
    return section("files", "Files", f"<ul>{''.join(items)}</ul>")


def readable_bytes(count: int) -> str:
    """A size with its unit.

    >>> readable_bytes(512), readable_bytes(757760), readable_bytes(2_500_000_000)
    ('512 bytes', '757.8 kB', '2.5 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
