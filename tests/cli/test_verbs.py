"""The other verbs, and the ways to start the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from listing import listings

import climb as package
from climb.cli import main
from climb.datasets import names
from climb.methods import METHODS, OBJECTIVES, choose_method
from climb.methods.catalog import parts_of
from climb.nets import BACKBONES
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.fields import settings_of
from climb.settings.presets import PRESETS, apply_preset
from climb.settings.recipes import RECIPES
from climb.verified import verified

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
    entries, _, _ = listings(said.out)
    assert list(entries) == list(METHODS)
    for name, entry in entries.items():
        found = METHODS[name]
        assert (entry["what"], entry["paper"], entry.get("views")) == (found.summary, found.paper, found.views)
        assert entry["parts"] == " + ".join(parts_of(name).values())
        assert ("custom engine" in entry["parts"]) == found.custom_engine
        assert entry["lr"] == ("preset's" if found.lr is None else f"{found.lr:g}")
        own = [found for found in verified() if found.method == name]
        own = [each for each in own if each.lr == choose_method(apply_preset(LearnerConfig(), each.preset), name).lr]
        numbers = [f"FA {found.final_accuracy:.2f}" for found in own]  # other rates were tried in a search
        assert re.findall(r"FA \d+\.\d\d", entry["measured"]) == numbers
        assert numbers or entry["measured"] == "not yet"


def test_methods_lists_every_objective_below(climb: Climb) -> None:
    _, entries, _ = listings(climb("methods").out)
    assert list(entries) == list(OBJECTIVES)
    for name, entry in entries.items():
        found = OBJECTIVES[name]
        rate = "preset's" if found.lr is None else f"{found.lr:g}"
        assert entry == {"what": found.summary, "paper": found.paper, "lr": rate, "package": "climb"}


def test_methods_lists_the_networks_with_their_extras(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    sys.modules["transformers"].__spec__ = ModuleSpec("transformers", None)
    _, _, entries = listings(climb("methods").out)
    assert list(entries) == [*BACKBONES, "timm/NAME", "hf:FOLDER-OR-ID"]
    assert entries["resnet18"]["weights"] == "random, or a file"
    assert entries["efficientnet-lite0"]["weights"].startswith("pretrained, random, or a file; extra lite: ")
    assert entries["timm/NAME"]["weights"].endswith("extra timm: not installed (pip install 'climb-ssl[timm]')")
    assert entries["hf:FOLDER-OR-ID"]["weights"].endswith("extra hf: installed")
    doctor = climb("doctor", "--device", "cpu").out
    assert re.search(r"extra timm .* not installed \(pip install 'climb-ssl\[timm\]'\)", doctor)


@pytest.mark.parametrize("verb", ["run", "tune", "learn", "bench"])
def test_help_names_what_the_verb_accepts(climb: Climb, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = " ".join(climb(verb, "--help").out.replace("│", " ").split())
    unfit = {"iid", "cassle-r", "pcmc"} if verb == "learn" else set()
    methods = re.search(r"One of: (climb, [^.]*)\.", text)
    assert methods is not None
    assert methods[1].split(", ") == [name for name in METHODS if name not in unfit]
    assert (f"One of: {', '.join(OBJECTIVES)}." in text) == (verb != "bench")
    assert f"One of: {', '.join(PRESETS)}." in text


def test_help_is_grouped_and_every_setting_has_its_option(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = climb("run", "--help").out
    titles = re.findall(r"(\w+) options\b", text)
    assert titles == ["data", "stream", "learner", "memory", "evaluation", "execution"]
    learner = text[text.index("learner options") : text.index("evaluation options")]
    for section in (LearnerConfig, MemoryConfig):
        for setting in settings_of(section).values():
            expected = setting.has_option and setting.name != "image_size"
            assert (f" --{setting.option.replace('_', '-')} " in learner) == expected


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
    assert "times as fast as float32" in said.out
    assert f"{os.environ['CLIMB_CACHE']} (writable)" in said.out


def test_doctor_says_what_compiling_needs(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/compiler")
    said = climb("doctor", "--device", "cpu")
    assert said.code == 0
    assert "there is no C++ compiler: install" in " ".join(said.out.split())


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
    for verb in ("table", "run", "bench", "learn", "run"):  # and the same the second time
        said = climb(verb, "--help").out
        assert "None" not in said
        assert "(default: )" not in said
    assert "--lr FLOAT" in said
    assert "(default: auto)" in said


def test_a_missing_argument_is_explained(climb: Climb) -> None:
    said = climb("learn")
    assert said.code == 2
    assert "folder of the learner" in " ".join((said.out + said.err).split())


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
        "climb: CUDA out of memory. Tried to allocate 2.00 GiB. Stop other programs on the device"
    )
    assert "--replay-batch 64" in said.err


def test_other_faults_keep_their_traceback(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(package.Climb, "partial_fit", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        climb("doctor", "--device", "cpu")
