from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tyro

from climb.cli.pages import report
from climb.errors import InputError
from climb.report import write_report
from climb.report.compare import compare, distinct_names
from climb.report.record import read_record
from climb.runs.run_file_checks import read_object

MakeRun = Callable[..., Path]


@pytest.fixture
def other(make_run: MakeRun) -> tuple[Path, Path]:
    folder = make_run()
    copy = Path(shutil.copytree(folder, folder.with_name("other")))
    header = read_object(copy / "config.json")
    header["config"]["learner"] |= {"method": "finetune", "lr": 0.1}
    (copy / "config.json").write_text(json.dumps(header))
    result = read_object(copy / "result.json")
    result |= {"final_accuracy": 33.33, "cbp": 999, "forgetting": None}
    (copy / "result.json").write_text(json.dumps(result))
    return folder, copy


def test_a_run_named_twice_is_compared_once(other: tuple[Path, Path]) -> None:
    folder, copy = other
    once = write_report(folder, others=[copy]).read_text()
    assert write_report(folder, others=[copy, copy.parent / "run" / ".." / "other"]).read_text() == once
    assert write_report(folder, others=[copy, folder]).read_text() == once


def rows(section: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(section).iter("tr")]


def test_numbers_curves_and_settings(other: tuple[Path, Path]) -> None:
    section = compare([read_record(path) for path in other])
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


def test_the_verb_compares_runs(other: tuple[Path, Path]) -> None:
    tyro.cli(report, args=[str(other[0]), "--beside", str(other[1])])
    assert "<h2>Comparison</h2>" in (other[0] / "report.html").read_text()
    tyro.cli(report, args=[str(other[0])])
    assert "<h2>Comparison</h2>" not in (other[0] / "report.html").read_text()


def test_an_unfinished_run_is_named(other: tuple[Path, Path]) -> None:
    (other[1] / "result.json").unlink()
    assert "Not finished: other." in compare([read_record(path) for path in other])


def test_equal_settings(other: tuple[Path, Path]) -> None:
    assert "All settings are the same." in compare([read_record(other[0])] * 2)


def test_too_many_runs_are_rejected(other: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"at most 6 runs; given 7"):
        compare([read_record(other[0])] * 7)


def test_names_are_distinct() -> None:
    paths = [Path("/r/a/seed-0"), Path("/r/b/seed-0"), Path("/r/b/seed-1"), Path("/x/b/seed-0")]
    assert distinct_names(paths) == ["a/seed-0", "r/b/seed-0", "seed-1", "x/b/seed-0"]
