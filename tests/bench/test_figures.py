"""The figures, from real runs of about a second."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from climb.bench.collect import FinishedRun, find_runs
from climb.bench.figures import COLOURS, FIGURES, draw_figure, dynamics, irregular, seen_so_far, wallclock
from climb.errors import InputError
from climb.report.plots import BOUNDARY
from climb.session import execute
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[FinishedRun]:
    """CLIMB on two seeds and plain replay on one, three irregular tasks each."""
    folder = tmp_path_factory.mktemp("runs")
    config = RunConfig(
        data=DataConfig(image_size=16, options={"classes": 6, "train_per_class": 30, "test_per_class": 5}),
        stream=StreamConfig(kind="irregular", tasks=3, options={"cap": 4}),
        learner=LearnerConfig(
            backbone="micro",
            image_size=16,
            replay_batch=8,
            passes=1,
            memory=MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50),
        ),
        evaluation=EvaluationConfig(epochs=2),
    )
    for method, seed in (("climb", 0), ("climb", 1), ("er-fifo", 0)):
        own = replace(config, seed=seed, learner=replace(config.learner, method=method))
        execute(own, Execution(device="cpu"), folder / f"{method}-{seed}")
    return find_runs([folder])


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_figure_is_a_reproducible_png_and_svg(name: str, runs: list[FinishedRun], tmp_path: Path) -> None:
    png, svg = draw_figure(name, runs, tmp_path / "once")
    assert (png.name, svg.name) == (f"{name}.png", f"{name}.svg")
    pixels = np.asarray(Image.open(png).convert("RGB"))
    assert pixels.shape[0] > 300
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20  # more than an empty page
    texts = "".join(ElementTree.parse(svg).getroot().itertext())
    assert "CLIMB" in texts or "seed 1" in texts
    again = draw_figure(name, runs, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def test_dynamics_draw_the_journal_and_the_ends_of_tasks(runs: list[FinishedRun]) -> None:
    canvas = dynamics(runs)
    stm = canvas.panels[0]
    journal = [json.loads(line) for line in (runs[0].path / "journal.jsonl").read_text().splitlines()]
    train = [line for line in journal if line["event"] == "train"]
    assert stm.lines[0].get_ydata().tolist() == [line["stm_images"] for line in train]  # type: ignore[union-attr]
    ends = [line["batch"] for line in journal if line["event"] == "evaluation"]
    dashed = [line for line in stm.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed[:2]] == ends[:2]  # type: ignore[index]
    # The other seed has tasks of other sizes.
    assert [line.get_color() for line in dashed] == [COLOURS[0], COLOURS[0], COLOURS[1], COLOURS[1]]
    alone = [line for line in dynamics(runs[:1]).panels[0].lines if line.get_linestyle() == "--"]
    assert {line.get_color() for line in alone} == {BOUNDARY["color"]}
    assert [text.get_text() for text in stm.get_legend().get_texts()] == ["seed 0", "seed 1"]  # the flat memory is out


def test_dynamics_name_runs_by_their_task_counts(runs: list[FinishedRun]) -> None:
    other = replace(runs[0], result={**runs[0].result, "tasks": 5})
    legend = dynamics([runs[0], other]).panels[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["3 tasks, seed 0", "5 tasks, seed 0"]


def test_dynamics_need_a_journal(runs: list[FinishedRun], tmp_path: Path) -> None:
    shutil.copy(runs[0].path / "result.json", tmp_path)
    shutil.copy(runs[0].path / "config.json", tmp_path)
    with pytest.raises(InputError, match=r"needs the journal\.jsonl"):
        dynamics(find_runs([tmp_path]))


def test_irregular_streams_count_once_per_seed(runs: list[FinishedRun]) -> None:
    sizes, accuracies = irregular(runs).panels
    assert sum(bar.get_height() for bar in sizes.patches) == 2 * 3  # type: ignore[attr-defined]
    assert sizes.get_title() == "3 tasks, 2 seeds"
    curves = np.array([seen_so_far(run) for run in runs if run.result["method"] == "climb"])
    drawn = {line.get_label(): line.get_ydata() for line in accuracies.lines}
    np.testing.assert_allclose(drawn["CLIMB"], curves.mean(0))  # type: ignore[arg-type]
    assert curves[0].mean() == pytest.approx(runs[0].result["continual_accuracy"])


def test_the_band_is_one_sample_standard_deviation(runs: list[FinishedRun]) -> None:
    curves = np.array([seen_so_far(run) for run in runs if run.result["method"] == "climb"])
    (band,) = irregular(runs).panels[1].collections
    outline = np.asarray(band.get_paths()[0].vertices)[:, 1]
    middle, spread = curves.mean(0), curves.std(0, ddof=1)
    assert outline.max() == pytest.approx((middle + spread).max())
    assert outline.min() == pytest.approx((middle - spread).min())


def test_regular_runs_are_rejected_in_the_irregular_figure(runs: list[FinishedRun]) -> None:
    regular = [
        replace(run, config={**run.config, "stream": {**run.config["stream"], "kind": "regular"}}) for run in runs
    ]
    with pytest.raises(InputError, match="none of the 3 given"):
        irregular(regular)


def test_wallclock_bars_are_means_over_seeds(runs: list[FinishedRun]) -> None:
    timed = [
        replace(run, result={**run.result, "seconds": {"train": 100.0 * (number + 1), "evaluate": 50.0}})
        for number, run in enumerate(runs)
    ]
    panel = wallclock(timed).panels[0]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["CLIMB", "er-fifo"]
    heights = [bar.get_height() for bar in panel.patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([2.5, 5.0, 50 / 60, 50 / 60])  # minutes: training, then evaluation
    assert panel.get_ylabel().startswith("minutes")
    below = [bar.get_y() for bar in panel.patches]  # type: ignore[attr-defined]
    assert below == pytest.approx([0.0, 0.0, 2.5, 5.0])  # evaluation stands on top of training


def test_an_unknown_figure_and_no_runs_are_rejected(runs: list[FinishedRun], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'figure-dynamics'"):
        draw_figure("figure-dynamic", runs, tmp_path)
    with pytest.raises(InputError, match="at least one finished run"):
        draw_figure("figure-dynamics", [], tmp_path)
