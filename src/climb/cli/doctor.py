"""`climb doctor`: does everything work here?"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from climb.errors import ClimbError

LIBRARIES = ("numpy", "safetensors", "pillow", "tyro", "rich", "matplotlib", "scipy")


def doctor(*, device: str = "auto") -> None:
    """Check versions, device, cache, and one real training step.

    Args:
        device: auto, cpu, cuda, cuda:N or mps.
    """
    import torch

    from climb import Climb, __version__
    from climb.cache import cache_dir
    from climb.engine import resolve_device, resolve_engine, resolve_precision
    from climb.runs.versions import device_name

    table = Table(show_header=False)
    table.add_row("climb", __version__)
    table.add_row("python", platform.python_version())
    table.add_row("torch", torch.__version__)  # which build, too
    for name in LIBRARIES:
        table.add_row(name, _version(name))
    place = resolve_device(device)
    table.add_row("device", f"{place} ({device_name(place)})")
    table.add_row("precision", resolve_precision("auto", place))
    table.add_row("engine", resolve_engine("auto", place))
    table.add_row("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    table.add_row("cache", _writable(cache_dir()))

    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8)
    model = Climb(capacity=100, replay_batch=16, backbone="micro", device=device)
    began = time.perf_counter()
    model.partial_fit(images)
    finite = bool(torch.isfinite(torch.from_numpy(model.transform(images))).all())
    table.add_row("training", f"{'works' if finite else 'FAILS'} ({time.perf_counter() - began:.1f} s for 64 images)")
    Console(highlight=False).print(table)
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
