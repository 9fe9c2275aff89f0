"""`climb search`: a table, a page, copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def run(climb: Command, tree: Path, small: list[str]) -> Path:
    """A finished run."""
    said = climb("run", "folder", "--data", tree, *small, "--passes", 1, "--out", "run")
    assert said.code == 0, said.err
    return Path("run")


def test_memory_folder_and_features(climb: Command, run: Path, tree: Path) -> None:
    asked = tree / "train/cat/4.png"
    said = climb("search", run, asked, "--top", 3)  # every training image is still remembered, or its like
    assert said.code == 0, said.err
    assert said.out.count("image ") >= 3
    said = climb("search", run, asked, "--in", tree, "--top", 3, "--html", "page.html", "--out", "copies")
    assert said.code == 0, said.err
    first = next(line for line in said.out.splitlines() if " 1 " in line)
    assert "1.0000" in first
    assert "train/cat/4.png" in first
    assert said.out.splitlines()[-2:] == ["page.html", "copies"]
    assert Path("page.html").read_text().count("data:image/webp") == 4
    assert len(list(Path("copies").iterdir())) == 3
    assert climb("embed", run, tree, "--out", "f.parquet").code == 0
    again = climb("search", run, asked, "--in", "f.parquet", "--top", 3)
    assert [line for line in again.out.splitlines() if ".png" in line] == [
        line for line in said.out.splitlines() if ".png" in line
    ]


def test_a_folder_that_is_being_learned_in(climb: Command, tree: Path) -> None:
    options = ["--backbone", "micro", "--image-size", 16, "--passes", 1, "--replay-batch", 8, "--device", "cpu"]
    said = climb("learn", tree, "--out", "learned", *options)
    assert said.code == 0, said.err
    said = climb("search", "learned", tree / "train/cat/4.png", "--top", 1)
    assert said.code == 0, said.err
    assert "1.0000" in said.out
    assert climb("embed", "learned", tree, "--out", "features.npy").code == 0
    assert climb("probe", "learned", tree).code == 0
    assert climb("export", "learned").out == "learned/export/README.md\n"
    text = Path("learned/export/README.md").read_text()
    assert "Trained by `climb` (preset `default`, seed 0) on a stream of images, without labels." in text


def test_bad_input(climb: Command, run: Path, tree: Path) -> None:
    asked = tree / "train/cat/4.png"
    for arguments, complaint in (
        (["nothing.png"], "nothing.png does not exist; give an image"),
        ([asked, "--in", "nowhere"], "'nowhere' does not exist"),
        ([asked, "--in", "nothing.npy"], "write it with: climb embed MODEL IMAGES --out nothing.npy"),
        ([asked, "--top", 0], "top is 0"),
    ):
        said = climb("search", run, *arguments)
        assert said.code == 2
        assert complaint in said.err


def test_a_name_that_moves_the_cursor_is_shown_as_it_is_written(climb: Command, run: Path, tree: Path) -> None:
    odd = tree / "\x1b[2J\nx.png"
    image = next(tree.rglob("*.png"))
    image.rename(odd)
    said = climb("search", run, odd, "--in", tree, "--top", 1)
    in_one_line = "".join(character for character in said.out if character not in "│ \n")
    assert "\\x1b[2J\\x0ax.png" in in_one_line
    assert "\x1b" not in said.out
    odd.write_bytes(b"no image")
    said = climb("search", run, odd)
    assert said.code == 2
    assert "\x1b" not in said.err
