"""The other verbs, and the ways to start the command."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from listing import listings

import climb as package
from climb.cli import main, verbs
from climb.cli.help_text import OURS
from climb.config import LearnerConfig
from climb.datasets import names
from climb.methods import METHODS, choose_method, parts_of
from climb.presets import PRESETS, apply_preset
from climb.recipes import RECIPES
from climb.verified import verified
from climb.workshop import OBJECTIVES

Climb = Callable[..., Any]


def test_recipes_lists_every_one(climb: Climb) -> None:
    said = climb("recipes")
    assert said.code == 0
    for name in RECIPES:
        assert f" {name} " in said.out
    assert "|".join(PRESETS) in said.out


@pytest.mark.parametrize("columns", ["80", "200"])
def test_methods_lists_every_one_with_its_parts_its_paper_and_what_was_measured(
    columns: str, climb: Climb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = climb("methods")
    assert (said.code, said.err) == (0, "")
    assert all(len(line) <= int(columns) for line in said.out.splitlines())
    entries, _ = listings(said.out)
    assert list(entries) == list(METHODS)
    for name, entry in entries.items():
        found = METHODS[name]
        assert (entry["what"], entry["paper"], entry.get("views")) == (found.summary, found.paper, found.views)
        assert entry["parts"] == " + ".join(parts_of(name).values())
        assert ("own loop" in entry["parts"]) == found.own_loop
        assert entry["lr"] == ("preset's" if found.lr is None else f"{found.lr:g}")
        own = [found for found in verified() if found.method == name]
        own = [each for each in own if each.lr == choose_method(apply_preset(LearnerConfig(), each.preset), name).lr]
        numbers = [f"FA {found.final_accuracy:.2f}" for found in own]  # other rates were tried in a search
        assert re.findall(r"FA \d+\.\d\d", entry["measured"]) == numbers
        assert numbers or entry["measured"] == "not yet"


def test_methods_lists_every_objective_below(climb: Climb) -> None:
    _, entries = listings(climb("methods").out)
    assert list(entries) == list(OBJECTIVES)
    for name, entry in entries.items():
        found = OBJECTIVES[name]
        rate = "preset's" if found.lr is None else f"{found.lr:g}"
        assert entry == {"what": found.summary, "paper": found.paper, "lr": rate, "package": "climb"}


@pytest.mark.parametrize("verb", ["run", "tune", "learn"])
def test_every_objective_of_ours_is_named_where_one_is_chosen(verb: str) -> None:
    """Help puts all names in the place of this text; so it is looked for as it is written."""
    assert f"objective: {OURS}." in inspect.getsource(verbs()[verb])
    assert OURS.replace(" or ", ", ").split(", ") == [
        name for name, found in OBJECTIVES.items() if found.make.__module__ == "climb.workshop"
    ]


def test_data_lists_every_dataset_and_the_cache(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    said = climb("data")
    assert said.code == 0
    for name in names():
        assert f" {name} " in said.out
    assert f"cache: {os.environ['CLIMB_CACHE']}" in said.out
    assert "$CLIMB_DATA: (not set)" in said.out
    monkeypatch.setenv("CLIMB_DATA", "/my/data")
    assert "$CLIMB_DATA: /my/data" in climb("data").out


def test_doctor_trains_and_says_with_what(climb: Climb) -> None:
    said = climb("doctor", "--device", "cpu")
    assert said.code == 0
    assert package.__version__ in said.out
    assert torch.__version__ in said.out
    assert "works" in said.out
    assert "eager" in said.out
    assert f"{os.environ['CLIMB_CACHE']} (writable)" in said.out


def test_the_version(climb: Climb) -> None:
    said = climb("--version")
    assert (said.code, said.out) == (0, f"climb {package.__version__}\n")


@pytest.mark.parametrize("verb", ["--version", "recipes"])
def test_whoever_reads_may_stop_reading(verb: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "climb", verb]
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_doctor_refuses_a_device_that_is_none(climb: Climb) -> None:
    said = climb("doctor", "--device", "gpu")
    assert said.code == 2
    assert "unknown device 'gpu'" in said.err


@pytest.mark.parametrize("verb", [[], ["run"], ["recipes"], ["data"], ["doctor"]])
def test_help(verb: list[str], climb: Climb) -> None:
    said = climb(*verb, "--help")
    assert said.code == 0
    assert "usage: climb" in said.out
    assert not said.err


def test_help_says_nothing_that_is_nothing(climb: Climb) -> None:
    for verb in ("run", "bench", "learn", "run"):  # and the same the second time
        said = climb(verb, "--help").out
        assert "None" not in said
        assert "(default: )" not in said
    assert "--lr FLOAT" in said
    assert "(default: demo)" in said


def test_the_list_of_verbs_is_short_and_each_verbs_own_help_is_whole(climb: Climb) -> None:
    whole = climb("run", "--help").out
    brief = climb("--help").out
    assert "Train and evaluate one method" in brief
    assert "climb --version" in brief
    assert "torchrun" not in brief
    assert "torchrun" in whole
    assert climb("run", "--help").out == whole


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["climb", "run", "nothing-like-it"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    with pytest.raises(SystemExit) as left:
        main(["data"])
    assert left.value.code == 0


BARE = """
import importlib.metadata, runpy, sys

def nothing(name):
    raise importlib.metadata.PackageNotFoundError(name)

found = importlib.metadata.distribution
importlib.metadata.distribution = lambda name: nothing(name) if name.startswith("climb") else found(name)
sys.argv = ["climb", *sys.argv[1:]]
import climb
print(climb.__file__)
runpy.run_module("climb", run_name="__main__", alter_sys=True)
"""


def test_runs_from_a_bare_checkout_without_metadata(tmp_path: Path) -> None:
    source = Path(package.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "climb", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    done = start("-m", "climb", "recipes")
    assert done.returncode == 0, done.stderr
    assert "cifar100-20" in done.stdout
    done = start("-c", BARE, "doctor", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "src" / "climb" / "__init__.py"))
    assert "works" in done.stdout


def test_a_full_gpu_says_what_to_do(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB"
        )

    monkeypatch.setattr(package.Climb, "partial_fit", full)
    said = climb("doctor", "--device", "cpu")
    assert said.code == 1
    assert said.err.startswith(
        "climb: CUDA out of memory. Tried to allocate 2.00 GiB. Stop what else runs on the device"
    )
    assert "--replay-batch 64" in said.err


def test_other_faults_keep_their_traceback(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(package.Climb, "partial_fit", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        climb("doctor", "--device", "cpu")
