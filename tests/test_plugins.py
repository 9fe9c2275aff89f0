"""What installed packages bring is found by its name, without an import."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from climb.cli import run_command
from climb.errors import InputError
from climb.methods import OBJECTIVES, find_method, find_objective, method
from climb.methods.validate import check_config
from climb.registry import load_plugins
from climb.settings.config import LearnerConfig

Install = Callable[[str, str], Path]

PARTS = """
from climb.augment import simclr
from climb.methods import METHODS, method, with_replay
from climb.objectives import SimCLR
from climb.methods import objective

@objective("theirs", kind=SimCLR, paper="theirs", views=simclr)
def theirs(w):
    \"\"\"An objective of somebody else.\"\"\"
    return SimCLR(0.3)

@method("their-method", paper="theirs")
def their_method(w):
    \"\"\"A method of somebody else.\"\"\"
    return with_replay(w, w.fifo(), None)
"""


def test_a_method_is_found_by_its_name(install: Install) -> None:
    with pytest.raises(InputError, match="unknown method 'their-method'"):
        find_method("their-method")
    install("climb_plugin_of_methods", PARTS)
    assert find_method("their-method").summary == "A method of somebody else."


def test_an_objective_is_found_with_a_method_of_ours(install: Install) -> None:
    with pytest.raises(InputError, match="unknown objective 'theirs'"):
        find_objective("theirs")
    install("climb_plugin_of_objectives", PARTS)
    check_config(LearnerConfig(method="climb", objective="theirs"))


@pytest.mark.parametrize("failing", ["import no_such_module_anywhere", "raise SystemExit(3)", "1 / 0"])
def test_one_that_does_not_import_hides_no_other(failing: str, install: Install) -> None:
    """Whichever of them comes first."""
    for name in ("climb_plugin_a", "climb_plugin_z"):
        install(name, failing)
    install("climb_plugin_of_methods", PARTS)
    assert find_method("their-method").paper == "theirs"
    assert find_objective("theirs").paper == "theirs"
    broken = load_plugins()
    assert len(broken) == 2
    assert all(f"the package 'climb_plugin_{name}' names" in " ".join(broken) for name in "az")


def test_a_name_that_is_missing_is_told_with_the_packages_that_do_not_import(install: Install) -> None:
    install("climb_plugin_that_fails", "import no_such_module_anywhere")
    install("climb_plugin_of_methods", PARTS)
    for find, kind in ((find_method, "method"), (find_objective, "objective")):
        with pytest.raises(InputError) as refused:
            find("their-metod")
        said, reason = str(refused.value).split("\n")
        assert said.startswith(f"unknown {kind} 'their-metod'")
        assert "by --import FILE, or by an installed package under the entry point group climb.methods" in said
        assert reason.startswith("It may be missing because the package 'climb_plugin_that_fails' names ")
        assert "ModuleNotFoundError: No module named 'no_such_module_anywhere'" in reason
    find_method("climb")  # what is there is found without a word of it


def test_the_others_are_listed_and_then_what_is_broken(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("climb_plugin_that_fails", "import no_such_module_anywhere")
    install("climb_plugin_of_methods", PARTS)
    assert run_command(["methods"]) == 0
    said = capsys.readouterr()
    assert {"climb", "their-method", "theirs", "vicreg"} <= set(said.out.split())
    (line,) = said.err.splitlines()
    assert line.startswith("climb: the package 'climb_plugin_that_fails' names 'climb_plugin_that_fails' under climb.")
    assert "No module named 'no_such_module_anywhere'. Mend or uninstall it" in line


def test_a_package_cannot_take_the_name_of_an_objective_of_ours(install: Install) -> None:
    ours = OBJECTIVES["simclr"]
    install("climb_plugin_that_takes", PARTS.replace('@objective("theirs"', '@objective("simclr"'))
    (reason,) = load_plugins()
    assert (
        "there is an objective 'simclr' already (climb.methods.objectives.simclr); give climb_plugin_that_takes.theirs"
        in reason
    )
    assert find_objective("simclr") is ours


def test_a_function_without_a_name_or_a_docstring_can_be_registered(registries: None) -> None:
    def build(w: object, wide: bool) -> None:
        """ """

    method("blank", paper="a test")(build)
    assert find_method("blank").summary == "blank"
    with pytest.raises(InputError, match=r"method 'blank' already \(.*build\); give functools.partial\(.* another"):
        method("blank", paper="a test")(partial(build, wide=True))
