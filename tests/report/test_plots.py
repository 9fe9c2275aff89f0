from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb.errors import InputError
from climb.report import draw_plots

MakeRun = Callable[..., Path]


def test_plots_of_a_run_without_a_result(make_run: MakeRun) -> None:
    """A run draws them before it writes its result."""
    folder = make_run(result=None)
    assert draw_plots(folder) == [folder / "accuracy.png", folder / "memory.png"]
    for path in draw_plots(folder):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20  # more than an empty page


def test_a_flat_memory_has_no_plot(make_run: MakeRun) -> None:
    folder = make_run()
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    flat = [{key: value for key, value in line.items() if key != "stm_images"} for line in lines]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in flat))
    assert draw_plots(folder) == [folder / "accuracy.png"]


def test_an_empty_journal_has_no_plots(make_run: MakeRun) -> None:
    assert draw_plots(make_run(journal=[], result=None)) == []


def test_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        draw_plots(tmp_path)
