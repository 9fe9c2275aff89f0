"""What the demo promises."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from climb.config import Execution
from climb.recipes import get_recipe
from climb.runs import execute


@pytest.mark.slow
def test_the_demo_learns_and_its_memory_lives(tmp_path: Path) -> None:
    began = time.process_time()
    result = execute(get_recipe("demo"), Execution(device="cpu"), tmp_path / "demo")
    seconds = time.process_time() - began
    assert result["final_accuracy"] >= result["random_encoder_accuracy"] + 25
    assert min(result["memory"][event] for event in ("promoted", "merged", "pruned")) >= 1
    assert result["stored_images"] <= 240
    assert result["cbp"] < 120_000
    assert seconds < 600  # of this process alone: 100 on an idle machine, more on one that shares its cores
