"""Nested state: exact round trips, and rejected content."""

from __future__ import annotations

import json
import math
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from climb.errors import ClimbError, DamagedFile, InputError
from climb.state import FORMAT_VERSION, _strip, load_tree, restoring, save_tree


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


tensors = st.sampled_from(
    [
        torch.zeros(0, 3),
        torch.tensor(1.5),
        torch.arange(6, dtype=torch.int64).view(2, 3),
        torch.tensor([True, False]),
        torch.tensor([0, 255], dtype=torch.uint8),
        torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
    ]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | tensors
trees = st.recursive(leaves, lambda node: st.lists(node, max_size=3) | st.dictionaries(st.text(), node, max_size=3))


@given(tree=trees)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.mktemp("tree") / "state.safetensors"
    save_tree(path, tree, kind="test")
    assert equal(load_tree(path, kind="test"), tree)


def test_shared_and_strided_tensors_come_back_as_values(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    save_tree(tmp_path / "f", {"a": base, "b": base, "transposed": base.T, "part": base[:, 1]}, kind="test")
    loaded = load_tree(tmp_path / "f", kind="test")
    assert torch.equal(loaded["a"], base)
    assert torch.equal(loaded["b"], base)
    assert torch.equal(loaded["transposed"], base.T)
    assert torch.equal(loaded["part"], base[:, 1])


def test_large_tensors_are_not_copied(tmp_path: Path) -> None:
    images, tensors = torch.zeros(1000), dict[str, torch.Tensor]()
    _strip({"images": images, "again": images}, "", tensors, set())
    assert tensors["images"].data_ptr() == images.data_ptr() != tensors["again"].data_ptr()
    odd = {"part": torch.arange(10)[2:5], "none": torch.zeros(0), "neither": torch.zeros(0)}
    save_tree(tmp_path / "f", odd, kind="test")
    assert equal(load_tree(tmp_path / "f", kind="test"), odd)


def test_names_that_look_like_paths_do_not_collide(tmp_path: Path) -> None:
    tree = {"a.b": torch.tensor(1), "a": {"b": torch.tensor(2), "": torch.tensor(3)}, "a.": torch.tensor(4)}
    save_tree(tmp_path / "f", tree, kind="test")
    assert equal(load_tree(tmp_path / "f", kind="test"), tree)


def test_the_marker_of_a_tensor_cannot_be_a_key(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"state at 'a' has the reserved key '\$tensor'"):
        save_tree(tmp_path / "f", {"a": {"$tensor": "b"}}, kind="test")


def test_equal_trees_give_equal_files(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(8)]
    for file in files:
        save_tree(file, {"b": torch.zeros(3), "a": [torch.ones(2, dtype=torch.uint8), 1, "x"]}, kind="test")
    assert len({file.read_bytes() for file in files}) == 1


def test_numbers_that_json_finds_hard(tmp_path: Path) -> None:
    large = 2**127 + 1  # the state of a numpy generator
    save_tree(tmp_path / "f", {"large": large, "nan": math.nan, "tenth": 0.1}, kind="test")
    loaded = load_tree(tmp_path / "f", kind="test")
    assert loaded["large"] == large
    assert math.isnan(loaded["nan"])
    assert loaded["tenth"] == 0.1


@pytest.mark.parametrize("value", [np.float32(1.0), {1, 2}, object(), b"bytes", Path("x")])
def test_other_data_is_rejected_with_its_path_in_the_tree(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match=rf"state at 'a\.1' is a {type(value).__name__}; only tensors and plain data"):
        save_tree(tmp_path / "f", {"a": [0, value]}, kind="test")
    assert not (tmp_path / "f").exists()


def test_another_kind_is_rejected(tmp_path: Path) -> None:
    save_tree(tmp_path / "f", {}, kind="model")
    with pytest.raises(ClimbError, match="is not a climb checkpoint: its header says model"):
        load_tree(tmp_path / "f", kind="checkpoint")


def test_a_safetensors_file_of_another_program_is_rejected(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, str(tmp_path / "f"))
    with pytest.raises(ClimbError, match="is not a climb model: its header says nothing"):
        load_tree(tmp_path / "f", kind="model")


def test_a_newer_format_is_rejected(tmp_path: Path) -> None:
    header = {"format_version": FORMAT_VERSION + 1, "kind": "model", "tree": {}}
    save_file({"weight": torch.zeros(2)}, str(tmp_path / "f"), metadata={"climb": json.dumps(header)})
    with pytest.raises(ClimbError, match=f"format_version {FORMAT_VERSION + 1}; this climb reads up to"):
        load_tree(tmp_path / "f", kind="model")


@pytest.mark.parametrize("content", [None, b"", b"not a safetensors file at all"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "f"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClimbError, match=f"cannot read {path}"):
        load_tree(path, kind="model")


@pytest.mark.parametrize(
    "header", ['{"kind"', "[]", '{"kind": "model"}', '{"kind": "model", "format_version": "1", "tree": 1}']
)
def test_a_damaged_header_is_reported(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(1)}, str(path), metadata={"climb": header})
    with pytest.raises(ClimbError, match=r"a\.safetensors is damaged: its header"):
        load_tree(path, kind="model")


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match=f"cannot read {tmp_path}"):
        load_tree(tmp_path, kind="model")


def test_a_truncated_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "f"
    save_tree(path, {"weight": torch.arange(1000.0)}, kind="model")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ClimbError, match=f"cannot read {path}"):
        load_tree(path, kind="model")


