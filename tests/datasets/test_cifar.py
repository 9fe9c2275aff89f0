from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb.datasets import Dataset, cifar, load
from climb.datasets.cifar import CIFAR10, CIFAR100, CifarLayout, read_cifar
from climb.errors import InputError

SMALL100 = replace(CIFAR100, train_count=6, test_count=3)
SMALL10 = replace(CIFAR10, train_count=10, test_count=2)
CLASSES = {"cifar100": 3, "cifar10": 2}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def batch(layout: CifarLayout, count: int, **changes: Any) -> dict[bytes, Any]:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = [i % CLASSES[layout.archive.dataset] for i in range(count)]
    return {b"data": pixels, layout.labels_key.encode(): labels} | {k.encode(): v for k, v in changes.items()}


def cifar100_tree(root: Path, **changes: Any) -> Path:
    folder = root / "cifar-100-python"
    write(folder / "train", batch(SMALL100, 6, **changes))
    write(folder / "test", batch(SMALL100, 3))
    write(folder / "meta", {b"fine_label_names": [b"apple", b"bear", b"cloud"]})
    return folder


def read(root: Path | None) -> Dataset:
    return read_cifar(SMALL100, root=root, download=False)


def test_cifar100_layout_is_read_as_written(tmp_path: Path) -> None:
    folder = cifar100_tree(tmp_path)
    data = read(tmp_path)
    expected = torch.from_numpy(batch(SMALL100, 6)[b"data"]).view(6, 3, 32, 32)
    assert torch.equal(data.train.images, expected)
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.classes == ("apple", "bear", "cloud")
    assert data.mean == (0.5071, 0.4865, 0.4409)
    assert torch.equal(read(folder).train.images, expected)


def test_cifar10_batches_follow_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    for number in range(1, 6):
        pixels = np.full((2, 3072), number, dtype=np.uint8)
        write(folder / f"data_batch_{number}", batch(SMALL10, 2, data=pixels))
    write(folder / "test_batch", batch(SMALL10, 2))
    write(folder / "batches.meta", {"label_names": ["plane", "car"]})
    data = read_cifar(SMALL10, root=tmp_path, download=False)
    assert data.train.images[:, 0, 0, 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert data.classes == ("plane", "car")


def test_cifar10_is_normalised_by_its_statistics_or_as_in_the_released_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar, "CIFAR10", SMALL10)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        write(tmp_path / name, batch(SMALL10, 2))
    write(tmp_path / "batches.meta", {"label_names": ["plane", "car"]})
    data, released = (load("cifar10", root=tmp_path, normalisation=name) for name in ("measured", "released"))
    assert data.mean == released.mean == (0.4914, 0.4822, 0.4465)
    assert (data.std, released.std) == ((0.2470, 0.2435, 0.2616), (0.2023, 0.1994, 0.2010))
    assert load("cifar10", root=tmp_path).std == data.std
    with pytest.raises(InputError, match="unknown normalisation 'measurd'; did you mean 'measured'"):
        load("cifar10", root=tmp_path, normalisation="measurd")


def test_found_through_the_environment_and_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar100_tree(cache / "data")
    assert len(read(None).train) == 6
    cifar100_tree(tmp_path / "shared", data=np.zeros((6, 3072), dtype=np.uint8))
    monkeypatch.setenv("CLIMB_DATA", str(tmp_path / "shared"))
    assert read(None).train.images.max() == 0


def test_text_keys_and_extra_entries(tmp_path: Path) -> None:
    folder = cifar100_tree(tmp_path)
    content = {key.decode(): value for key, value in batch(SMALL100, 6).items()}
    write(folder / "train", content | {"coarse_labels": [0] * 6, "filenames": ["x.png"] * 6})
    assert len(read(tmp_path).train) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((6, 100), np.uint8)}, r"'data' is uint8 \(6, 100\); expected uint8 \(n, 3072\)"),
        ({"data": np.zeros((6, 3072))}, r"'data' is float64 \(6, 3072\); expected uint8 \(n, 3072\)"),
        ({"data": [1, 2]}, r"'data' is int64 \(2,\); expected uint8 \(n, 3072\)"),
        ({"data": "pixels"}, r"no list or array 'data'; found: data \(str\), fine_labels \(list\)"),
        ({"data": np.zeros((5, 3072), np.uint8), "fine_labels": [0] * 5}, "train holds 5 images; expected 6"),
        ({"fine_labels": [0, 1, 2, 0, 1, 3]}, "labels run from 0 to 3; expected 0 to 2"),
        ({"fine_labels": [0, 1, 2, 0, 1, -1]}, "labels run from -1 to 2; expected 0 to 2"),
        ({"fine_labels": [0, 1]}, r"training labels are torch.int64 \(2,\); expected torch.int64 \(6,\)"),
        ({"fine_labels": [0.5] * 6}, r"training labels are torch.float32 \(6,\); expected torch.int64 \(6,\)"),
        ({"fine_labels": [0, 0, 0, 1, 1, 1]}, "no training image of class cloud"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    cifar100_tree(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_wrong_names_and_missing_entries(tmp_path: Path) -> None:
    folder = cifar100_tree(tmp_path)
    write(folder / "meta", {b"fine_label_names": [b"apple"]})
    with pytest.raises(InputError, match="training labels run from 0 to 2; expected 0 to 0"):
        read(tmp_path)
    write(folder / "train", {b"data": np.zeros((6, 3072), np.uint8)})
    with pytest.raises(InputError, match=r"no list or array 'fine_labels'; found: data \(ndarray\)"):
        read(tmp_path)


def test_a_wrong_count_is_refused_by_the_public_loader(tmp_path: Path) -> None:
    cifar100_tree(tmp_path)
    with pytest.raises(InputError, match="train holds 6 images; expected 50000"):
        load("cifar100", root=tmp_path)


def test_a_missing_folder_names_the_places_searched(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load("cifar100", root=tmp_path / "no", download=False)
    message = str(caught.value)
    for part in ("train, test, meta", str(tmp_path / "no" / "cifar-100-python"), "downloading is switched off"):
        assert part in message


def test_an_incomplete_folder_is_not_downloaded_over(tmp_path: Path) -> None:
    folder = cifar100_tree(tmp_path)
    (folder / "meta").unlink()
    with pytest.raises(InputError, match="cifar-100-python lacks meta: complete it, or remove it"):
        load("cifar100", root=tmp_path)
