"""`climb methods`, `recipes`, `data`: what can be chosen. `climb doctor`: does everything work here?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from climb.cli.output import plain_console, print_error, print_table
from climb.errors import ClimbError
from climb.settings.recipes import RECIPES, describe

LEGEND = """parts: memory + batch + objective + alignment
lr: the learning rate that it starts from
measured: on real data, at that rate, in this repository
"""
LIBRARIES = ("numpy", "safetensors", "pillow", "tyro", "rich", "matplotlib", "scipy")
Entry = tuple[str, dict[str, str | None]]
"""A name with its properties, "what" first; None for a property that is left out."""


def methods() -> None:
    """List the methods: parts, paper, learning rate, and accuracy measured on real data.

    The objectives follow, each with its package, and the networks with the extra that they need. Packages that cannot
    be imported are named with the reason.
    """
    from climb.registry import load_plugins

    broken = load_plugins()
    console = plain_console()
    console.print(LEGEND)
    for heading, entries in (
        ("methods", _methods()),
        ("objectives", _objectives()),
        ("networks", _networks()),
    ):
        console.print(heading, style="bold underline", end="\n\n")
        console.print(_grid(entries))
    for reason in broken:
        print_error(reason)


def _methods() -> Iterator[Entry]:
    from climb.methods import METHODS, choose_method
    from climb.methods.catalog import parts_of
    from climb.settings.config import LearnerConfig
    from climb.settings.presets import apply_preset
    from climb.verified import Verified, verified

    def at_its_rate(row: Verified) -> bool:
        """Whether the method ran at the rate that it starts from; others were tried in searches."""
        return row.lr == choose_method(apply_preset(LearnerConfig(), row.preset), row.method).lr

    for name, method in METHODS.items():
        measured = [str(row) for row in verified() if row.method == name and at_its_rate(row)]
        declared = parts_of(name).values()
        package = _package(method.build)
        yield (
            name,
            {
                "what": method.summary,
                "parts": "not declared" if set(declared) == {"unknown"} else " + ".join(declared),
                "paper": method.paper,
                "lr": _rate(method.lr),
                "views": method.views,
                "measured": "\n".join(measured) or "not yet",
                "package": None if package == "climb" else package,
            },
        )


def _objectives() -> Iterator[Entry]:
    from climb.methods.objectives import OBJECTIVES

    for name, spec in OBJECTIVES.items():
        yield name, {"what": spec.summary, "paper": spec.paper, "lr": _rate(spec.lr), "package": _package(spec.make)}


def _networks() -> Iterator[Entry]:
    from climb.nets import BACKBONES
    from climb.nets.build import EXTRAS, LIBRARIES, is_published
    from climb.registry import first_line

    for name, entry in BACKBONES.items():
        start = ["pretrained"] if is_published(entry) else []
        weights = ", ".join([*start, "random, or a file"]) + _extra(entry.extra)
        what = first_line(entry.make.__doc__).replace("``", "").replace(", weights from generator", "")
        yield name, {"what": what, "weights": weights, "package": _package(entry.make)}
    for prefix, extra, _, _ in LIBRARIES:
        what = f"A model of {EXTRAS[extra]}."
        name = f"{prefix}{'NAME' if extra == 'timm' else 'FOLDER-OR-ID'}"
        yield name, {"what": what, "weights": f"pretrained, random, or a file{_extra(extra)}", "package": "climb"}


def _extra(extra: str | None) -> str:
    return "" if extra is None else f"; extra {extra}: {_installed(extra)}"


def _installed(extra: str) -> str:
    """Whether an extra with networks is installed and, if not, the command that installs it."""
    from climb.nets.build import EXTRAS

    found = importlib.util.find_spec(EXTRAS[extra]) is not None
    return "installed" if found else f"not installed (pip install 'climb-ssl[{extra}]')"


def _package(function: Callable[..., Any]) -> str:
    """The package that defines a function."""
    function = getattr(function, "func", function)  # of a `functools.partial`, whose own module is Python's
    return str(getattr(function, "__module__", repr(function))).partition(".")[0]


def _grid(entries: Iterable[Entry]) -> Table:
    """A table of entries with their properties, for terminals of 80 columns and more."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, properties in entries:
        for label, value in properties.items():
            if value is not None:
                grid.add_row(name if label == "what" else "", label, value)
        grid.add_row()
    return grid


def _rate(lr: float | None) -> str:
    return "preset's" if lr is None else f"{lr:g}"


def recipes() -> None:
    """List the named experiments."""
    print_table(("recipe", "what"), ((name, describe(name)) for name in RECIPES))
    print("run one: climb run RECIPE --preset paper|default|reference --seed 0")


def data() -> None:
    """List the datasets and the folders they are looked for in."""
    from climb.datasets import names
    from climb.files import cache_dir

    print_table(("dataset", "what, and where it is looked for"), names().items())
    print("ROOT: what --data names")
    print(f"$CLIMB_DATA: {os.environ.get('CLIMB_DATA') or '(not set)'}")
    print(f"cache: {cache_dir()} (set $CLIMB_CACHE to move it)")


def doctor(*, device: str = "auto") -> None:
    """Check versions, device, cache, and one real training step.

    Args:
        device: auto, cpu, cuda, cuda:N or mps.
    """
    import numpy as np
    import torch

    from climb import Climb, __version__
    from climb.engine import choose, resolve_device
    from climb.files import cache_dir
    from climb.nets.build import EXTRAS
    from climb.precision import bf16_gain, missing_for_kernels, usable_cores
    from climb.runs.provenance import device_name

    place = resolve_device(device)
    choices = choose(device=place)
    gain = f" (here, bf16 is {bf16_gain():.1f} times as fast as float32)" if place.type == "cpu" else ""
    rows = [
        ("climb", __version__),
        ("python", platform.python_version()),
        ("torch", torch.__version__),  # which build, too
        *((name, _version(name)) for name in LIBRARIES),
        ("device", f"{place} ({device_name(place)})"),
        ("precision", f"{choices.precision}{gain}"),
        ("layout", choices.layout),
        ("engine", choices.engine),
        ("compiler", missing_for_kernels("cuda" if place.type == "cuda" else "cpu") or "works"),
        ("threads", f"{choices.threads} of {usable_cores()} usable cores"),
        *((f"extra {extra}", _installed(extra)) for extra in EXTRAS),
        ("cache", _writable(cache_dir())),
    ]
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8)
    model = Climb(capacity=100, replay_batch=16, backbone="micro", device=device)
    began = time.perf_counter()
    finite = bool(np.isfinite(model.partial_fit(images).transform(images)).all())
    rows.append(("training", f"{'works' if finite else 'FAILS'} ({time.perf_counter() - began:.1f} s for 64 images)"))
    print_table(("", ""), rows)
    if not finite:
        raise ClimbError("the training step gave features that are not finite")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _writable(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return f"{folder} (writable)"
    except OSError as error:
        return f"{folder} (NOT writable: {error.strerror})"


VERBS = ("methods", "recipes", "data", "doctor")
