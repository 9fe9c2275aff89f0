from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climb.errors import ClimbError, InputError
from climb.streams import KINDS, Manifest, make, regular

PLAIN: dict[str, Any] = {"kind": "regular", "tasks": [[0, 1], [2]], "seed": 0}


@given(
    kind=st.sampled_from(KINDS),
    classes=st.integers(1, 30),
    seed=st.integers(),
    validation=st.floats(0, 1, exclude_max=True),
)
def test_json_gives_the_same_manifest_back(kind: str, classes: int, seed: int, validation: float) -> None:
    manifest = make(kind, classes, (classes + 1) // 2, seed=seed, validation=validation)
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_saved_manifest_is_loaded_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    for seed in (0, 1):
        manifest = make("blurred", 100, 20, seed=seed, blur=50)
        manifest.save(path)
        assert Manifest.load(path) == manifest
        assert Manifest.load(str(path)) == manifest
    assert os.listdir(tmp_path) == ["stream.json"]


def test_a_failed_save_leaves_nothing_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ClimbError, match=r"cannot write .*folder"):
        regular(4, 2, seed=0).save(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_keys_with_a_default_may_be_missing() -> None:
    expected = Manifest(kind="regular", tasks=((0, 1), (2,)), seed=0, validation=0.1, blur=0)
    assert Manifest.from_json(json.dumps(PLAIN)) == expected


def test_lists_become_tuples_so_that_manifests_compare_and_hash() -> None:
    listed = Manifest(**PLAIN)
    assert hash(listed) == hash(Manifest(kind="regular", tasks=((0, 1), (2,)), seed=0))
    assert listed.classes == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "blured"}, "did you mean 'blurred'"),
        ({"kind": 3}, "unknown kind of stream '3'"),
        ({"sed": 1}, "unknown key in the manifest 'sed'; did you mean 'seed'"),
        ({"format_version": 3, "novelty": 1}, "format_version 3, .* reads up to 2"),
        ({"format_version": 0}, "format_version must be 1 or more"),
        ({"format_version": "1"}, "format_version must be a whole number"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": [[0, 1], [], [2], []]}, "tasks without a class: 1, 3"),
        ({"tasks": [[0, 1], [1, 2]]}, "more than once: 1"),
        ({"tasks": [[0, 1], [3]]}, "missing: 2; out of range: 3"),
        ({"tasks": [[0, -1], [1]]}, "a class id must be 0 or more, not -1"),
        ({"tasks": [[0, 1.0]]}, "a class id must be a whole number, not 1.0"),
        ({"tasks": [[0, True]]}, "a class id must be a whole number, not True"),
        ({"tasks": [0, 1]}, "list of lists"),
        ({"tasks": "01"}, "list of lists"),
        ({"tasks": {"0": [0]}}, "list of lists"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"validation": 1}, "validation must be a share"),
        ({"validation": -0.1}, "validation must be a share"),
        ({"validation": float("nan")}, "validation must be a share"),
        ({"validation": False}, "validation must be a share"),
        ({"validation": "0.1"}, "validation must be a share"),
        ({"blur": 10}, "kind is 'regular' and blur is 10; kind 'blurred' needs blur of 1"),
        ({"kind": "blurred"}, "needs blur of 1 or more"),
        ({"kind": "blurred", "blur": -1}, "blur must be 0 or more"),
    ],
)
def test_a_wrong_entry_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Manifest.from_json(json.dumps(PLAIN | change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON"),
        ("", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("[1]", "must be a JSON object"),
        ("{}", "lacks kind, tasks, seed"),
        ('{"kind": "iid", "tasks": [[0]]}', "lacks seed"),
    ],
)
def test_text_that_is_no_manifest_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Manifest.from_json(text)


def test_load_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the manifest .*absent\.json"):
        Manifest.load(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text('{"kind": "regular"}')
    with pytest.raises(InputError, match=r"broken\.json: the manifest lacks tasks, seed"):
        Manifest.load(tmp_path / "broken.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"cannot read the manifest .*binary\.json: 'utf-8'"):
        Manifest.load(tmp_path / "binary.json")
