"""Features as files: in order, with their paths, as much as there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.errors import InputError
from climb.evaluation.features import batch_size
from climb.export import Picture, embed, images_of, open_model, read_features, write_features
from climb.export.embed import Embedded
from climb.export.feature_files import paths_beside

from .conftest import noise


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Seven images in two folders, one of them damaged, and a text."""
    for place, pixels in enumerate(noise(7, seed=2)):
        file = tmp_path / "pictures" / ("ab"[place % 2]) / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    (tmp_path / "pictures/a/2.png").write_bytes((tmp_path / "pictures/a/2.png").read_bytes()[:100])
    (tmp_path / "pictures/notes.txt").write_text("no image")
    return tmp_path / "pictures"


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_rows_are_the_features_of_the_paths(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, suffix: str
) -> None:
    learner, file = learned
    model = open_model(file, device="cpu", precision="float32")
    target = tmp_path / f"out/features{suffix}"
    assert write_features(target, embed(model, images_of(pictures, 16))) == 6
    expected_paths = [
        str(pictures / name) for name in ("a/0.png", "a/4.png", "a/6.png", "b/1.png", "b/3.png", "b/5.png")
    ]
    expected = learner.transform(noise(7, seed=2)[[0, 4, 6, 1, 3, 5]])
    batches = list(read_features(target))
    assert [path for batch in batches for path in batch.paths] == expected_paths
    assert np.allclose(np.concatenate([batch.features for batch in batches]), expected, atol=1e-6)
    if suffix == ".npy":  # as anybody would read it
        assert np.allclose(np.load(target), expected, atol=1e-6)
        assert paths_beside(target).read_text().splitlines() == expected_paths
    else:
        table = pyarrow.parquet.read_table(target)
        assert table.column("path").to_pylist() == expected_paths
        assert np.allclose(np.array(table.column("embedding").to_pylist()), expected, atol=1e-6)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_many_batches_make_one_file(tmp_path: Path, suffix: str) -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 5)).astype(np.float32)
    parts = np.split(rows, [1, 400, 999])
    batches = [
        Embedded(paths=[f"{number}-{row}" for row in range(len(part))], features=part)
        for number, part in enumerate(parts)
    ]
    assert write_features(tmp_path / f"f{suffix}", iter(batches)) == 1000
    again = list(read_features(tmp_path / f"f{suffix}"))
    assert np.array_equal(np.concatenate([batch.features for batch in again]), rows)
    assert [path for batch in again for path in batch.paths] == [path for batch in batches for path in batch.paths]


def test_images_are_taken_a_batch_at_a_time(encoder_file: Callable[..., Path]) -> None:
    taken = 0

    def endless() -> Iterator[Picture]:
        nonlocal taken
        while True:
            taken += 1
            yield Picture(path=str(taken), pixels=torch.zeros(3, 32, 32, dtype=torch.uint8))

    features = embed(open_model(encoder_file(side=32), device="cpu"), endless())
    for number in (1, 2):
        next(features)
        assert taken == number * batch_size(32)


def test_one_image_and_what_is_none(pictures: Path, tmp_path: Path) -> None:
    (only,) = images_of(pictures / "a/0.png", 16)
    assert only.path == str(pictures / "a/0.png")
    assert np.array_equal(only.pixels.permute(1, 2, 0).numpy(), noise(7, seed=2)[0])
    with pytest.raises(InputError, match="does not exist"):
        images_of(tmp_path / "nowhere", 16)
    with pytest.raises(InputError, match="file of another kind"):
        images_of(pictures / "notes.txt", 16)
    with pytest.raises(InputError, match="is endless"):
        images_of("rtsp://127.0.0.1/camera", 16)


