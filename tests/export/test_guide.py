"""The code in the guide runs."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.cli.models import embed, probe, search
from climb.cli.models import export as export_verb
from climb.export import export, open_model

GUIDE = Path(__file__).parents[2] / "docs" / "use-elsewhere.md"


def test_the_code_of_the_guide_runs(
    run_folder: Path, coloured: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    shutil.copytree(run_folder, tmp_path / "runs/mine")
    coloured({"": 10}).rename(tmp_path / "my-images")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(export(open_model("runs/mine"))))
    monkeypatch.delitem(sys.modules, "encoder", raising=False)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), names)
    assert tuple(names["features"].shape) == (8, 128)
    assert names["batch"].features.shape == (30, 128)


def test_every_option_that_the_guide_types_exists() -> None:
    verbs: dict[str, Callable[..., None]] = {"embed": embed, "probe": probe, "search": search, "export": export_verb}
    typed = re.findall(r"^    climb (\w+) (.*?)(?:  #.*)?$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(typed) >= 10
    for verb, rest in typed:
        known = {"in" if name == "within" else name for name in inspect.signature(verbs[verb]).parameters}
        assert set(re.findall(r"--([a-z-]+)", rest)) <= known
