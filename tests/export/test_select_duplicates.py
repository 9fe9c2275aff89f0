"""`climb select` and `climb duplicates`: lists, pages, links and exit codes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb import Climb
from climb.cli import run_command
from climb.export import duplicates, open_model, select

Learned = tuple[Climb, Path]


def scene(seed: int, side: int = 64) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        scene(number).save(folder / f"{number:02d}.png")
    return folder


def run(*arguments: object) -> int:
    try:
        return run_command([str(argument) for argument in arguments])
    except SystemExit as left:
        return int(left.code or 0)


def test_duplicates_are_found_and_told_by_the_exit_code(
    learned: Learned, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "d.csv"
    assert run("duplicates", learned[1], pictures, "--out", out, "--device", "cpu") == 0
    assert out.read_text() == "group,path\n"
    scene(3).save(pictures / "<b>copy&.jpg", quality=60)
    scene(5).resize((40, 40)).save(pictures / "small.png")
    assert run("duplicates", learned[1], pictures, "--out", out, "--device", "cpu") == 1
    rows = [(row["group"], Path(row["path"]).name) for row in csv.DictReader(out.read_text().splitlines())]
    groups = {frozenset(name for number, name in rows if number == group) for group, _ in rows}
    assert groups == {frozenset({"03.png", "<b>copy&.jpg"}), frozenset({"05.png", "small.png"})}
    page = (tmp_path / "d.html").read_text()
    assert page.count("data:image/webp") == 4
    assert "&lt;b&gt;copy&amp;.jpg" in page
    assert "<b>copy" not in page
    assert "2 groups with 4 of 14 images" in capsys.readouterr().out


def test_mirror_images_count_on_request_only(learned: Learned, pictures: Path) -> None:
    scene(4).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(pictures / "mirrored.png")
    model = open_model(learned[1], device="cpu", precision="float32")
    assert duplicates(model, pictures).groups == []
    (group,) = duplicates(model, pictures, mirrored=True).groups
    assert [Path(path).name for path in group.paths] == ["04.png", "mirrored.png"]


def test_two_folders_are_compared(learned: Learned, pictures: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    scene(2).save(other / "two.jpg", quality=80)
    scene(2).save(other / "two-again.png")  # a pair within one folder alone is none
    scene(90).save(other / "new.png")
    (group,) = duplicates(open_model(learned[1], device="cpu", precision="float32"), pictures, across=other).groups
    assert {Path(path).name for path in group.paths} == {"02.png", "two.jpg", "two-again.png"}


def test_selection_has_a_list_links_and_a_sheet(learned: Learned, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "label"
    for _ in range(2):  # a second selection replaces the first
        assert run("select", learned[1], pictures, "--n", 5, "--out", out, "--device", "cpu") == 0
    rows = list(csv.DictReader((out / "selected.csv").read_text().splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]
    links = sorted((out / "images").iterdir())
    assert [link.resolve() for link in links] == [Path(row["path"]).resolve() for row in rows]
    assert (out / "selected.html").read_text().count("data:image/webp") == 5


def test_labelled_images_are_not_selected_again(learned: Learned, pictures: Path, tmp_path: Path) -> None:
    labelled = tmp_path / "labelled"
    labelled.mkdir()
    for number in range(6):
        scene(number).save(labelled / f"{number:02d}.png")
    chosen = select(open_model(learned[1], device="cpu", precision="float32"), pictures, n=6, labelled=labelled)
    assert {int(Path(one.path).stem) for one in chosen} == set(range(6, 12))


def test_without_images_it_selects_from_the_memory(learned: Learned, tmp_path: Path) -> None:
    out = tmp_path / "label"
    assert run("select", learned[1], "--n", 4, "--out", out, "--device", "cpu") == 0
    rows = list(csv.DictReader((out / "selected.csv").read_text().splitlines()))
    assert all(row["path"].startswith("image ") for row in rows)
    for link in (out / "images").iterdir():
        with Image.open(link) as picture:
            assert picture.size == (16, 16)
    assert len(list((out / "images").iterdir())) == 4


def test_bad_input(learned: Learned, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    for arguments, complaint in (
        (["select", learned[1], pictures, "--n", 13, "--out", tmp_path / "s"], "n is 13; there are 12 images"),
        (["select", learned[1], pictures, "--n", 0, "--out", tmp_path / "s"], "n is 0; it must be at least 1"),
        (["select", learned[1], tmp_path / "empty", "--out", tmp_path / "s"], "contains no image"),
        (["select", learned[1], pictures, "--out", tmp_path / "full"], "a folder with other files"),
        (["duplicates", learned[1], tmp_path / "empty", "--out", tmp_path / "d.csv"], "contains no image"),
        (["duplicates", learned[1], pictures, "--out", tmp_path / "d.txt"], "must end in .csv, .parquet or .jsonl"),
    ):
        assert run(*arguments, "--device", "cpu") == 2
        assert complaint in capsys.readouterr().err
    assert (tmp_path / "full/mine.txt").exists()
