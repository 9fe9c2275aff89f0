"""`learn(novel=...)`: new images are reported when they arrive, and training stays the same to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.errors import InputError
from climb.session import Learned, learn
from climb.session.novelty import Copies
from climb.state import load_tree

NEW = (280, 290)


def stream(n: int = 320) -> np.ndarray[Any, Any]:
    """Noise, with some stripes in it."""
    images = np.random.default_rng(0).integers(90, 160, (n, 16, 16, 3), dtype=np.uint8)
    images[slice(*NEW), ::2] = 255
    images[slice(*NEW), 1::2] = 0
    return images


def learned(folder: Path, images: Any = None, **options: Any) -> Learned:
    options = {"size": "edge", "image_size": 16, "device": "cpu", "budget": 200, "replay_batch": 8, **options}
    return learn(stream() if images is None else images, out=folder, **options)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_new_images_are_reported_once_and_training_is_the_same(tmp_path: Path) -> None:
    learned(tmp_path / "plain")
    learned(
        tmp_path / "watched", novel=str(tmp_path / "novel.jsonl"), novel_to=str(tmp_path / "copies"), journal_seconds=0
    )
    files = [tmp_path / name / "model.safetensors" for name in ("plain", "watched")]
    states = [load_tree(file, kind="encoder")["encoder"] for file in files]
    for name, values in states[0].items():
        assert torch.equal(values, states[1][name]), name
    lines = lines_of(tmp_path / "novel.jsonl")
    reported = {line["image"] for line in lines}
    assert NEW[0] in reported
    assert len(reported & set(range(*NEW))) >= 5
    assert len(reported - set(range(*NEW))) <= 10
    assert set(lines[0]) == {"time", "image", "path", "score", "nearest"}
    assert all(line["score"] > 0.99 and line["nearest"].startswith("image ") for line in lines)
    copies = {int(file.name.partition("-")[0]): file for file in (tmp_path / "copies").iterdir()}
    assert set(copies) == reported
    assert np.array_equal(np.asarray(Image.open(copies[NEW[0]])), stream()[NEW[0]])
    journal = lines_of(tmp_path / "watched/journal.jsonl")
    values = [line for line in journal if "novelty" in line]
    assert values[-1]["novel_images"] == len(lines)
    assert 0 < values[-1]["novelty"] < 1


def test_a_folder_of_copies_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.session.novelty.MOST_COPIES", 3)
    for start in (0, 4):  # two sittings
        copies = Copies(tmp_path / "copies")
        for number in range(start, start + 4):
            copies.add(number, 0.999, torch.zeros(3, 8, 8, dtype=torch.uint8))
    assert [int(file.name[:12]) for file in sorted((tmp_path / "copies").iterdir())] == [5, 6, 7]
    monkeypatch.setattr("climb.session.novelty.MOST_COPY_BYTES", 1)
    copies.add(9, 0.999, torch.zeros(3, 8, 8, dtype=torch.uint8))
    assert list((tmp_path / "copies").iterdir()) == []


def test_lines_of_images_that_are_learned_again_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "novel.jsonl"
    file.write_text('{"image": 7}\n{"ima')
    learned(tmp_path / "out", images=stream(20), novel=str(file))
    assert file.read_text() == ""


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--novel must be a file that ends in .jsonl; given novel.csv"):
        learned(tmp_path / "out", novel="novel.csv")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--novel-to must be a folder"):
        learned(tmp_path / "out", novel_to=str(tmp_path / "file"))
    with pytest.raises(InputError, match="use a method that stores images"):
        learned(tmp_path / "out", method="finetune", novel=str(tmp_path / "n.jsonl"))
    (tmp_path / "mine.jsonl").write_text("mine\n")
    with pytest.raises(InputError, match="not a file of --novel"):
        learned(tmp_path / "other", novel=str(tmp_path / "mine.jsonl"))
    assert (tmp_path / "mine.jsonl").read_text() == "mine\n"
