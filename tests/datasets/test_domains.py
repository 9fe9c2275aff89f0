from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from climb.datasets import domains, fingerprint, load
from climb.errors import InputError

Paint = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path, paint: Paint) -> Path:
    """Two domains with two classes of ten images each, and one of ten images in one domain alone."""
    folders = ["photo/cat", "photo/dog", "sketch/cat", "sketch/dog", "sketch/emu"]
    for place, name in enumerate(folders):
        for image in range(10):
            paint(tmp_path / "data" / name / f"{image}.png", 10 * place + image)
    return tmp_path / "data"


def test_a_fifth_of_each_class_in_each_domain_is_held_out(tree: Path) -> None:
    data = load("domains", root=tree, image_size=8)
    assert (data.classes, data.domains) == (("cat", "dog", "emu"), ("photo", "sketch"))
    assert (len(data.train), len(data.test)) == (40, 10)
    assert data.test.domains is not None
    assert data.test.labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2]
    assert data.test.domains.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert [name.rpartition("/")[0] for name in data.test.names[::2]] == [
        "photo/cat", "photo/dog", "sketch/cat", "sketch/dog", "sketch/emu",
    ]  # fmt: skip
    assert not set(data.train.names) & set(data.test.names)
    # Grey level and name say the same image.
    for name, level in zip(data.train.names, data.train.images[:, 0, 0, 0].tolist(), strict=True):
        assert int(Path(name).stem) == level % 10
    assert load("domains", root=tree, image_size=8).test.names == data.test.names
    assert load("domains", root=tree, image_size=8, seed=1).test.names != data.test.names


def test_one_image_of_a_class_in_a_domain_is_trained_on(tree: Path, paint: Paint) -> None:
    paint(tree / "photo/emu/1.png")
    data = domains(root=tree, image_size=8)
    assert "photo/emu/1.png" in data.train.names


def test_names_are_kept_without_those_that_cannot_be_read(tree: Path, paint: Paint) -> None:
    for image in range(10, 110):
        paint(tree / "photo/cat" / f"{image}.png", image % 10)
    (tree / "photo/cat/5.png").write_bytes(b"no image")
    data = domains(root=tree, image_size=8)
    assert len(data.train.names) + len(data.test.names) == 149
    assert "photo/cat/5.png" not in {*data.train.names, *data.test.names}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["photo/cat/1.png"], "holds 1 domain, photo; for images by class alone, give --dataset folder"),
        (["photo/cat/1.png", "sketch/1.png"], "sketch holds no class folder; dataset .domains. expects"),
    ],
)  # fmt: skip
def test_layouts_that_cannot_be_used(tmp_path: Path, paint: Paint, files: list[str], message: str) -> None:
    for name in files:
        paint(tmp_path / name)
    with pytest.raises(InputError, match=message):
        domains(root=tmp_path)


def test_the_folder_is_required_and_part_of_the_fingerprint(tree: Path, paint: Paint) -> None:
    with pytest.raises(InputError, match="dataset 'domains' needs the folder of the images"):
        load("domains")
    before = fingerprint("domains", root=tree)
    assert before is not None
    assert before.startswith("3 classes 50 files ")
    paint(tree / "photo/emu/1.png")
    assert fingerprint("domains", root=tree) != before
    assert fingerprint("domains") is None