def test_a_file_that_cannot_be_written_or_read(tmp_path: Path, encoder_file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"must end in \.npy or \.parquet, not"):
        write_features(tmp_path / "features.csv", [])
    (tmp_path / "empty").mkdir()
    model = open_model(encoder_file(), device="cpu")
    for name in ("features.npy", "features.parquet"):
        with pytest.raises(InputError, match="no image could be read"):
            write_features(tmp_path / name, embed(model, images_of(tmp_path / "empty", 16)))
        assert not (tmp_path / name).exists()
        with pytest.raises(InputError, match="does not exist; write it with: climb embed"):
            read_features(tmp_path / name)
    broken = Embedded(paths=["a\nb"], features=np.zeros((1, 2), np.float32))
    with pytest.raises(InputError, match="contains a line break"):
        write_features(tmp_path / "features.npy", [broken])
    write_features(tmp_path / "features.parquet", [broken])
    assert next(read_features(tmp_path / "features.parquet")).paths == ["a\nb"]


def test_files_of_other_programs(tmp_path: Path) -> None:
    np.save(tmp_path / "alone.npy", np.zeros((3, 2), np.float32))
    with pytest.raises(InputError, match="cannot read"):
        next(read_features(tmp_path / "alone.npy"))
    (tmp_path / "alone.paths.txt").write_text("one\n")
    with pytest.raises(InputError, match="one row and one line per image"):
        next(read_features(tmp_path / "alone.npy"))
    (tmp_path / "alone.npy").write_bytes(b"")
    with pytest.raises(InputError, match="cannot read"):
        next(read_features(tmp_path / "alone.npy"))
    with open(tmp_path / "alone.npy", "wb") as file:
        np.savez(file, features=np.zeros((1, 2), np.float32))
    with pytest.raises(InputError, match="has no array of numbers"):
        next(read_features(tmp_path / "alone.npy"))
    np.save(tmp_path / "alone.npy", np.array([["one", "two"]]))
    with pytest.raises(InputError, match="has no array of numbers"):
        next(read_features(tmp_path / "alone.npy"))
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="not a Parquet file"):
        next(read_features(tmp_path / "text.parquet"))
    pyarrow.parquet.write_table(pyarrow.table({"path": ["a"]}), tmp_path / "half.parquet")
    with pytest.raises(InputError, match=r"has the columns path; .* one column embedding"):
        next(read_features(tmp_path / "half.parquet"))


ARROW_TEXT = pyarrow.array(["a.png", "b.png"])
ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize(
    ("paths", "rows"),
    [
        (ARROW_TEXT, pyarrow.array(ROWS)),
        (ARROW_TEXT.dictionary_encode(), pyarrow.array(ROWS, pyarrow.large_list(pyarrow.float64()))),
        (ARROW_TEXT.cast(pyarrow.large_string()), pyarrow.array(ROWS, pyarrow.list_(pyarrow.float32(), 3))),
        (ARROW_TEXT.cast(pyarrow.binary()), pyarrow.array(ROWS, pyarrow.list_(pyarrow.int16()))),
        (ARROW_TEXT.cast(pyarrow.string_view()), pyarrow.array(ROWS, pyarrow.list_(pyarrow.float16()))),
    ],
)
def test_parquet_files_of_other_programs_are_read_with_any_column_types(
    tmp_path: Path, compression: str, paths: Any, rows: Any
) -> None:
    target = tmp_path / "f.parquet"
    table = pyarrow.table({"number": [1, 2], "embedding": rows, "path": paths})
    pyarrow.parquet.write_table(table, target, compression=compression)
    (again,) = read_features(target)
    assert again.paths == ["a.png", "b.png"]
    assert again.features.dtype == np.float32
    assert again.features.tolist() == ROWS


