"""Health without labels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from climb.engine import Engine
from climb.engine.health import COLLAPSED, health
from climb.methods.build import build_engine, chosen_network
from climb.runs import RunFolder
from climb.session import learn
from climb.session.health import PANEL, Panel, Watchdog, choose_panel, drift, measure
from climb.settings.config import LearnerConfig, MemoryConfig

STORED = torch.randint(0, 256, (200, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def engine() -> Engine:
    config = LearnerConfig(backbone="micro", image_size=16, replay_batch=8, memory=MemoryConfig(capacity=100))
    return build_engine(
        config, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0, device=torch.device("cpu"), precision="float32", kind="eager"
    )


class Constant(nn.Module):
    """Everything is one point."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(images), 4)


class Pixels(nn.Module):
    """Features that turn by an angle one can set."""

    angle = 0.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x, y = images.mean(dim=(1, 2, 3)), images[:, 0].mean(dim=(1, 2))
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=1)


def panel_of(engine: Engine, encoder: nn.Module) -> Panel:
    panel = choose_panel(engine, encoder, STORED)
    assert panel is not None
    return panel


def test_a_panel_is_spread_over_the_memory(engine: Engine) -> None:
    panel = panel_of(engine, Constant())
    assert torch.equal(panel.images[0], STORED[0])
    assert torch.equal(panel.images[-1], STORED[-1])
    assert len(panel.images) == PANEL
    few = choose_panel(engine, Constant(), STORED[:3])
    assert few is not None
    assert torch.equal(few.images, STORED[:3])
    assert choose_panel(engine, Constant(), STORED[:1]) is None


def test_drift_is_the_way_moved_as_a_share_of_that_to_another_image(engine: Engine) -> None:
    encoder = Pixels()
    panel = panel_of(engine, encoder)
    cosines = panel.features @ panel.features.T
    apart = float(1 - cosines[~torch.eye(PANEL, dtype=torch.bool)].mean())
    assert drift(engine, encoder, panel) == pytest.approx(0, abs=1e-4)
    for angle in (0.3, math.pi / 2, math.pi):
        encoder.angle = angle
        assert drift(engine, encoder, panel) == pytest.approx((1 - math.cos(angle)) / apart, rel=1e-3)
    assert drift(engine, Constant(), panel_of(engine, Constant())) == 0  # one point cannot move from another


def test_alignment_and_uniformity_of_one_point_and_of_a_network(engine: Engine) -> None:
    collapsed = measure(engine, Constant(), panel_of(engine, Constant()))
    assert collapsed["view_alignment"] == pytest.approx(0, abs=1e-6)
    assert collapsed["uniformity"] == pytest.approx(0, abs=1e-6)
    encoder = chosen_network(engine)[1].encoder
    panel = panel_of(engine, encoder)
    found = measure(engine, encoder, panel)
    assert found["view_alignment"] > 0
    unit = panel.features.double()
    squared = (unit[:, None] - unit[None]).square().sum(-1)
    pairs = squared[~torch.eye(len(unit), dtype=torch.bool)]
    assert found["uniformity"] == pytest.approx(float((-2 * pairs).exp().mean().log()), abs=1e-4)


def test_measuring_changes_nothing(engine: Engine) -> None:
    def life(measured: bool) -> list[torch.Tensor]:
        config = engine.config
        own = build_engine(
            config, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0, device=engine.device, precision="float32", kind="eager"
        )
        for batch in torch.split(STORED[:80], 10):
            own.observe(batch)
            if measured:
                encoder = chosen_network(own)[1].encoder
                measure(own, encoder, panel_of(own, encoder))
        return list(own.parts.network.state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(life(False), life(True), strict=True))


def test_warnings_say_what_to_do_once() -> None:
    dog = Watchdog(repeat=True)
    (collapse,) = dog.check({"embedding_spread": 0.01, "drift": None})
    assert "--lr" in collapse
    (drifted,) = dog.check({"embedding_spread": 0.01, "drift": 0.9})
    assert "embed again" in drifted
    assert dog.check({"embedding_spread": 0.5, "drift": 0.9}) == []
    assert Watchdog(repeat=True).check({"embedding_spread": 0.5, "drift": 0.9}, young=True) == []
    assert len(dog.check({"embedding_spread": 0.01, "drift": 0.1})) == 1  # it had been well in between


@pytest.mark.parametrize(
    "sick", [{"embedding_spread": 0.09}, {"effective_rank": 1.4}, {"feature_spread": 0.09}, {"feature_rank": 1.4}]
)
def test_any_of_four_numbers_shows_a_collapse(sick: dict[str, float]) -> None:
    well = {"embedding_spread": 0.9, "effective_rank": 9.0, "feature_spread": 0.5, "feature_rank": 9.0}
    assert Watchdog(repeat=True).check(well) == []
    assert len(Watchdog(repeat=True).check(well | sick)) == 1
    of_features = any(name.startswith("feature") for name in sick)
    assert len(Watchdog(repeat=True).check(well | sick, young=True)) == (
        0 if of_features else 1
    )  # those have yet to spread


def test_images_that_are_much_alike_are_no_collapse(engine: Engine) -> None:
    """As of a camera that stands still; the encoder is one that has learned nothing, and so lost nothing."""
    noise = torch.randint(-3, 4, STORED.shape, generator=torch.Generator().manual_seed(1))
    alike = (STORED[:1].clamp(10, 245).long() + noise).to(torch.uint8)
    encoder = chosen_network(engine)[1].encoder
    panel = choose_panel(engine, encoder, alike)
    assert panel is not None
    assert health(panel.features).spread < COLLAPSED
    assert Watchdog(repeat=True).check(dict(measure(engine, encoder, panel))) == []
    assert len(Watchdog(repeat=True).check(dict(measure(engine, Constant(), panel)))) == 1
    same = choose_panel(engine, encoder, alike[:1].repeat(20, 1, 1, 1))
    assert same is not None
    assert "feature_spread" not in measure(engine, encoder, same)


def test_features_that_are_one_point_show_in_the_journal(engine: Engine) -> None:
    sick = measure(engine, Constant(), panel_of(engine, Constant()))
    assert (sick["feature_spread"], sick["feature_rank"]) == (0.0, 1.0)
    encoder = chosen_network(engine)[1].encoder
    well = measure(engine, encoder, panel_of(engine, encoder))
    assert well["feature_spread"] > 0.1
    assert well["feature_rank"] > 2
    few = choose_panel(engine, encoder, STORED[:7])
    assert few is not None
    assert "feature_rank" not in measure(engine, encoder, few)  # seven images say nothing of a rank


def test_a_learner_measures_images_in_the_order_of_its_checkpoint(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another order would choose another panel, and journals would no longer be comparable."""
    passed: list[torch.Tensor] = []

    def recorded(engine: Engine, encoder: nn.Module, stored: torch.Tensor) -> Panel | None:
        passed.append(stored)
        return choose_panel(engine, encoder, stored)

    monkeypatch.setattr("climb.session.journal_lines.choose_panel", recorded)
    images = np.random.default_rng(0).integers(0, 256, (130, 16, 16, 3), dtype=np.uint8)
    for sitting in (images[:120], images[120:]):
        learn(iter(sitting), out=tmp_path, **small, checkpoint_seconds=1000.0)
    state = RunFolder(tmp_path).load_checkpoint()
    assert state is not None
    assert len(passed) == 3  # at the end of both sittings, and at the start of the second
    assert torch.equal(passed[0], passed[1])
    assert torch.equal(passed[2], state["engine"]["memory"]["images"])
