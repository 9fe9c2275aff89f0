from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from climb.datasets import Split, fingerprint, folder, load
from climb.errors import InputError

Paint = Callable[..., Path]


def levels(split: Split) -> list[int]:
    return split.images[:, 0, 0, 0].tolist()


def test_train_and_test_folders(tmp_path: Path, paint: Paint) -> None:
    for level, name in enumerate(["train/cat/b.png", "train/cat/a.PNG", "train/ant/x.bmp", "test/ant/y.png"]):
        paint(tmp_path / name, 10 * level)
    paint(tmp_path / "test/cat/deep/z.png", 40)
    data = folder(root=tmp_path)
    assert data.classes == ("ant", "cat")
    assert levels(data.train) == [20, 10, 0]
    assert data.train.labels.tolist() == [0, 1, 1]
    assert levels(data.test) == [30, 40]
    assert data.test.labels.tolist() == [0, 1]
    assert data.image_size == 64
    assert data.mean == pytest.approx((10 / 255,) * 3)


def test_val_serves_as_test_unless_there_is_a_test(tmp_path: Path, paint: Paint) -> None:
    paint(tmp_path / "train/a/1.png", 1)
    paint(tmp_path / "val/a/1.png", 2)
    assert levels(folder(root=tmp_path).test) == [2]
    paint(tmp_path / "test/a/1.png", 3)
    assert levels(folder(root=tmp_path).test) == [3]


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_without_a_test_part_a_fifth_of_each_class_is_held_out(
    tmp_path: Path, paint: Paint, caplog: pytest.LogCaptureFixture, prefix: str
) -> None:
    caplog.set_level(logging.INFO, logger="climb.datasets")
    for i in range(20):
        paint(tmp_path / f"{prefix}a/{i:02}.png", i)
    for i in range(3):
        paint(tmp_path / f"{prefix}b/{i}.png", 100 + i)
    data = folder(root=tmp_path, image_size=8)
    assert data.test.labels.tolist() == [0, 0, 0, 0, 1]
    assert sorted(levels(data.train) + levels(data.test)) == [*range(20), 100, 101, 102]
    assert "has no test part: 5 of its 23 images (20 % of each class, seed 0) are held out" in caplog.text
    assert levels(folder(root=tmp_path, image_size=8).test) == levels(data.test)
    assert levels(folder(root=tmp_path, image_size=8, seed=1).test) != levels(data.test)


def test_a_flat_folder_has_one_class_and_no_test_part(tmp_path: Path, paint: Paint) -> None:
    for i in range(4):
        paint(tmp_path / f"{i}.png", i)
    data = load("folder", root=tmp_path, image_size=16)
    assert data.classes == ("images",)
    assert levels(data.train) == [0, 1, 2, 3]
    assert data.train.labels.tolist() == [0, 0, 0, 0]
    assert data.test.images.shape == (0, 3, 16, 16)


def test_hidden_and_other_files_are_passed_over(tmp_path: Path, paint: Paint) -> None:
    for name in ("a/1.png", "a/2.png", "a/._2.png", "a/.thumbs/3.png", ".trash/x/4.png"):
        paint(tmp_path / name)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "readme.md").write_text("no image")
    data = folder(root=tmp_path, image_size=8)
    assert (len(data.train), len(data.test), data.classes) == (1, 1, ("a",))


def test_a_class_may_be_called_train(tmp_path: Path, paint: Paint) -> None:
    for name in ("bus", "train"):
        for i in range(2):
            paint(tmp_path / name / f"{i}.png")
    assert folder(root=tmp_path, image_size=8).classes == ("bus", "train")


