"""What the pages show works: examples run, commands parse, messages are the code's, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import glob
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import tyro
from PIL import Image

from climb.bench.grids import GRIDS
from climb.bench.paper import recompute_marks
from climb.bench.statistics import Comparison
from climb.cli import run_command, verbs
from climb.cli.options import tyro_command
from climb.datasets import names as datasets
from climb.export import export, open_model
from climb.methods import METHODS, OBJECTIVES, PartFactory, build_parts
from climb.session import learn
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import PRESETS
from climb.settings.recipes import RECIPES, SIZES
from climb.verified import verified

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
NAMES: dict[str, Any] = {
    "recipe": RECIPES, "method": METHODS, "methods": METHODS, "preset": PRESETS, "dataset": datasets(),
    "objective": OBJECTIVES, "grids": GRIDS, "layout": GRIDS,
}  # fmt: skip


def fenced(language: str) -> Iterator[tuple[str, str]]:
    """(page, text) of every fenced block of a language."""
    for page, text in TEXT.items():
        for found in re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield page, found


def shown_commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every `climb ...`: in blocks, without what is said about it, and within sentences."""
    for page, text in TEXT.items():
        for line in re.findall(r"^    (.*\bclimb .*)$", text.replace("\\\n", " "), re.MULTILINE):
            command = re.split(r" {2,}| [|>] | #", re.sub(r"\\\s+", " ", line))[0]
            if match := re.search(r"^(?:[A-Z_]+=\S+ |torchrun .*-m )*(climb .*)", command):
                yield page, match[1]
        prose = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"`(?:[A-Z_]+=[^`]+? )?(climb\s[^`]+)`", prose):
            yield page, " ".join(span.split())


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what examples speak of: images by class, a learner of them and its export."""
    place = tmp_path_factory.mktemp("work")
    random = np.random.default_rng(0)
    for label in ("ant", "bee"):
        (place / "my-images" / label).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "my-images" / label / f"{number}.png")
    learn(place / "my-images", out=place / "runs" / "mine", size="edge", image_size=16, budget=60, device="cpu")
    export(open_model(place / "runs" / "mine", device="cpu"))
    return place


@pytest.mark.parametrize(("page", "block"), [pytest.param(*found, id=found[0]) for found in fenced("python")])
def test_examples_run(
    page: str, block: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, registries: None
) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.syspath_prepend(str(workplace / "runs" / "mine" / "export"))
    exec(compile(block, page, "exec"), {"__name__": "page"})


# -- commands ----------------------------------------------------------------------------------------------------------


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The arguments that the command line passes to a verb. The verb does not run."""
    calls: list[dict[str, Any]] = []

    def stub(function: Callable[..., None]) -> Callable[..., None]:
        names = function.__code__.co_varnames[: function.__code__.co_posonlyargcount]

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> None:
            calls.append({**dict(zip(names, args, strict=True)), **options})

        return tyro_command(called)

    stubs: Any = {name: stub(function) for name, function in verbs().items()}
    config = (tyro.conf.DisallowNone, tyro.conf.OmitArgPrefixes)
    tyro.extras.subcommand_cli_from_dict(stubs, prog="climb", args=arguments, config=config)
    return calls[0]


@pytest.mark.parametrize(("page", "command"), [pytest.param(*c, id=f"{c[0]}: {c[1]}") for c in shown_commands()])
def test_commands_parse(page: str, command: str) -> None:
    verb, *arguments = shlex.split(command.replace("[", "").replace("]", ""))[1:]
    assert verb in verbs()
    if not arguments or arguments == ["--help"]:  # the name of a verb, in a sentence
        return
    given = parsed([verb, *arguments])
    for option, known in NAMES.items():
        values = given.get(option)
        for value in values if isinstance(values, tuple) else [values]:
            assert value is None or value in known or value.isupper(), f"{value} is no {option}"


def test_commands_are_found() -> None:
    found = {command.split()[1] for _, command in shown_commands()}
    assert found == set(verbs())


def test_a_wrong_option_would_be_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(["run", "demo", "--sedd", "3"])
    assert "--sedd" in capsys.readouterr().err


# -- messages ----------------------------------------------------------------------------------------------------------


@functools.cache
def said_by_the_code() -> list[str]:
    """Every piece of text in the sources, between blanks that are filled in later, longest first."""
    pieces = set()
    for file in (ROOT / "src" / "climb").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pieces.update(re.split(r"%d|%s|\{\w+\}", node.value))
    return sorted((piece for piece in pieces if len(piece) >= 10), key=len, reverse=True)


