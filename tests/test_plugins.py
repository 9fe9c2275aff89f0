"""What installed packages bring is found by its name, without an import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from climb.cli import run_command
from climb.config import LearnerConfig
from climb.errors import ClimbError, InputError
from climb.methods import METHODS, check_config, find_method
from climb.workshop import OBJECTIVES, find_objective

PARTS = """
from climb.methods import METHODS, method, with_replay
from climb.workshop import OBJECTIVES

OBJECTIVES["theirs"] = OBJECTIVES["simclr"]

@method("their-method", paper="theirs")
def their_method(w):
    \"\"\"A method of somebody else.\"\"\"
    return with_replay(w, w.fifo(), None)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """``install(module, source)``: a package whose entry point is that module; gone after the test."""
    methods, objectives = dict(METHODS), dict(OBJECTIVES)

    def installed(module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[climb.methods]\n{module} = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield installed
    for registry, before in ((METHODS, methods), (OBJECTIVES, objectives)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


def test_a_method_is_found_by_its_name(install: Callable[[str, str], None]) -> None:
    with pytest.raises(InputError, match="unknown method 'their-method'"):
        find_method("their-method")
    install("climb_plugin_of_methods", PARTS)
    assert find_method("their-method").summary == "A method of somebody else."


def test_an_objective_is_found_with_a_method_of_ours(install: Callable[[str, str], None]) -> None:
    with pytest.raises(InputError, match="unknown objective 'theirs'"):
        find_objective("theirs")
    install("climb_plugin_of_objectives", PARTS)
    check_config(LearnerConfig(method="climb", objective="theirs"))


def test_one_that_does_not_import_is_named(
    install: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install("climb_plugin_that_fails", "import no_such_module_anywhere")
    with pytest.raises(ClimbError, match=r"the package 'climb_plugin_that_fails' names .* No module named"):
        find_method("their-method")
    assert run_command(["methods"]) == 1
    assert "climb_plugin_that_fails" in capsys.readouterr().err
