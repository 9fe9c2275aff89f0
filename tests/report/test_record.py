from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.errors import InputError
from climb.report.record import read_record
from climb.runs.run_file_checks import COMPLETE

MakeRun = Callable[..., Path]
FLOORS = {"batch": 0, "event": "floor", "student": 11.0, "teacher": 12.0}


def row(network: str, batch: int, value: float) -> dict[str, Any]:
    return {
        "batch": batch,
        "event": "evaluation",
        "network": network,
        "task": 0,
        "per_task": [value] * 4,
        "upto": value + 1,
    }


def test_unfinished_run_is_read_from_its_journal(make_run: MakeRun) -> None:
    record = read_record(make_run(journal=[FLOORS, row("student", 9, 50.0), row("teacher", 9, 60.0)], result=None))
    assert record.evaluated == "student"  # the first one measured, not the configured one
    assert (record.floor, record.matrix, record.upto) == (11.0, [[50.0] * 4], [51.0])
    assert record.tasks == 4  # as evaluated: a manifest may differ from the configuration
    assert record.ends == record.boundaries == [9]


@pytest.mark.parametrize(("asked", "evaluated"), [("teacher", "teacher"), ("both", "student")])
def test_a_run_without_evaluations(make_run: MakeRun, asked: str, evaluated: str) -> None:
    folder = make_run(journal=[], result=None)
    text = (folder / "config.json").read_text().replace('"network": "teacher"', f'"network": "{asked}"')
    (folder / "config.json").write_text(text)
    (folder / "journal.jsonl").unlink()
    record = read_record(folder)
    assert record.evaluated == evaluated
    assert (record.floor, record.matrix, record.tasks, record.training) == (None, [], 3, [])


def test_finished_run_has_boundaries_between_tasks_only(make_run: MakeRun) -> None:
    record = read_record(make_run())
    assert record.ends == [10, 20, 30]
    assert record.boundaries == [10, 20]
    assert record.title == "climb (paper) on synthetic, 3 tasks, seed 7"


def test_a_half_written_last_line_is_ignored(make_run: MakeRun) -> None:
    folder = make_run(result=None)
    with open(folder / "journal.jsonl", "a") as handle:
        handle.write('{"batch": 31, "ev')
    assert len(read_record(folder).training) == 3


def test_folder_without_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    with pytest.raises(InputError, match=r"there is no .*nothing; give a folder"):
        read_record(folder)
    folder.mkdir()
    with pytest.raises(InputError, match=r"nothing holds no run: it has no config.json; give a folder"):
        read_record(folder)


def with_result(folder: Path, **changes: Any) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_the_result_of_another_run_is_rejected(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match=r"result.json is the result of another run \(config_hash 1f; its config.json"):
        read_record(with_result(make_run(), config_hash="1f"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cbp": "many"}, "says cbp is 'many', which is no number; restore"),
        ({"final_accuracy": float("nan")}, "says final_accuracy is nan, which is no number"),
        ({"cbp": 10**400}, "says cbp is 10+, which is no number"),
        ({"seconds": "x"}, "says seconds is 'x', which is no object"),
        ({"format_version": 99}, "has format_version 99.*install a newer one"),
        ({"format_version": "new"}, "has format_version new"),
    ],
)
def test_invalid_values_of_a_result_are_named(make_run: MakeRun, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"result.json {message}"):
        read_record(with_result(make_run(), **changes))


@pytest.mark.parametrize("name", [*COMPLETE, "seconds"])
def test_what_a_result_lacks_is_named(make_run: MakeRun, name: str) -> None:
    folder = make_run()
    result = json.loads((folder / "result.json").read_text())
    del result[name]
    (folder / "result.json").write_text(json.dumps(result))
    if name == "accuracy_matrix":  # as without a result
        assert read_record(folder).result == {}
        return
    with pytest.raises(InputError, match=f"result.json lacks {name}.*restore the file"):
        read_record(folder)


@pytest.mark.parametrize("name", ["config.json", "result.json"])
@pytest.mark.parametrize(("text", "message"), [("{", "cannot read .*restore"), ("[1]", "JSON object, not a list")])
def test_broken_files_are_named(make_run: MakeRun, name: str, text: str, message: str) -> None:
    folder = make_run()
    (folder / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_record(folder)
    assert str(folder / name) in str(caught.value)


def test_a_foreign_config_is_rejected(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="lack 'config'"):
        read_record(make_run(config={"name": "another program"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"config": {"learner": []}, "config_hash": "1"}, "result": None},
        {"config": {"config": {"learner": {"memory": 7}}, "config_hash": "1"}, "result": None},
        {"config": {"config": {"evaluation": [], "learner": {}}, "config_hash": "1"}, "result": None},
        {"config": {"config": [1], "config_hash": "1"}, "result": None},
        {"journal": [FLOORS, {**row("student", 9, 50.0), "per_task": ["high", None]}], "result": None},
        {"journal": [FLOORS, {**row("student", 9, 50.0), "per_task": []}], "result": None},
        {"journal": [FLOORS, row("student", 9, 50.0), {**row("student", 9, 50.0), "per_task": [1.0]}], "result": None},
        {"journal": [{**FLOORS, "student": None}], "result": None},
    ],
)
def test_values_of_a_wrong_type_are_reported_as_damage(make_run: MakeRun, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"the files in .* are damaged"):
        read_record(make_run(**changes))