@pytest.mark.parametrize(("page", "block"), [pytest.param(*found, id=found[0]) for found in fenced("text")])
def test_messages_are_those_of_the_code(page: str, block: str) -> None:
    for line in block.splitlines():
        left = "" if line.startswith("torch.") else line  # torch's are not ours
        for piece in said_by_the_code():
            left = left.replace(piece, "...", 1)
        for example in left.removeprefix("climb: ").split("..."):  # what fills the blanks: names, numbers, paths
            assert len(re.findall("[a-z]{3,}", example)) <= 3, f"{page}: the code does not say '{example}'"


# -- links, and what the pages say of the repository -------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "results").rglob("*.md"))], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_readme_shows_every_room_and_every_verb() -> None:
    text = TEXT["README.md"]
    rooms = re.findall(r"([a-z]+)/ ", text[text.index("    src/climb/\n") : text.index("    tests/ mirrors")])
    assert sorted(rooms) == sorted(path.parent.name for path in (ROOT / "src" / "climb").glob("*/__init__.py"))
    table = text[text.index("## The verbs") : text.index("Examples:")]
    assert set(re.findall(r"`climb (\w+)", table)) == set(verbs())


def test_the_readme_has_the_published_numbers() -> None:
    text = TEXT["README.md"]
    rows = re.findall(r"^\| `([a-z-]+)` \| \[`(\w+)`\].*\| (\d+) \| ([\d.]+)[^|]*\| ([\d.]+)", text, re.MULTILINE)
    published = {
        (row.method, row.preset, str(row.seeds), f"{row.final_accuracy:.2f}", f"{row.continual_accuracy:.2f}")
        for row in verified()
    }
    assert len(rows) >= 4
    assert set(rows) <= published


def test_the_table_of_float32_is_what_its_runs_give() -> None:
    results = ROOT / "results"
    rows = re.findall(
        r"^\| (\d|mean) \| (.+?) \| (.+?) \| (.+?) \|$", (results / "speed" / "README.md").read_text(), re.M
    )
    assert [row[0] for row in rows] == ["0", "1", "2", "mean"]

    def accuracies(kind: str) -> list[tuple[float, float]]:
        files = {
            "float32": [results / "speed" / "float32" / f"seed-{seed}.json" for seed in range(3)],
            "bf16": [results / "cifar100-20-default" / f"seed-{seed}" / "result.json" for seed in range(3)],
        }
        found = [json.loads(file.read_text()) for file in files[kind]]
        found = [one.get("result", one) for one in found]
        assert {one["precision"] for one in found} == {kind}
        each = [(one["final_accuracy"], one["continual_accuracy"]) for one in found]
        return [*each, (sum(fa for fa, _ in each) / 3, sum(ca for _, ca in each) / 3)]

    for row, full, half in zip(rows, accuracies("float32"), accuracies("bf16"), strict=True):
        assert row[1:3] == tuple(f"{fa:.2f} / {ca:.2f}" for fa, ca in (full, half))
        assert row[3].strip("*") == f"{full[0] - half[0]:+.2f} / {full[1] - half[1]:+.2f}"


