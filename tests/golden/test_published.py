"""Over the published results, `climb table` prints what it always printed, and `climb bench` finds the finished runs.

Only standard output is compared. Messages on standard error may be reworded. After a deliberate change of a table, run
``CLIMB_WRITE_TABLES=1 pytest tests/golden/test_published.py`` and look at the difference.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from climb.cli import run_command

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Command = Callable[..., str]

pytestmark = pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="the results are only in the repository")

PAPER, METHODS = "results/cifar100-20-paper", "results/cifar100-20-methods"
SEARCH, ABLATION = "results/cifar100-20-search", "results/cifar100-20-ablation"
ABLATION_ROWS = (PAPER, f"{METHODS}/climb-reservoir-paper-*", ABLATION)
COMPARED = tuple(f"{METHODS}/{name}-paper-[0-9]" for name in ("cla-e", "cla-r", "minred", "climb-reservoir"))
TABLES: dict[str, tuple[str, ...]] = {
    # The commands of results/*/README.md and results/reading.md.
    "reading": (PAPER, f"{METHODS}/*-paper-[0-9]", "--layout", "table-regular", "--against", "paper"),
    "ablation": (*ABLATION_ROWS, f"{SEARCH}/finetune-lr-0.3-*", "--layout", "table-ablation"),
    "diversity": (*ABLATION_ROWS, "--layout", "table-diversity"),
    "memory-only": (f"{PAPER}/seed-[0-2]", f"{ABLATION}/memory-only-*", "--test", "paired"),
    "previous-step": (f"{PAPER}/seed-[0-2]", f"{ABLATION}/previous-step-*", "--test", "paired"),
    "memories": (
        f"{PAPER}/seed-[0-2]", f"{METHODS}/climb-reservoir-paper-[0-2]", f"{ABLATION}/fifo-*", f"{ABLATION}/minred-*",
        "--test", "paired",
    ),
    "default": ("results/cifar100-20-default", f"{METHODS}/climb-reservoir-default-*"),
    "methods": (PAPER, *COMPARED),
    "methods-holm": (PAPER, *COMPARED, "--test", "paired", "holm"),
    "methods-welch": (PAPER, *COMPARED, "--test", "welch", "two-sided"),
    # The other folders, and presets mixed.
    "faults": ("results/cifar100-20-faults", "--layout", "table-faults"),
    "faults-own-layout": ("results/cifar100-20-faults", "--mix"),
    "methods-mixed": (METHODS, "--mix"),
    "search": (SEARCH, "--mix"),
    "tasks-100": ("results/cifar100-100-default",),
    "wallclock": ("results/cifar100-20-wallclock", f"{METHODS}/*-paper-4"),
    "forgetting": (PAPER, f"{METHODS}/*-paper-[0-9]", "--layout", "table-forgetting"),
    "pruning": (PAPER, f"{METHODS}/climb-selective-paper-0", "--layout", "table-pruning"),
}  # fmt: skip
FORMATS = {"terminal": "txt", "markdown": "md", "latex": "tex", "csv": "csv", "html": "html"}

REFUSED = {
    "everything": ("results", "--mix"),
    "presets": (METHODS,),
    "no-place": ("results/cifar100-20-default", "--layout", "table-irregular"),
}
"""Tables that are refused as bad input: one run twice, different presets, no run with a place."""

PLANS = {
    "table-ablation --seeds 3": (21, 21),
    "table-diversity --seeds 3": (12, 12),
    "figure-wallclock --tasks 20 --seeds 3": (18, 18),
    "table-faults": (6, 6),
    "figure-dynamics": (1, 1),
    "table-regular --tasks 20": (40, 32),
    "figure-dynamics --seeds 4": (4, 4),
    "figure-wallclock --tasks 20 --seeds 1 --first-seed 4": (6, 6),
    "table-forgetting --tasks 20": (30, 28),
    "table-pruning": (20, 6),
    "table-regular": (110, 32),
    "table-regular --preset default": (110, 4),
    "table-faults --preset default": (6, 2),
    "table-irregular --tasks 20": (120, 0),
}
"""Runs of a grid, and how many of them are finished in ``results/``."""


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """``command("table", ..., status=0)``: run in the repository; gives what it printed."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CLIMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CLIMB_DATA", raising=False)

    def run(*arguments: str, status: int = 0) -> str:
        capfd.readouterr()
        code = run_command(arguments)
        out, err = capfd.readouterr()
        assert code == status, err
        return out

    return run


def unfolded(arguments: tuple[str, ...]) -> list[str]:
    """Arguments as a shell hands them over: patterns replaced by what they match, sorted."""
    result: list[str] = []
    for argument in arguments:
        paths = sorted(glob.glob(argument, root_dir=ROOT)) if "*" in argument or "[" in argument else [argument]
        assert paths, f"no file matches {argument}"
        result += paths
    return result


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_printed_as_before(name: str, command: Command) -> None:
    for kind, ending in FORMATS.items():
        printed = command("table", *unfolded(TABLES[name]), "--format", kind)
        assert printed.strip()
        stored = HERE / "tables" / f"{name}.{ending}"
        if os.environ.get("CLIMB_WRITE_TABLES"):
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(printed, encoding="utf-8")
        assert printed == stored.read_text(encoding="utf-8"), f"{name}, {kind}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_as_before(name: str, command: Command) -> None:
    assert command("table", *unfolded(REFUSED[name]), status=2) == ""


@pytest.mark.parametrize("grid", PLANS)
def test_a_grid_finds_its_finished_runs(grid: str, command: Command, tmp_path: Path) -> None:
    options = ("--dataset", "cifar100", "--device", "cpu", "--reuse", "results", "--plan", "--out", str(tmp_path))
    printed = command("bench", *grid.split(), *options)
    match = re.search(r"(\d+) runs? \((\d+) done", printed)
    assert match is not None, printed
    assert (int(match[1]), int(match[2])) == PLANS[grid]
