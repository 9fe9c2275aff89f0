"""What the demo promises."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.runs import RunFolder
from climb.runs.provenance import versions
from climb.session import execute
from climb.settings.config import Execution
from climb.settings.recipes import get_recipe

MADE = Path(__file__).parents[1] / "runs" / "demo-default-0"  # by `make demo`


def made_by_this_code() -> dict[str, Any] | None:
    """What `make demo` found, if it was this code, as committed, with these libraries: it would be found again."""
    folder = RunFolder(MADE)
    result = folder.result() if MADE.is_dir() else None
    if result is None or result["config_hash"] != get_recipe("demo").config_hash():
        return None
    ours, theirs = ({**found, "device_name": ""} for found in (versions(torch.device("cpu")), result["versions"]))
    known = "commit" in ours and not ours["commit"].endswith("+changes")
    return result if known and ours == theirs else None


@pytest.mark.slow(seconds=150)
def test_the_demo_learns_and_its_memory_lives(tmp_path: Path) -> None:
    result = made_by_this_code()
    seconds = 0.0 if result is None else result["seconds"]["total"]
    if result is None:
        began = time.process_time()
        result = execute(get_recipe("demo"), Execution(device="cpu"), tmp_path / "demo")
        seconds = time.process_time() - began
    assert result["final_accuracy"] >= result["random_encoder_accuracy"] + 25
    assert min(result["memory"][event] for event in ("promoted", "merged", "pruned")) >= 1
    assert result["stored_images"] <= 240
    assert result["cbp"] < 120_000
    assert seconds < 600  # 100 on an idle machine, more on one that shares its cores
