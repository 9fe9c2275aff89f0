"""Datasets of the hub, from a local folder: the same code without the network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from climb.errors import InputError
from climb.sources import Item, PassedOver, open_source

Draw = Callable[..., Path]


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_images_of_a_dataset(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for number in range(6):
        draw(tmp_path / "data" / "train" / "ab"[number % 2] / f"{number}.png", number)
    draw(tmp_path / "data" / "test" / "a" / "t.png", 9)
    (tmp_path / "data" / "train" / "a" / "bad.png").write_bytes(b"no image")
    source = open_source(f"hf:{tmp_path}/data", image_size=16)
    found = list(source)
    assert len(found) == 6
    assert source.passed_over == {"not an image": 1}
    assert len({item.identity for item in found}) == 6
    assert [item.identity for item in source] == [item.identity for item in found]
    for known in (set(), {found[0].identity}, {item.identity for item in found[:4]}, {found[3].identity}):
        rest = list(source.arrivals(seen=lambda identity, known=known: identity not in known))
        expected = [item.where for item in found if item.identity not in known]
        assert [a.where for a in rest if isinstance(a, Item)] == expected
    assert len(list(open_source(f"hf:{tmp_path}/data@test", image_size=16))) == 1
    with pytest.raises(InputError, match="cannot open the dataset"):
        open_source(f"hf:{tmp_path}/data@other", image_size=16)


def test_rows_without_an_image_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(list[dict[str, Any]]):
        features: ClassVar = {"image": SimpleNamespace()}

        def cast_column(self, column: str, kind: object) -> Rows:
            return self

    rows = Rows({"image": image} for image in (None, {"bytes": None, "path": None}, {"bytes": b"", "path": None}))
    library = SimpleNamespace(Image=SimpleNamespace, load_dataset=lambda *args, **options: rows)
    monkeypatch.setitem(sys.modules, "datasets", library)
    arrivals = list(open_source("hf:some/where", image_size=16).arrivals())
    assert [arrival.for_good for arrival in arrivals if isinstance(arrival, PassedOver)] == [True, True, True]


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("kind", ["the hub's", "bytes", "large bytes", "views of bytes"])
def test_images_in_parquet_files_that_other_programs_wrote(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pytest.importorskip("datasets")
    arrow = pytest.importorskip("pyarrow")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    files = [draw(tmp_path / f"{number}.png", number).read_bytes() for number in range(3)]
    column = {
        "the hub's": arrow.array([*({"bytes": file, "path": "a.png"} for file in files), None, {"bytes": None}]),
        "bytes": arrow.array([*files, None, b""], arrow.binary()),
        "large bytes": arrow.array([*files, None, b""], arrow.large_binary()),
        "views of bytes": arrow.array([*files, None, b""], arrow.binary_view()),
    }[kind]
    pytest.importorskip("pyarrow.parquet").write_table(
        arrow.table({"label": range(5), "photo": column}), tmp_path / "a.parquet", compression="zstd"
    )
    for name in (tmp_path / "a.parquet", tmp_path / "*.parquet", tmp_path):
        if name == tmp_path:
            for picture in tmp_path.glob("*.png"):
                picture.unlink()
        source = open_source(f"hf:{name}", image_size=16)
        assert len(list(source)) == 3
        assert source.passed_over == {"not an image": 2}
    with pytest.raises(InputError, match=r"is a Parquet file.* Type: hf:.*a\.parquet"):
        open_source(tmp_path / "a.parquet", image_size=16)


def test_image_columns_are_found_or_the_columns_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Rows(list[dict[str, Any]]):
        features: ClassVar[dict[str, Any]] = {"text": SimpleNamespace(dtype="string")}

    library = SimpleNamespace(Image=type("Image", (), {}), load_dataset=lambda *args, **options: Rows())
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(InputError, match=r"no column of images.*\{bytes, path\}.*Its columns: text \(.*string"):
        open_source("hf:some/where", image_size=16)
    in_bytes = SimpleNamespace(dtype="binary")
    monkeypatch.setattr(Rows, "features", {"left": {"bytes": in_bytes}, "right": in_bytes})
    open_source("hf:some/where", image_size=16)
    assert "has images in left, right; those in left are used" in caplog.text


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'pip install "climb-ssl\[data\]"'):
        open_source("hf:some/where", image_size=16)
