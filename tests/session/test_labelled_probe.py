"""`climb learn --probe`: what the journal gets, what it costs, and that training does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.errors import InputError
from climb.export import open_model, probe
from climb.report.page import write_report
from climb.runs import Journal, RunFolder
from climb.serve.journal_tail import JournalTail
from climb.serve.pages import run_parts
from climb.serve.watched_run import WatchedRun
from climb.session import Observer, labelled_probe, learn

Write = Callable[..., Path]
Small = dict[str, Any]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Three classes of tinted noise, in a training and a test part."""
    folder, generator = tmp_path / "labelled", np.random.default_rng(3)
    for part, count in (("train", 8), ("test", 10)):
        for label in range(3):
            (folder / part / f"class{label}").mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 150, (16, 16, 3))
                pixels[:, :, label] += generator.integers(10, 90)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / f"class{label}" / f"{number}.png")
    return folder


def lines_of(out: Path) -> list[dict[str, Any]]:
    return Journal(out / "journal.jsonl").read("probe")


def test_the_journal_has_the_probes_of_climb_probe(labelled: Path, fill: Write, small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    learn(fill(tmp_path / "images", 60), out=out, **small, probe=str(labelled), checkpoint_seconds=1000.0)
    first, last = lines_of(out)
    assert (first["images"], last["images"]) == (0, 60)
    expected = probe(open_model(out, device="cpu"), labelled)
    for name in ("knn", "ridge"):
        assert first[name] == last[f"start_{name}"] == pytest.approx(expected["start"][f"{name}_accuracy"])
        assert last[name] == pytest.approx(expected[f"{name}_accuracy"])
        assert last[f"{name}_error"] == pytest.approx(expected[f"{name}_error"])
    assert last["seconds"] > 0


def test_training_is_the_same_to_the_bit(labelled: Path, fill: Write, small: Small, tmp_path: Path) -> None:
    images = fill(tmp_path / "images", 100)
    states = []
    for name, options in (("without", {}), ("with", {"probe": str(labelled)})):
        learn(images, out=tmp_path / name, **small, **options, checkpoint_seconds=0.0, precision="float32")
        states.append(RunFolder(tmp_path / name).checkpoints.load(RunFolder(tmp_path / name).identity()))
    assert len(lines_of(tmp_path / "with")) >= 2
    without, probed = (dict(leaves(state["engine"])) for state in states)
    assert without.keys() == probed.keys()
    for key, value in without.items():
        assert torch.equal(value, probed[key]) if isinstance(value, torch.Tensor) else value == probed[key]


def leaves(tree: Any, name: str = "") -> Any:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else None
    if children is None:
        yield name, tree
    else:
        for key, child in children:
            yield from leaves(child, f"{name}/{key}")


@pytest.mark.parametrize(("share", "probes"), [(0.0, 2), (1e9, 11)])
def test_probes_at_checkpoints_take_their_share_of_the_time(
    share: float, probes: int, labelled: Path, fill: Write, small: Small, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With no share, the start and the end; with all the time there is, every one of ten mini-batches."""
    monkeypatch.setattr(labelled_probe, "SHARE", share)
    out = tmp_path / "out"
    learn(fill(tmp_path / "images", 100), out=out, **small, probe=str(labelled), checkpoint_seconds=0.0)
    lines = lines_of(out)
    assert [line["images"] for line in lines] == ([0, 100] if probes == 2 else list(range(0, 101, 10)))


def test_later_sittings_keep_the_start_and_rebuild_it_if_they_must(
    labelled: Path, fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, out = fill(tmp_path / "images", 30), tmp_path / "out"
    learn(images, out=out, **small, probe=str(labelled))
    (first, _), built = lines_of(out), []
    monkeypatch.setattr(labelled_probe, "start_network", lambda *_, **__: built.append(1))
    fill(images, 30, first=30)
    learn(images, out=out, **small, probe=str(labelled))
    assert not built
    monkeypatch.undo()
    learn(fill(images, 30, first=60), out=out, **small)  # a sitting without probes forgets the start
    learn(fill(images, 30, first=90), out=out, **small, probe=str(labelled))
    last = lines_of(out)[-1]
    assert last["images"] == 120
    assert [last[f"start_{name}"] for name in ("knn", "ridge")] == [first["knn"], first["ridge"]]


def test_a_large_folder_is_thinned_out(
    labelled: Path, fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelled_probe, "MOST", 8)
    sizes = []

    class Sizes(Observer):
        def start(self, session: Any) -> None:
            (own,) = (each for each in session.observers if isinstance(each, labelled_probe.LabelledProbe))
            sizes.extend(torch.bincount(labels).tolist() for _, labels in own._parts.values())

    learn(fill(tmp_path / "images", 20), out=tmp_path / "out", **small, probe=str(labelled), observers=[Sizes()])
    assert sizes == [[3, 3, 2], [3, 2, 3]]


def test_unusable_folders_are_refused_before_any_work(
    labelled: Path, fill: Write, small: Small, tmp_path: Path
) -> None:
    images, out = fill(tmp_path / "images", 20), tmp_path / "out"
    for folder, message in (
        (tmp_path / "nowhere", "nowhere does not exist; give a folder"),
        (labelled / "train/class0", "has 1 class; a probe needs at least two"),
    ):
        with pytest.raises(InputError, match=message):
            learn(images, out=out, **small, probe=str(folder))
        assert not out.exists()
    for file in (labelled / "test/class1").iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(InputError, match=r"class 'class1' of .* has no readable test image"):
        learn(images, out=out, **small, probe=str(labelled))


def test_the_report_and_the_server_show_the_probes_beside_the_start(
    labelled: Path, fill: Write, small: Small, tmp_path: Path
) -> None:
    out = tmp_path / "runs" / "out"
    learn(fill(tmp_path / "images", 60), out=out, **small, probe=str(labelled))
    last = lines_of(out)[-1]
    page = write_report(out).read_text()
    served = run_parts(WatchedRun(tmp_path / "runs", "out"))
    for text in (page, served["accuracy"]):
        assert "Accuracy on labelled images" in text
        assert text.count('class="level"') >= 2  # the start, in both charts
        assert ">start</li>" in text
    for text in (page, served["summary"]):
        assert f"{last['ridge']:.2f}" in text
        assert f"The start: {last['start_ridge']:.2f}." in text
    assert [line["images"] for line in JournalTail(out).read() if line["event"] == "probe"] == [0, 60]


def test_a_learner_without_probes_has_no_section_for_them(fill: Write, small: Small, tmp_path: Path) -> None:
    learn(fill(tmp_path / "images", 20), out=tmp_path / "out", **small)
    assert "labelled images" not in write_report(tmp_path / "out").read_text()
