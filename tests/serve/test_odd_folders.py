"""Damaged folders: each gets a row with its error, and others are not affected."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from climb.serve.app import make_app

CONFIG: dict[str, Any] = {
    "seed": 0,
    "data": {"dataset": "d"},
    "stream": {"tasks": 0},
    "learner": {"method": "climb", "memory": {"capacity": 60}},
    "evaluation": {"network": "student"},
}
DEEP = "[" * 200_000 + "]" * 200_000
TRAIN = {"batch": 1, "event": "train", "objective": 1.0, "stm_images": 3, "promoted": 2}
EVALUATION = {"batch": 1, "event": "evaluation", "network": "student", "task": 0, "per_task": [1.0, 2.0], "upto": 3.0}


def make(folder: Path, changes: dict[str, Any] | None = None, *lines: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    header = {"format_version": 1, "config_hash": "x", "config": {**CONFIG, **(changes or {})}}
    (folder / "config.json").write_text(json.dumps(header))
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines or (TRAIN,)))
    return folder


def nested(folder: Path) -> None:
    make(folder)
    (folder / "config.json").write_text(f'{{"config_hash": "x", "config": {{"a": {DEEP}}}}}')


def nested_result(folder: Path) -> None:
    (make(folder) / "result.json").write_text(f'{{"accuracy_matrix": {DEEP}}}')


def nested_line(folder: Path) -> None:
    (make(folder) / "journal.jsonl").write_text(f"{DEEP}\n" + json.dumps(TRAIN))


def no_text(folder: Path) -> None:
    (make(folder) / "config.json").write_bytes(b"\xff\xfe")


def unreadable_name(folder: Path) -> None:
    make(folder.with_name(os.fsdecode(b"bad-caf\xe9")))


ODD: dict[str, Callable[[Path], object]] = {
    "a name that is not UTF-8": unreadable_name,
    "nested configuration": nested,
    "nested result": nested_result,
    "nested line": nested_line,
    "no text": no_text,
    "seed with a point": lambda folder: make(folder, {"seed": 1.5}),
    "long seed": lambda folder: make(folder, {"seed": 10**400}),
    "seed of another kind": lambda folder: make(folder, {"seed": [1]}),
    "half a character": lambda folder: make(folder, {"learner": {"method": "\ud800", "preset": "\ud800"}}),
    "half a character in a warning": lambda folder: make(folder, {}, {**TRAIN, "event": "warning", "text": "\udfff"}),
    "memory that is a number": lambda folder: make(folder, {"learner": {"memory": 3}}),
    "settings nested to the brim": lambda folder: make(folder, {"extra": json.loads("[" * 900 + "]" * 900)}),
    "long number": lambda folder: make(folder, {}, {**TRAIN, "objective": 10**400}),
    "long batch": lambda folder: make(folder, {}, {**TRAIN, "batch": 10**400}),
    "text for a number": lambda folder: make(folder, {}, {**TRAIN, "promoted": "x", "objective": "y"}),
    "text for an accuracy": lambda folder: make(folder, {}, {**EVALUATION, "upto": "x"}),
    "text for a floor": lambda folder: make(folder, {}, {"batch": 0, "event": "floor", "student": "x"}),
    "tasks that are text": lambda folder: make(folder, {"stream": {"tasks": "x"}}, EVALUATION),
    "event that is a list": lambda folder: make(folder, {}, {**TRAIN, "event": [1]}),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_folder_does_not_harm_others(tmp_path: Path, name: str) -> None:
    make(tmp_path / "good")
    ODD[name](tmp_path / "bad")
    with TestClient(make_app(tmp_path), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        for address in ("/", "/api/index", "/metrics", "/runs/good", "/api/live/good", "/api/memory/good"):
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert "good" in answer.text or address.startswith("/api/")
        assert ">bad" in client.get("/").text
        for address in ("/runs/bad", "/api/live/bad", "/api/memory/bad", "/compare?run=good&run=bad"):
            assert client.get(address).status_code in (200, 404, 409), address


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a name that is not UTF-8", "not UTF-8"),
        ("nested configuration", "recursion"),
        ("nested result", "recursion"),
        ("no text", "cannot read"),
        ("text for an accuracy", "an accuracy is no number"),
    ],
)
def test_the_index_names_the_fault(tmp_path: Path, name: str, fault: str) -> None:
    ODD[name](tmp_path / "bad")
    with TestClient(make_app(tmp_path), base_url="http://127.0.0.1") as client:
        text = client.get("/").text
        assert ">unreadable<" in text
        assert fault in text
        assert re.search(r'^climb_run_readable\{run="bad.*"\} 0$', client.get("/metrics").text, re.MULTILINE)


def test_readable_parts_are_shown(tmp_path: Path) -> None:
    for name in ("seed with a point", "nested line", "long number", "text for a number"):
        ODD[name](tmp_path / f"bad {name}")
    with TestClient(make_app(tmp_path), base_url="http://127.0.0.1") as client:
        text = client.get("/").text
        assert "unreadable" not in text
        assert ">1.5</td>" in text
        for name in ("seed with a point", "nested line", "long number", "text for a number"):
            assert client.get(f"/runs/bad {name}").status_code == 200


def test_a_folder_served_under_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    make(root / "good")
    with TestClient(make_app(root), base_url="http://127.0.0.1") as client:
        assert client.get("/runs/good").status_code == 200
        assert "Runs in caf\ufffd" in client.get("/").text
