"""What installed packages bring is found by its name, without an import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from climb.cli import run_command
from climb.config import LearnerConfig
from climb.errors import ClimbError, InputError
from climb.methods import check_config, find_method
from climb.workshop import find_objective

PARTS = """
from climb.methods import METHODS, method, with_replay
from climb.workshop import OBJECTIVES

OBJECTIVES["theirs"] = OBJECTIVES["simclr"]

@method("their-method", paper="theirs")
def their_method(w):
    \"\"\"A method of somebody else.\"\"\"
    return with_replay(w, w.fifo(), None)
"""


def test_a_method_is_found_by_its_name(install: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match="unknown method 'their-method'"):
        find_method("their-method")
    install("climb_plugin_of_methods", PARTS)
    assert find_method("their-method").summary == "A method of somebody else."


def test_an_objective_is_found_with_a_method_of_ours(install: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match="unknown objective 'theirs'"):
        find_objective("theirs")
    install("climb_plugin_of_objectives", PARTS)
    check_config(LearnerConfig(method="climb", objective="theirs"))


def test_one_that_does_not_import_is_named(
    install: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    install("climb_plugin_that_fails", "import no_such_module_anywhere")
    with pytest.raises(ClimbError, match=r"the package 'climb_plugin_that_fails' names .* No module named"):
        find_method("their-method")
    assert run_command(["methods"]) == 1
    assert "climb_plugin_that_fails" in capsys.readouterr().err
