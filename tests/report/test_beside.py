from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tyro

from climb.cli.report import report
from climb.config import RunConfig, to_dict
from climb.errors import InputError
from climb.recipes import get_recipe
from climb.report import write_report
from climb.report.again import again
from climb.report.beside import beside, distinct_names
from climb.report.record import read_record

MakeRun = Callable[..., Path]


@pytest.fixture
def other(make_run: MakeRun) -> tuple[Path, Path]:
    folder = make_run()
    copy = Path(shutil.copytree(folder, folder.with_name("other")))
    header = json.loads((copy / "config.json").read_text())
    header["config"]["learner"] |= {"method": "finetune", "lr": 0.1}
    (copy / "config.json").write_text(json.dumps(header))
    result = json.loads((copy / "result.json").read_text())
    result |= {"final_accuracy": 33.33, "cbp": 999, "forgetting": None}
    (copy / "result.json").write_text(json.dumps(result))
    return folder, copy


def test_a_run_is_shown_beside_once_however_its_path_is_written(other: tuple[Path, Path]) -> None:
    folder, copy = other
    once = write_report(folder, others=[copy]).read_text()
    assert write_report(folder, others=[copy, copy.parent / "run" / ".." / "other"]).read_text() == once


def rows(section: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(section).iter("tr")]


def test_numbers_curves_and_settings(other: tuple[Path, Path]) -> None:
    section = beside([read_record(path) for path in other])
    found = rows(section)
    assert found[0] == ["", "run", "other"]
    assert ["Method", "climb (paper)", "finetune (paper)"] in found
    assert ["FA", "55.00", "33.33"] in found
    assert ["Forgetting", "5.00", ""] in found
    assert ["CBP", "117,192", "999"] in found
    assert found[found.index(["", "run", "other"], 1) + 1 :] == [
        ["learner.method", "climb", "finetune"],
        ["learner.lr", "0.3", "0.1"],
    ]
    charts = [svg for svg in ElementTree.fromstring(section).iter("svg") if svg.get("class") == "chart"]
    assert [len(chart.findall("path")) for chart in charts] == [2, 2, 2, 2]


def test_the_verb_shows_runs_beside(other: tuple[Path, Path]) -> None:
    tyro.cli(report, args=[str(other[0]), "--beside", str(other[1])])
    assert "<h2>Beside other runs</h2>" in (other[0] / "report.html").read_text()
    tyro.cli(report, args=[str(other[0])])
    assert "<h2>Beside other runs</h2>" not in (other[0] / "report.html").read_text()


def test_an_unfinished_run_is_named(other: tuple[Path, Path]) -> None:
    (other[1] / "result.json").unlink()
    assert "Not finished: other." in beside([read_record(path) for path in other])


def test_same_settings_are_said(other: tuple[Path, Path]) -> None:
    assert "All settings are the same." in beside([read_record(other[0])] * 2)


def test_too_many_runs_are_refused(other: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"at most 6 runs .* given 7"):
        beside([read_record(other[0])] * 7)


def test_names_tell_runs_apart() -> None:
    paths = [Path("/r/a/seed-0"), Path("/r/b/seed-0"), Path("/r/b/seed-1"), Path("/x/b/seed-0")]
    assert distinct_names(paths) == ["a/seed-0", "r/b/seed-0", "seed-1", "x/b/seed-0"]


def test_the_command_as_it_was_typed(make_run: MakeRun) -> None:
    folder = make_run()
    header = json.loads((folder / "config.json").read_text()) | {"command": "climb run demo --out 'a b'"}
    (folder / "config.json").write_text(json.dumps(header))
    assert "<code>climb run demo --out &#x27;a b&#x27;</code>" in again(read_record(folder))


def test_the_command_of_a_run_that_python_started(make_run: MakeRun) -> None:
    folder = make_run()
    assert "with settings of its own" in again(read_record(folder))
    recipe = get_recipe("demo", preset="paper")
    config = RunConfig(**{**vars(recipe), "seed": 4})
    header = json.loads((folder / "config.json").read_text())
    header |= {"config": to_dict(config.resolved()), "config_hash": config.config_hash()}
    (folder / "config.json").write_text(json.dumps(header))
    (folder / "result.json").unlink()
    assert "climb run demo --preset paper --seed 4" in again(read_record(folder))
