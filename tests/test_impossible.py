"""What no engine could be built from is refused before any work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from climb.augment import simclr
from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Parts, StreamAndReplay
from climb.errors import InputError
from climb.impossible import check_config
from climb.methods import METHODS, build_parts, climb, method, with_replay
from climb.objectives import SimCLR, VICReg
from climb.workshop import OBJECTIVES, Workshop, objective

CONFIG = LearnerConfig(
    backbone="micro",
    image_size=16,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=33),
)
WITH_CENTROIDS = {"climb", "climb-selective", "climb-memory-only", "climb-previous-step"}


def parts_of(config: LearnerConfig) -> Parts:
    return build_parts(Workshop(config=config, seed=0, device=torch.device("cpu")))


@pytest.mark.parametrize("objective", ["osiris", "scale"])
def test_an_objective_of_the_present_is_refused_where_only_the_memory_is_trained_on(objective: str) -> None:
    check_config(replace(CONFIG, method="er-fifo", objective=objective, replay_batch=8))
    with pytest.raises(
        InputError, match=f"objective '{objective}' learns .* method 'minred' trains on its memory alone"
    ):
        check_config(replace(CONFIG, method="minred", objective=objective, replay_batch=8))


@pytest.mark.parametrize("name", ["finetune", "iid", "cla-b", "lump"])
def test_an_objective_of_past_and_present_is_refused_where_no_stored_image_is_trained_on(name: str) -> None:
    """Its second head would get no gradient."""
    check_config(replace(CONFIG, method=name, objective="vicreg", replay_batch=8))
    with pytest.raises(
        InputError, match=f"method '{name}' trains on no stored image as it is; give another --objective"
    ):
        check_config(replace(CONFIG, method=name, objective="osiris", replay_batch=8))


def test_impossible_settings_are_refused_before_any_work() -> None:
    check_config(replace(CONFIG, backbone="vit-tiny", image_size=48, replay_batch=8))
    with pytest.raises(InputError, match=r"image_size is 36; vit-tiny .* a multiple of 8: 32 or 40"):
        check_config(replace(CONFIG, backbone="vit-tiny", image_size=36, replay_batch=8))
    with pytest.raises(InputError, match="method 'downhill' has the learning rate -3; it must be above 0"):
        method("downhill", paper="nobody", lr=-3)


def test_somebody_elses_batches_say_that_they_hold_no_stream_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.methods.METHODS", dict(METHODS))

    class Past(StreamAndReplay):
        has_stream_rows = False

    @method("past", paper="nobody")
    def past(w: Workshop) -> Parts:
        return replace(with_replay(w, w.fifo(), None), batch=Past())

    check_config(replace(CONFIG, method="past", objective="vicreg", replay_batch=8))
    with pytest.raises(InputError, match="method 'past' trains on its memory alone"):
        check_config(replace(CONFIG, method="past", objective="scale", replay_batch=8))


@pytest.mark.parametrize("objective", ["simclr", "vicreg", "osiris"])
def test_a_method_brings_an_objective_by_its_name(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the projector that the objective asks for; so a bench can compare it."""
    monkeypatch.setattr("climb.methods.METHODS", dict(METHODS))

    @method("climb-with", paper="nobody", lr=0.01, views="common")
    def climb_with(w: Workshop) -> Parts:
        return climb(w.with_objective(objective))

    brought, configured = parts_of(replace(CONFIG, method="climb-with")), parts_of(replace(CONFIG, objective=objective))
    assert type(brought.objective) is OBJECTIVES[objective].kind
    assert str(brought.network) == str(configured.network)
    check_config(replace(CONFIG, method="climb-with", replay_batch=8))
    with pytest.raises(InputError, match="brings its own objective"):
        check_config(replace(CONFIG, method="climb-with", objective="byol", replay_batch=8))


@pytest.mark.parametrize("memory", [MemoryConfig(capacity=5), MemoryConfig(capacity=30)])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_capacity_below_a_centroids_is_refused_where_there_are_centroids(name: str, memory: MemoryConfig) -> None:
    config = replace(CONFIG, method=name, replay_batch=2, memory=memory)
    if name in WITH_CENTROIDS:
        with pytest.raises(InputError, match="capacity"):
            check_config(config)
    else:
        check_config(config)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ({"window": 0}, "window must be at least 1; given 0"),
        ({"novelty_percentile": 2.0}, "novelty_percentile must be in 0..1"),
        ({"stm_rate": -0.1}, "stm_rate must be in 0..1"),
        ({"ltm_centroids": 0}, "ltm_centroids must be at least 1"),  # not the capacity, which has room for many
    ],
)
def test_what_no_memory_can_be_built_from_is_refused_before_any_work(memory: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_config(LearnerConfig(memory=MemoryConfig(**memory)))


@pytest.mark.parametrize("images", [5, 12, 30, 50])
def test_the_capacity_that_is_asked_for_is_enough(images: int) -> None:
    def config(capacity: int) -> LearnerConfig:
        return LearnerConfig(replay_batch=1, memory=MemoryConfig(capacity=capacity, images_per_centroid=images))

    with pytest.raises(InputError, match=f"capacity 8 is too small for centroids of {images} images") as refused:
        check_config(config(8))
    least = int(str(refused.value).split()[-1])
    check_config(config(least))
    with pytest.raises(InputError):
        check_config(config(least - 1))


@pytest.mark.parametrize("name", ["osiris-r", "scale", "pcmc"])
def test_an_objective_that_a_method_would_not_use_is_refused(name: str) -> None:
    check_config(replace(CONFIG, method=name, replay_batch=8))
    with pytest.raises(InputError, match=f"method '{name}' brings its own objective"):
        check_config(replace(CONFIG, method=name, objective="vicreg", replay_batch=8))


def test_an_objective_of_another_kind_than_it_is_registered_as_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the method, which takes the configured objective."""
    monkeypatch.setattr("climb.workshop.OBJECTIVES", dict(OBJECTIVES))

    @objective("mistaken", kind=VICReg, paper="nobody", views=simclr)
    def mistaken(workshop: Workshop) -> SimCLR:
        return SimCLR(0.3)

    with pytest.raises(InputError, match=r"objective 'mistaken' is registered as a VICReg, .* makes a SimCLR"):
        check_config(replace(CONFIG, objective="mistaken", replay_batch=8))


def test_views_that_a_method_would_not_use_are_refused() -> None:
    check_config(replace(CONFIG, method="osiris-r", views="common", replay_batch=8))
    with pytest.raises(InputError, match="method 'pcmc' makes its own views"):
        check_config(replace(CONFIG, method="pcmc", views="common", replay_batch=8))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"osiris-r", "scale", "pcmc"}))
def test_every_other_method_takes_the_configured_objective(name: str) -> None:
    config = replace(CONFIG, method=name, objective="vicreg", replay_batch=8)
    check_config(config)
    assert isinstance(parts_of(config).objective, VICReg)