def test_the_reading_is_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command stands in the page; the shell expands its star."""
    monkeypatch.chdir(ROOT)
    page = (ROOT / "results" / "reading.md").read_text()
    (command,) = re.findall(r"^    climb (table .*)$", page, re.M)
    words = [name for word in command.split() for name in (sorted(glob.glob(word)) or [word])]
    assert run_command([*words, "--format", "csv"]) == 0
    cells = {(line["row"], line["metric"]): line for line in csv.DictReader(capsys.readouterr().out.splitlines())}
    rows = re.findall(r"^\| (\S+) \| (\d.*) \|$", page, re.M)
    assert {name for name, _ in rows} == {row for row, _ in cells}
    for name, numbers in rows:
        said = [number.strip() for number in numbers.split("|")]
        for metric, (ours, printed, gap) in (("FA", said[:3]), ("CA", said[3:])):
            cell = cells[name, metric]
            assert ours == _spread(cell["mean"], cell["std"])
            assert printed == (_spread(cell["paper_mean"], cell["paper_std"]) if cell["paper_mean"] else "")
            assert gap == (f"{float(cell['difference']):+.2f}" if cell["difference"] else "")


def _spread(mean: str, std: str) -> str:
    return f"{float(mean):.2f}" + (f" ± {float(std):.2f}" if std else "")


def test_the_page_on_budgets_has_the_right_numbers() -> None:
    text = TEXT["docs/choosing-a-budget.md"]
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert [row[0] for row in rows] == ["500", "2500", "10000", "100000"]
    for images, *megabytes in rows:
        for side, told in zip((32, 64, 224), megabytes, strict=True):
            config = LearnerConfig(image_size=side, memory=MemoryConfig(capacity=int(images)))
            memory = build_parts(PartFactory(config=config, seed=0, device=torch.device("meta"))).memory
            assert memory is not None
            assert told == f"{memory.nbytes / 1e6:.1f}"
    for name, size in SIZES.items():
        cost = 2 * size.passes * (size.stream_batch + size.replay_batch) / size.stream_batch
        numbers = f"| {size.stream_batch} | {size.replay_batch} | {size.passes} | {cost:.1f} |"
        assert re.search(rf"--size {name}`? {re.escape(numbers)}", text), name


def test_the_page_on_comparisons_lists_the_marks_that_the_rule_does_not_give() -> None:
    text = TEXT["docs/comparing-runs.md"]
    rules = {"paper": Comparison(), "two-sided": Comparison(sides=2), "welch": Comparison(kind="welch")}
    marks = {name: recompute_marks(rule) for name, rule in rules.items()}
    agreeing = {name: sum(mark.agrees for mark in found) for name, found in marks.items()}
    said = re.search(
        r"reproduces (\d+) of the (\d+) marks.*?two-sided test reproduces (\d+), Welch's.*?(\d+),", text, re.S
    )
    assert said is not None
    told = [agreeing["paper"], len(marks["paper"]), agreeing["two-sided"], agreeing["welch"]]
    assert [int(number) for number in said.groups()] == told
    listed = re.findall(r"^\| .* \| (\S.*?) \| (CA|FA) \| (0\.\d+) \|$", text, re.MULTILINE)
    odd = [mark for mark in marks["paper"] if not mark.agrees]
    assert all(mark.printed.bold for mark in odd)
    assert [(row, metric, float(p)) for row, metric, p in listed] == [
        (mark.printed.row.removeprefix("SSL + "), mark.printed.metric, round(mark.verdict.p or 0, 3)) for mark in odd
    ]


def test_pictures_are_small() -> None:
    assert all(picture.stat().st_size < 300_000 for picture in (ROOT / "docs" / "images").iterdir())


def test_the_site_is_built_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        loaded = re.findall(
            r"<(?:script|link|img)[^>]*?(?:src|href)=\"(https?:[^\"]*)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name


def benchmark(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_times_of_two_of_one_method_are_told_apart() -> None:
    """As in a command of the benchmark's own page, to see how far times of the same go apart."""

    def paced(method: str, seconds: float) -> Any:
        return SimpleNamespace(method=method, engine=SimpleNamespace(kind="eager"), go=lambda batches: seconds)

    climb, others = paced("climb", 1.0), [paced("climb", 2.0), paced("finetune", 3.0)]
    rows = benchmark("methods").compare(argparse.Namespace(batches=10, preset="paper"), climb, others)
    assert [(row["method"], row["climb_ms"], row["ratio"]) for row in rows] == [
        ("climb", 100.0, 2.0),
        ("finetune", 100.0, 3.0),
    ]


def test_the_page_on_scaling_has_the_numbers_of_its_simulation() -> None:
    """Of the model, that is; what was measured depends on the machine."""
    scale = benchmark("scale")
    given = argparse.Namespace(flops=140e12, launch_ms=20.7, bandwidth=40e9, latency_us=25.0)  # as the page assumes
    text = TEXT["docs/scaling.md"]
    decided = float(text.partition("| 2,500 | 100 | 60 |")[2].split("|")[2])
    lines = text.partition("| | R | rows of |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(lines) == 8
    name = ""
    for line in lines:
        network, ranks, rows, *said = (cell.strip() for cell in line.strip("|").split("|"))
        name = network.lower().replace("-", "").replace(",", " at") or name
        found = scale.model_step(given, name, int(ranks), rows == "each its own", decided)
        numbers = [found[key] for key in ("images", "compute_ms", "network_ms", "step_ms", "stream_images_per_s")]
        assert [float(cell.replace(",", "") or 0) for cell in said] == numbers, line
    sent = scale.model_step(given, "resnet18 at 32 px", 8, False, decided)
    for kind in ("gradients", "features and embeddings", "replayed images", "batch norm"):
        (told,) = re.findall(rf"^\| {kind}.*\| ([\d.]+) MB \|$", text, re.MULTILINE)
        key = {"features and embeddings": "embeddings", "replayed images": "replay", "batch norm": "statistics"}
        digits = len(told.partition(".")[2])
        assert float(told) == round(sent[f"{key.get(kind, kind)}_MB"], digits), kind
