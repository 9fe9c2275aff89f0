from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from climb.datasets import fingerprint, imagenet100, load
from climb.errors import InputError

WNIDS = [f"n{i:08}" for i in range(12)]


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., Path]) -> Path:
    for i, wnid in enumerate(WNIDS):
        paint(tmp_path / f"train/{wnid}/{wnid}_1.JPEG", 20 * i, (50, 30))
        paint(tmp_path / f"train/{wnid}/{wnid}_2.JPEG", 20 * i, (30, 50))
        paint(tmp_path / f"val/{wnid}/ILSVRC2012_val_{i}.JPEG", 20 * i)
    return tmp_path


def test_the_draw_is_pythons_sample_of_the_sorted_wnids(root: Path) -> None:
    data = imagenet100(root=root, classes=5, seed=3, image_size=16)
    assert list(data.classes) == random.Random(3).sample(WNIDS, 5)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    expected = [20 * WNIDS.index(wnid) for wnid in data.classes]
    assert data.test.images[:, 0, 0, 0].tolist() == pytest.approx(expected, abs=2)
    assert data.std == (0.229, 0.224, 0.225)


def test_the_list_may_be_a_file_or_a_sequence_and_gives_the_order(root: Path, tmp_path: Path) -> None:
    chosen = [WNIDS[7], WNIDS[2], WNIDS[4]]
    listed = tmp_path / "list.txt"
    listed.write_text(f"{chosen[0]} tench\n\n{chosen[1]}\n{chosen[2]}\n")
    marked = tmp_path / "marked.txt"
    marked.write_bytes(b"\xef\xbb\xbf" + listed.read_bytes().replace(b"\n", b"\r\n"))  # as some editors write it
    for class_list in (chosen, listed, str(listed), marked):
        data = load("imagenet100", root=root, class_list=class_list)
        assert list(data.classes) == chosen
        assert data.train.images.shape == (6, 3, 224, 224)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "classes=100 cannot be drawn from .*train, which holds 12 class folders; allowed: 1 to 12"),
        ({"class_list": [WNIDS[0], "n9"]}, "1 of 2 listed classes have no folder in .*train: n9"),
        ({"class_list": [WNIDS[0]] * 2}, f"names {WNIDS[0]} more than once"),
        ({"class_list": []}, "the class list is empty; give one wnid per line"),
        ({"class_list": "/no/list.txt"}, r"the class list /no/list\.txt cannot be read: No such file"),
        ({"class_list": WNIDS, "classes": 3}, "classes=3 was given together with a class_list"),
    ],
)
def test_impossible_choices(root: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load("imagenet100", root=root, **options)


def test_a_class_list_that_is_not_text(root: Path, tmp_path: Path) -> None:
    (tmp_path / "list.png").write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match=r"the class list .*list\.png cannot be read: .*invalid start byte"):
        load("imagenet100", root=root, class_list=tmp_path / "list.png")


def test_a_class_missing_from_val(root: Path) -> None:
    shutil.rmtree(root / "val" / WNIDS[3])
    with pytest.raises(InputError, match=f"class '{WNIDS[3]}' has no image in .*val/{WNIDS[3]}"):
        imagenet100(root=root, class_list=WNIDS, image_size=16)


def test_a_missing_imagenet_names_the_places_searched(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(InputError) as caught:
        imagenet100(root=tmp_path / "no")
    assert f"looked for train, val of dataset 'imagenet100' in: {tmp_path / 'no'}" in str(caught.value)
    with pytest.raises(InputError, match=str(cache / "data" / "imagenet")):
        imagenet100()


def test_a_fingerprint_is_of_the_classes_listed_or_drawn_from(root: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"{WNIDS[7]} tench\n{WNIDS[2]}\n")
    of_list = fingerprint("imagenet100", root=root, class_list=str(listed))
    assert of_list == fingerprint("imagenet100", root=root, class_list=[WNIDS[7], WNIDS[2]])
    drawn = fingerprint("imagenet100", root=root, classes=5)
    assert of_list != drawn == fingerprint("imagenet100", root=root, classes=3)  # the count is a setting of the run
    shutil.rmtree(root / "train" / WNIDS[0])
    assert fingerprint("imagenet100", root=root, classes=5) != drawn
    assert fingerprint("imagenet100", root=tmp_path / "nowhere") is None