def test_rows_without_a_path_or_an_embedding_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = pyarrow.table({"path": ["a", None, "c"], "embedding": [None, [1.0], [2.0]]})
    pyarrow.parquet.write_table(table, tmp_path / "f.parquet")
    (again,) = read_features(tmp_path / "f.parquet")
    assert (again.paths, again.features.tolist()) == (["c"], [[2.0]])
    assert "has 2 rows without a path or an embedding" in caplog.text


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"image": [{"bytes": b"x", "path": "x"}], "label": [1]}, r"columns image, label; .* hf:.*f\.parquet"),
        ({"path": ["a"], "embedding": [1.0]}, r"embedding of .* has type double, not lists of numbers"),
        ({"path": ["a"], "embedding": [b"abcd"]}, r"embedding of .* has type binary, not lists of numbers"),
        ({"path": ["a"], "embedding": [[[1.0]]]}, r"has type list<.*list<.*>, not lists of numbers"),
        ({"path": ["a"], "embedding": [["x"]]}, r"has type list<.*string>, not lists of numbers"),
        ({"path": [1], "embedding": [[1.0]]}, r"path of .* has type int64, not text"),
        ({"path": ["a", "b"], "embedding": [[1.0], [1.0, 2.0]]}, r"have 1 to 2 numbers"),
    ],
)
def test_a_parquet_file_with_wrong_columns_is_rejected_with_a_remedy(
    tmp_path: Path, columns: dict[str, Any], said: str
) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=said) as raised:
        next(read_features(tmp_path / "f.parquet"))
    assert "climb embed MODEL IMAGES --out features.parquet" in str(raised.value)


def test_two_columns_of_one_name_are_rejected(tmp_path: Path) -> None:
    table = pyarrow.table([["a"], ["b"], [[1.0]]], names=["path", "path", "embedding"])
    pyarrow.parquet.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(InputError, match="has the columns path, path, embedding"):
        next(read_features(tmp_path / "f.parquet"))


@pytest.mark.parametrize("part", ["rows", "footer"])
def test_a_damaged_parquet_file_is_rejected_and_named(tmp_path: Path, part: str) -> None:
    target = tmp_path / "f.parquet"
    rows = np.random.default_rng(0).normal(size=(50, 8)).tolist()
    table = pyarrow.table({"path": [f"{number}.png" for number in range(50)], "embedding": rows})
    pyarrow.parquet.write_table(table, target, compression="zstd")
    whole = target.read_bytes()
    first, last = (4, 400) if part == "rows" else (len(whole) - 200, len(whole) - 20)
    target.write_bytes(whole[:first] + bytes(byte ^ 0x5A for byte in whole[first:last]) + whole[last:])
    with pytest.raises(InputError, match=r"f\.parquet is not a Parquet file, or damaged"):
        list(read_features(target))


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'\.parquet files need the extra: pip install "climb-ssl\[data\]"'):
        write_features(tmp_path / "features.parquet", [])


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_odd_names_come_back_as_they_are(tmp_path: Path, suffix: str) -> None:
    names = ["a\rb.png", "u\u2028v.png", "\x0b.png", "[bold]é.png", "plain.png", os.fsdecode(b"caf\xe9.png")]
    batch = Embedded(paths=names, features=np.eye(6, 3, dtype=np.float32))
    target = tmp_path / os.fsdecode(b"f\xe9" + suffix.encode())
    write_features(target, [batch])
    (again,) = read_features(target)
    assert again.paths == names
    assert np.array_equal(again.features, batch.features)


def test_features_with_the_paths_of_another_file_are_rejected(tmp_path: Path) -> None:
    """As after a process that was killed between putting the one and the other in place."""
    target, beside = tmp_path / "f.npy", tmp_path / "f.paths.txt"
    write_features(target, [Embedded(paths=["a", "b"], features=np.eye(2, dtype=np.float32))])
    earlier = beside.read_bytes()
    write_features(target, [Embedded(paths=["b", "a"], features=np.eye(2, dtype=np.float32))])
    assert next(read_features(target)).paths == ["b", "a"]
    beside.write_bytes(earlier)
    with pytest.raises(InputError, match=r"not written together.*climb embed MODEL IMAGES --out .*f\.npy"):
        next(read_features(target))


@pytest.mark.parametrize("text", [b"a\nb\n", b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\r\nb"])
def test_paths_beside_an_array_that_another_program_wrote(tmp_path: Path, text: bytes) -> None:
    np.save(tmp_path / "f.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "f.paths.txt").write_bytes(text)
    assert next(read_features(tmp_path / "f.npy")).paths == ["a", "b"]
