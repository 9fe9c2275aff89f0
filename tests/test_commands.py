"""Every documented command works: on tiny data, or up to its arguments where it needs a GPU, a hub or a cluster."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from climb.cli import run_command
from climb.session import execute, experiment, learn
from climb.settings.config import Execution

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "results").rglob("README.md"))]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
WORDS = {
    "RECIPE": "demo", "RUN": "runs/demo-default-0", "RUNS": "runs", "MODEL": "learner", "IMAGES": "my-images",
    "FOLDER": "runs", "IMAGE": "photo.jpg", "FILE": "found.npy", "METHOD": "finetune", "NAME": "simclr",
    "GRID": "table-regular", "RATE": "0.1", "name": "micro", "labelled/": "my-images", "photos/": "my-images",
    "labelled-images": "my-images", "to-label/images": "new-images", "pacs": "my-images",
    "pacs/": "my-images", "my-images/ant/0.png": "photo.jpg", "50": "5",
}  # fmt: skip
"""What stands for the words that a reader replaces."""
TINY_RUN = [
    "--dataset", "synthetic", "--tasks", "2", "--classes", "2", "--image-size", "16", "--backbone", "micro", "--passes",
    "1", "--capacity", "40", "--replay-batch", "8", "--probe-epochs", "1", "--device", "cpu", "--out", "out",
]  # fmt: skip
TINY_LEARN = ["--size", "edge", "--image-size", "16", "--budget", "60", "--device", "cpu", "--out", "new"]
DROPPED = {
    "--watch": 0, "--data": 1, "--budget": 1, "--out": 1, "--tasks": 1, "--backbone": 1, "--image-size": 1,
    "--size": 1, "--device": 1,
}  # fmt: skip
"""Options of runs and learners that tiny data replace, with the number of their values."""
ELSEWHERE = (
    "--push",
    "--executor",
    "--host",
    "HOST",
    "imagenet100",
    "onnx",
    "--import",
    "torchrun",
    "parquet",
    "serve",
    "domains",
    "custom",
)
"""Words of commands that need more than this machine has, or never end; `test_pages.py` parses them."""


def documented_commands() -> list[str]:
    """Each `climb ...` that a page shows in a block of its own or in a sentence, once."""
    commands = dict[str, None]()
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for line in re.findall(r"^    (?:[A-Z_]+=\S+ )*(climb [a-z].*)$", text, re.MULTILINE):
            commands[re.split(r" {2,}| [|>] | #", line)[0].strip()] = None
        for span in re.findall(r"`(climb [a-z][^`]+)`", text):
            commands[" ".join(span.split())] = None
    return list(commands)


def runnable(command: str) -> bool:
    """Whether a command can run here. Results of published runs and the names of verbs in sentences are left out."""
    known = not any(word in command for word in (*ELSEWHERE, "$", "--help"))
    whole = len(command.split()) > 2 and ("tune" not in command or "--over" in command)
    return known and whole and "RECIPE --" not in command  # the page of each method, which `tests/golden` runs


def tiny(command: str) -> list[str]:
    """The arguments of a command on tiny data."""
    verb, *words = [WORDS.get(word, word) for word in shlex.split(re.sub(r"\[([A-Z]+)\]", r"\1", command))[1:]]
    if verb in ("run", "learn"):
        kept: list[str] = []
        rest = iter(words)
        for word in rest:
            for _ in range(DROPPED.get(word, -1)):
                next(rest)
            if word not in DROPPED:
                kept.append(word)
        words = [word for word in kept if verb == "learn" or word != "folder"]
        return [verb, *words, *(TINY_RUN if verb == "run" else TINY_LEARN)]
    if verb == "table" and "--layout" in words:  # tiny runs have no place in a table of the paper
        words = ["results/cifar100-20-paper" if word == "runs/" else word for word in words]
    if verb in ("bench", "tune"):
        return [verb, *words, *(["--plan"] if words and "--plan" not in words else [])]
    if verb in ("score", "duplicates"):
        words = ["found.csv" if word == WORDS["FILE"] else word for word in words]
    return [verb, *words, *(["--device", "cpu"] if verb in ("embed", "probe", "search") else [])]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages speak of: images by class, a photo, learners, runs, features."""
    place = tmp_path_factory.mktemp("work")
    random = np.random.default_rng(0)
    folders = [f"my-images/class-{number % 4}" for number in range(120)]  # an audit needs a hundred
    for number, folder in enumerate([*folders, *["new-images"] * 20]):
        path = place / folder / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    shutil.copy(place / "my-images" / "class-0" / "0.jpg", place / "photo.jpg")
    learn(place / "my-images", out=place / "learner", size="edge", image_size=16, budget=60, device="cpu")
    shutil.copytree(place / "learner", place / "runs" / "mine")
    for name, options in {"0": {}, "1": {"seed": 1}, "finetune-0": {"method": "climb-fifo"}}.items():
        config = experiment("demo", image_size=16, tasks=2, replay_batch=8, capacity=40, passes=1, **options)
        execute(config, Execution(device="cpu"), place / "runs" / f"demo-default-{name}")
    return place


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("command", {tuple(tiny(one)): one for one in documented_commands() if runnable(one)}.values())
def test_a_documented_command_works_on_tiny_data(
    command: str, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None
) -> None:
    for path in workplace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    words = [*tiny(command)]
    assert run_command([found for word in words for found in (sorted(_matches(word)) or [word])]) == 0


def _matches(word: str) -> Iterator[str]:
    """What the shell makes of a pattern."""
    return (str(path) for path in Path().glob(word)) if re.search(r"[*\[]", word) else iter(())


def test_most_documented_commands_run_here() -> None:
    verbs = {command.split()[1] for command in documented_commands() if runnable(command)}
    assert verbs >= {"run", "learn", "bench", "table", "tune", "report", "embed", "probe", "search"}
    assert sum(map(runnable, documented_commands())) > 40


# -- benchmarks --------------------------------------------------------------------------------------------------------


class Parsed(Exception):
    """The arguments are valid; the benchmark need not run."""


def documented_benchmarks() -> list[str]:
    """Each ``python benchmarks/...`` on a page, and in the docstring of a benchmark, once."""
    commands = dict[str, None]()
    for page in (*PAGES, *BENCHMARKS, ROOT / "Makefile"):
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for line in re.findall(r"python (benchmarks/\w+\.py[^`\n]*)", text):
            commands[re.split(r" {2,}| > | #|`", line)[0].strip()] = None
    return list(commands)


@pytest.mark.parametrize("command", documented_benchmarks())
def test_arguments_of_a_documented_benchmark_are_valid(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, *words = shlex.split(command)
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        parse(parser, *given, **named)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [file, *words])
    spec = importlib.util.spec_from_file_location(f"documented_{Path(file).stem}", ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    with pytest.raises(Parsed):
        module.main()