def test_a_full_disk_is_reported_and_keeps_the_old_file(tmp_path: Path) -> None:
    save_tree(tmp_path / "f", {"a": torch.zeros(10)}, kind="test")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # no file may grow beyond it
    try:
        with pytest.raises(ClimbError, match=r"cannot write .*File too large"):
            save_tree(tmp_path / "f", {"a": torch.zeros(100_000)}, kind="test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [file.name for file in tmp_path.iterdir()] == ["f"]
    assert torch.equal(load_tree(tmp_path / "f", kind="test")["a"], torch.zeros(10))


# -- damage ------------------------------------------------------------------------------------------------------------

TREE = {
    "weight": torch.arange(5.0),
    "images": torch.arange(8, dtype=torch.uint8),
    "done": 3,
    "flag": torch.tensor(True),
}


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_tree(path, TREE, kind="model")
    whole = path.read_bytes()
    unnoticed, messages = [], set()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                tree = load_tree(path, kind="model")
            except ClimbError as error:
                messages.add(str(error))
            else:
                unnoticed += [] if equal(tree, TREE) else [(place, bit)]
    assert unnoticed == []
    assert all(str(path) in message and "\n" not in message for message in messages)


def test_the_damaged_tensor_is_named_and_other_branches_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_tree(path, {"a": torch.arange(100.0), "b": torch.zeros(100)}, kind="model")
    body = bytearray(path.read_bytes())
    body[-1] ^= 1  # the last byte is of b
    path.write_bytes(body)
    assert torch.equal(load_tree(path, kind="model", at=("a",)), torch.arange(100.0))
    with pytest.raises(DamagedFile, match=r"state\.safetensors is damaged: b does not match its checksum"):
        load_tree(path, kind="model")


def test_what_was_loaded_does_not_change_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_tree(path, {"x": torch.ones(100_000)}, kind="checkpoint")
    loaded = load_tree(path, kind="checkpoint")["x"]
    size = path.stat().st_size
    with open(path, "r+b") as handle:  # as `rsync --inplace` does, after the checksum was compared
        handle.seek(size - 400_000)
        handle.write(bytes(400_000))
    assert loaded.sum() == 100_000


def test_a_page_of_zeros_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_tree(path, {"a": torch.ones(10_000)}, kind="model")
    body = bytearray(path.read_bytes())
    body[8192:12288] = bytes(4096)
    path.write_bytes(body)
    with pytest.raises(DamagedFile, match="a does not match its checksum"):
        load_tree(path, kind="model")


def test_a_file_without_checksums_is_read_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.files._warned", threading.Event())
    header = {"format_version": 1, "kind": "model", "tree": {"weight": {"$tensor": "weight"}}}
    for name in ("first", "second"):
        save_file({"weight": torch.ones(2)}, str(tmp_path / name), metadata={"climb": json.dumps(header)})
        assert torch.equal(load_tree(tmp_path / name, kind="model")["weight"], torch.ones(2))
    assert [message for message in caplog.messages if "checksum" in message] == [
        f"{tmp_path / 'first'} is of an older version, without checksums: damage to such files can go unnoticed"
    ]


def test_checksums_that_were_removed_are_missed(tmp_path: Path) -> None:
    header = {"format_version": FORMAT_VERSION, "kind": "model", "tree": {"weight": {"$tensor": "weight"}}}
    save_file({"weight": torch.ones(2)}, str(tmp_path / "f"), metadata={"climb": json.dumps(header)})
    with pytest.raises(DamagedFile, match="its header has no checksums"):
        load_tree(tmp_path / "f", kind="model")


def test_errors_about_the_content_of_a_file_name_it() -> None:
    path = Path("state.safetensors")
    with pytest.raises(InputError, match=r"^state\.safetensors does not fit: 3 images; 2 allowed$"), restoring(path):
        raise InputError("3 images; 2 allowed")
    with pytest.raises(DamagedFile, match=r"^learned\.u64 is damaged$"), restoring(path):
        raise DamagedFile("learned.u64 is damaged")
    message = r"^state\.safetensors does not fit: RuntimeError: Error\(s\)"
    with pytest.raises(DamagedFile, match=message) as raised, restoring(path):
        torch.nn.Linear(2, 2).load_state_dict({f"weight{number}": torch.ones(2) for number in range(99)})
    assert "\n" not in str(raised.value)
    with pytest.raises(MemoryError), restoring(path):
        raise MemoryError
