"""Methods and objectives that an installed package brings, by a real entry point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from listing import listings

Climb = Callable[..., Any]

MODULE = '''
from climb.augment import simclr
from climb.engine import StreamAndReplay
from climb.memory import FifoMemory
from climb.methods import climb, er_fifo, method
from climb.objectives import SimCLR
from climb.methods import objective


@objective("their-loss", kind=SimCLR, paper="somebody else", views=simclr, lr=0.07)
def their_loss(w):
    """Somebody's [cold] loss."""
    return SimCLR(0.3)


@method("climb-their-loss", paper="somebody else", lr=0.07)
def climb_their_loss(w):
    """CLIMB with their loss."""
    return climb(w.with_objective("their-loss"))


@method(
    "theirs",
    memory=FifoMemory,
    batch=StreamAndReplay,
    objective="configured",
    alignment=None,
    paper="Doe [2030]",
    lr=0.1,
)
def theirs(w):
    """Somebody's [bold] method."""
    return er_fifo(w)


@method("theirs-broken", paper="somebody")
def broken(w):
    """Cannot be built."""
    raise ZeroDivisionError("by [nothing]")


@method("theirs-gone", paper="somebody")
def gone(w):
    """Ends the process."""
    raise SystemExit("gone")
'''


@pytest.fixture(autouse=True)
def installed(install: Callable[[str, str], Path]) -> Path:
    """A package that brings methods, one of which cannot be built; where its entry points are."""
    return install("climb_theirs", MODULE)


def test_they_are_listed_and_what_is_broken_hides_nobody(climb: Climb) -> None:
    said = climb("methods")
    assert said.code == 0
    methods, objectives, _ = listings(said.out)
    assert methods["theirs"]["what"] == "Somebody's [bold] method."
    assert methods["theirs"]["paper"] == "Doe [2030]"
    assert methods["theirs-broken"]["parts"] == "not declared"
    assert methods["theirs"]["package"] == "climb_theirs"
    assert methods["theirs"]["parts"] == "FifoMemory + StreamAndReplay + SimCLR + none"
    assert "package" not in methods["pcmc"]
    assert objectives["their-loss"] == {
        "what": "Somebody's [cold] loss.",
        "paper": "somebody else",
        "lr": "0.07",
        "package": "climb_theirs",
    }


@pytest.mark.parametrize("verb", ["run", "bench", "tune", "learn"])
def test_help_names_them(climb: Climb, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # one column of groups
    said = climb(verb, "--help")
    assert said.code == 0
    words = " ".join(said.out.replace("│", " ").split())
    assert "theirs, theirs-broken" in words
    assert ("scale, their-loss" in words) == (verb != "bench")


def test_help_is_given_beside_a_package_that_cannot_be_imported(climb: Climb, installed: Path) -> None:
    installed.write_text("[climb.methods]\ngone = climb_gone\n")
    said = climb("run", "--help")
    assert said.code == 0
    assert "usage: climb run" in said.out


def test_they_are_found_by_name(climb: Climb) -> None:
    said = climb("tune", "demo", "--method", "theirs", "--objective", "their-loss", "--over", "lr=0.1", "--plan")
    assert said.code == 0, said.err
    said = climb("bench", "table-regular", "--methods", "climb", "theirs", "--tasks", 20, "--seeds", 1, "--plan")
    assert "2 runs (0 done), 2 to do" in said.out
    assert climb("run", "--method", "theirz").code == 2


def test_a_bench_takes_an_objective_by_a_method_of_its_own(climb: Climb) -> None:
    command = ("bench", "table-regular", "--tasks", 20, "--seeds", 1, "--plan")
    said = climb(*command, "--methods", "climb", "climb-their-loss")
    assert "2 runs (0 done), 2 to do" in said.out, said.err
    assert climb(*command, "--objective", "their-loss").code == 2


@pytest.mark.slow
def test_a_bench_has_a_row_for_them_in_processes_of_its_own(climb: Climb, tmp_path: Path) -> None:
    command = ("bench", "table-pruning", "--scale", "tiny", "--tasks", 20, "--seeds", 1, "--device", "cpu")
    said = climb(*command, "--methods", "climb", "theirs", "theirs-broken", "--out", tmp_path / "out")
    assert said.code == 1
    assert "failed: theirs-broken, 20 tasks, seed 0: ZeroDivisionError: by [nothing]" in said.out
    table = (tmp_path / "out" / "table-pruning" / "table.md").read_text()
    assert "| theirs |" in table
    assert "not whole: 1 of 3 runs are not finished (theirs-broken)" in table
