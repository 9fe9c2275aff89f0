"""The diversity of the memory in `result.json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.spatial.distance as distance
import torch

from climb.methods import choose_method
from climb.methods.build import build_engine
from climb.nets import frozen
from climb.session import execute
from climb.session.evaluation import memory_diversity
from climb.settings.config import Execution, RunConfig

Make = Callable[..., RunConfig]


def with_method(config: RunConfig, name: str) -> RunConfig:
    return replace(config, learner=choose_method(config.learner, name))


@pytest.mark.parametrize("method", ["climb", "scale"])
def test_every_method_with_a_memory_has_its_diversity_measured(method: str, make_config: Make, tmp_path: Path) -> None:
    result = execute(with_method(make_config(), method), Execution(device="cpu"), tmp_path / "run")
    found = result["diversity"]
    assert found["images"] == result["stored_images"]
    for measures in (found, found["features"]):
        assert 1 <= measures["vendi_score"] <= measures["images"]
        assert measures["uniformity"] <= 0
        assert measures["clusters"] == 4
        assert measures["subsample"] == min(measures["images"], 34)  # as 2121 are of 2500, so are 34 of 40
        assert measures["inter_intra_ratio"] is None or measures["inter_intra_ratio"] > 0


def test_a_method_without_a_memory_has_none(make_config: Make, tmp_path: Path) -> None:
    result = execute(with_method(make_config(), "finetune"), Execution(device="cpu"), tmp_path / "run")
    assert "diversity" not in result


@pytest.mark.parametrize(("method", "preset"), [("climb", "paper"), ("climb", "reference"), ("pcmc", "paper")])
def test_measuring_spends_no_budget_and_changes_no_network(method: str, preset: str, make_config: Make) -> None:
    config = with_method(make_config(preset=preset), method).learner
    engine = build_engine(
        config,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        seed=0,
        device=torch.device("cpu"),
        precision="float32",
        kind="eager",
    )
    for seed in range(6):
        images = torch.randint(0, 256, (10, 3, 16, 16), generator=torch.Generator().manual_seed(seed))
        engine.observe(images.to(torch.uint8))
    before, network = engine.budget.state_dict(), {k: v.clone() for k, v in engine.parts.network.state_dict().items()}
    first = memory_diversity(engine, classes=4, seed=0)
    again = memory_diversity(engine, classes=4, seed=0)
    assert first is not None
    assert first["images"] == len(engine.parts.memory)
    assert first == again  # replay's random order has no part in it
    assert engine.budget.state_dict() == before
    assert engine.parts.network.training
    for name, value in engine.parts.network.state_dict().items():
        assert torch.equal(value, network[name])
    # Whose measures they are, of everything that is stored: the projector's, with the encoder's beside them.
    encoder = engine.parts.network.encoder
    patches = method == "pcmc"
    stored = engine.parts.memory.sample(len(engine.parts.memory))
    with frozen(engine.parts.network):
        features = (encoder.backbone if patches else encoder)(engine.augment.plain(stored.images))
        embeddings = engine.parts.network.projector(features)
    for rows, found in ((embeddings, first), (features, first["features"])):
        cosines = 1 - distance.squareform(distance.pdist(rows.double().numpy(), "cosine"))
        values = np.linalg.eigvalsh(cosines / len(rows)).clip(1e-300)
        assert found["vendi_score"] == pytest.approx(np.exp(-(values * np.log(values)).sum()), rel=1e-4)