def test_few_unreadable_images_are_skipped_with_their_labels(
    tmp_path: Path, paint: Paint, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(150):
        paint(tmp_path / f"train/{'ab'[i % 2]}/{i:03}.png", i)
    for name in "ab":
        paint(tmp_path / f"test/{name}/x.png")
    bad = tmp_path / "train/a/010.png"
    bad.write_bytes(b"broken")
    data = folder(root=tmp_path, image_size=8)
    assert len(data.train) == 149
    assert torch.equal(data.train.labels, data.train.images[:, 0, 0, 0].long() % 2)
    assert f"skipped the unreadable image {bad}" in caplog.text


def test_many_unreadable_images_are_refused(tmp_path: Path, paint: Paint) -> None:
    for i in range(99):
        paint(tmp_path / f"{i:02}.png")
    for i in range(2):
        (tmp_path / f"bad{i}.jpg").write_bytes(b"broken")
    with pytest.raises(InputError) as caught:
        folder(root=tmp_path, image_size=8)
    message = str(caught.value)
    assert "2 of 101 images cannot be read (at most 1% may be skipped); the first: " in message
    assert str(tmp_path / "bad0.jpg") in message


def test_a_class_whose_only_test_image_is_unreadable(tmp_path: Path, paint: Paint) -> None:
    for i in range(120):
        paint(tmp_path / f"train/{'ab'[i % 2]}/{i}.png")
    paint(tmp_path / "test/a/0.png")
    (tmp_path / "test/b").mkdir()
    (tmp_path / "test/b/0.png").write_bytes(b"broken")
    with pytest.raises(InputError, match="no test image of class b; every class needs at least one"):
        folder(root=tmp_path, image_size=8)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "holds no image; allowed extensions: .avif, .bmp, .gif, .jp2, .jpeg, .jpg, .pgm, .png, .ppm"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png"], "class 'b' has no image in .*test/b"),
        (["train/a/1.png", "test/a/1.png", "test/c/1.png"], "has classes that .*train lacks: c"),
        (["a/1.png", "a/2.png", "b/1.png"], "class 'b' has 1 image; at least 2 are needed"),
        (["a/1.png", "b.png"], "holds 1 images, and folders with 1 more: it is neither flat nor by class"),
        (["train/1.png", "test/1.png"], "holds test, train without class folders inside; expected train/<class>/"),
    ],
)
def test_layouts_that_cannot_be_used(tmp_path: Path, paint: Paint, files: list[str], message: str) -> None:
    for name in files:
        paint(tmp_path / "data" / name)
    (tmp_path / "data").mkdir(exist_ok=True)
    with pytest.raises(InputError, match=message):
        folder(root=tmp_path / "data")


def test_an_empty_class_folder_is_named(tmp_path: Path, paint: Paint) -> None:
    paint(tmp_path / "a/1.png")
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="class 'b' has no image in "):
        folder(root=tmp_path)


def test_no_folder_at_all(tmp_path: Path, paint: Paint) -> None:
    with pytest.raises(InputError, match=r"nowhere does not exist; give a folder of images"):
        folder(root=tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a file; give a folder of images"):
        folder(root=paint(tmp_path / "a.png"))
    with pytest.raises(InputError, match="needs the folder of the images: --data FOLDER"):
        load("folder")


@pytest.mark.parametrize("size", [0, 5000])
def test_impossible_image_size(tmp_path: Path, paint: Paint, size: int) -> None:
    paint(tmp_path / "a.png")
    with pytest.raises(InputError, match=f"image_size={size} is impossible; allowed: 8 to 1024"):
        folder(root=tmp_path, image_size=size)


def test_a_fingerprint_does_not_depend_on_the_folder(tmp_path: Path, paint: Paint) -> None:
    for root in ("here", "there"):
        for name in ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png"):
            paint(tmp_path / root / name)
    here = fingerprint("folder", root=tmp_path / "here")
    assert here is not None
    assert here.startswith("2 classes 4 files ")
    assert fingerprint("folder", root=f"{tmp_path}/there/") == here
    seen = {here}
    for change in (
        lambda root: paint(root / "dog/c.png"),
        lambda root: (root / "dog/c.png").rename(root / "dog/d.png"),
        lambda root: paint(root / "dog/d.png", size=(100, 80)),
        lambda root: (root / "dog").rename(root / "emu"),
    ):
        change(tmp_path / "there")
        found = fingerprint("folder", root=tmp_path / "there")
        assert found not in seen
        seen.add(found)
    assert fingerprint("folder", root=tmp_path / "nowhere") is None
    assert fingerprint("folder") is None


def test_a_fingerprint_of_flat_folders_and_of_parts(tmp_path: Path, paint: Paint) -> None:
    paint(tmp_path / "flat/1.png")
    assert (fingerprint("folder", root=tmp_path / "flat") or "").startswith("1 class 1 file ")
    paint(tmp_path / "parts/train/cat/1.png")
    paint(tmp_path / "parts/test/cat/1.png")
    assert (fingerprint("folder", root=tmp_path / "parts") or "").startswith("1 class 2 files ")
