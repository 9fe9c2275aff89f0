from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from climb.datasets import load
from climb.errors import InputError


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., Path]) -> Path:
    """Three classes in the standard layout; two of them share their English name."""
    base = tmp_path / "tiny-imagenet-200"
    lines = []
    for i, wnid in enumerate(["n03", "n01", "n02"]):
        for j in range(2):
            paint(base / f"train/{wnid}/images/{wnid}_{j}.JPEG", 40 * i + j, (64, 64))
        paint(base / f"val/images/val_{i}.JPEG", 40 * i + 20, (64, 64))
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62")
    (base / "val/val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    (base / "wnids.txt").write_text("n03\nn01\nn02\n")
    (base / "words.txt").write_text("n01\tcrane, bird\nn02\tcrane\nn03\tgoldfish, Carassius auratus\nn09\tother\n")
    return tmp_path


def test_labels_follow_wnids_and_the_test_part_is_val(root: Path) -> None:
    data = load("tiny-imagenet", root=root)
    assert data.classes == ("goldfish", "n01", "n02")
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test.labels.tolist() == [2, 1, 0]
    assert data.test.images[:, 0, 0, 0].tolist() == pytest.approx([100, 60, 20], abs=2)
    assert data.image_size == 64
    assert (data.mean, data.std) == ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))
    released = load("tiny-imagenet", root=root, normalisation="released")
    assert (released.mean, released.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def test_another_image_size(root: Path) -> None:
    assert load("tiny-imagenet", root=root / "tiny-imagenet-200", image_size=32).image_size == 32


def test_annotations_that_do_not_fit(root: Path) -> None:
    annotations = root / "tiny-imagenet-200/val/val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn77\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt, line 1: 'n77' is not in wnids\.txt"):
        load("tiny-imagenet", root=root)
    annotations.write_text("val_9.JPEG\tn01\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"line 1: .*val_9\.JPEG does not exist"):
        load("tiny-imagenet", root=root)


def test_a_class_without_test_images(root: Path) -> None:
    annotations = root / "tiny-imagenet-200/val/val_annotations.txt"
    annotations.write_text("".join(annotations.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(InputError, match="no test image of class n02"):
        load("tiny-imagenet", root=root)


def test_an_incomplete_folder(root: Path) -> None:
    (root / "tiny-imagenet-200/words.txt").unlink()
    with pytest.raises(InputError, match=r"tiny-imagenet-200 lacks words\.txt"):
        load("tiny-imagenet", root=root)
