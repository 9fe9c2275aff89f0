"""Scores of files against the memory of a model, in Python and on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.cli import run_command
from climb.errors import InputError
from climb.export import open_model, score, stored_images, write_scores
from climb.export.score import write_table
from climb.novelty import ReferenceSet

from .conftest import noise


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Ten images that the model has learned, and a black one."""
    (tmp_path / "pictures").mkdir()
    for place, pixels in enumerate(noise(10)):
        Image.fromarray(pixels).save(tmp_path / f"pictures/{place:02d}.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "pictures/black.png")
    return tmp_path / "pictures"


def test_scores_are_those_of_the_features(learned: tuple[Climb, Path], pictures: Path) -> None:
    learner, file = learned
    model = open_model(file, device="cpu", precision="float32")
    scored = list(score(model, pictures))
    stored = stored_images(model)
    images = np.concatenate([noise(10), np.zeros((1, 16, 16, 3), dtype=np.uint8)])
    expected = ReferenceSet(torch.from_numpy(stored.features)).score(torch.from_numpy(learner.transform(images)))
    assert [one.score for one in scored] == pytest.approx(expected.scores.tolist(), abs=1e-4)
    assert scored[-1].path.endswith("black.png")
    assert scored[-1].score > 0.98
    assert max(one.score for one in scored[:-1]) < scored[-1].score
    assert [one.nearest for one in scored] == [stored.names[row] for row in expected.nearest.tolist()]


def test_every_format_has_the_same_rows(learned: tuple[Climb, Path], pictures: Path, tmp_path: Path) -> None:
    model = open_model(learned[1], device="cpu", precision="float32")
    written = {suffix: write_scores(tmp_path / f"s{suffix}", score(model, pictures)) for suffix in (".csv", ".jsonl")}
    write_scores(tmp_path / "s.parquet", score(model, pictures))
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "s.parquet").to_pylist()
    assert list(rows[0]) == list(lines[0]) == list(table[0]) == ["path", "score", "nearest"]
    assert [float(row["score"]) for row in rows] == [line["score"] for line in lines] == [row["score"] for row in table]
    assert [row["path"] for row in rows] == [one.path for one in written[".csv"]] == [row["path"] for row in table]


def test_odd_names_are_written(tmp_path: Path) -> None:
    name = 'a,"b"\n\udce9.png'
    for suffix in (".csv", ".jsonl", ".parquet"):
        assert write_table(tmp_path / f"t{suffix}", ["path"], [[name]]) == 1
    assert json.loads((tmp_path / "t.jsonl").read_text(encoding="utf-8"))["path"] == name


def test_the_command(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scores.csv"
    assert run_command(["score", str(learned[1]), str(pictures), "--out", str(out), "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "black.png" in text
    assert "00.png" not in text
    assert text.endswith(f"11 images: {out}\n")


def test_bad_input(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    learner = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", method="finetune")
    learner.partial_fit(noise(20)).save(tmp_path / "without.safetensors")
    for arguments, complaint in (
        ([tmp_path / "without.safetensors", pictures, "--out", "s.csv"], "contains no stored images"),
        ([learned[1], tmp_path / "empty", "--out", tmp_path / "s.csv"], "no image"),
        ([learned[1], pictures, "--out", "s.txt"], "must end in .csv, .parquet or .jsonl; given s.txt"),
        ([learned[1], pictures, "--out", "s.csv", "--top", 0], "top is 0; it must be at least 1"),
        ([tmp_path / "nowhere", pictures, "--out", "s.csv"], "does not exist"),
    ):
        assert run_command(["score", *map(str, arguments)]) == 2
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "s.csv").exists()
    with pytest.raises(InputError, match="no image"):
        list(score(open_model(learned[1], device="cpu", precision="float32"), tmp_path / "empty"))
