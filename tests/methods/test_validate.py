"""Impossible configurations, and settings without effect, are refused before any work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from climb.augment import satellite, simclr, views
from climb.engine import Parts, StreamAndReplay
from climb.errors import InputError
from climb.methods import (
    METHODS,
    OBJECTIVES,
    PartFactory,
    build_parts,
    climb,
    method,
    objective,
    with_replay,
)
from climb.methods.catalog import parts_of, takes_objective
from climb.methods.validate import check_config, faults_of, refuse_equal, refuse_unused
from climb.objectives import SimCLR, VICReg
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import FAULTS

CONFIG = LearnerConfig(
    backbone="micro",
    image_size=16,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=33),
)
WITH_CENTROIDS = {"climb", "climb-selective", "climb-memory-only", "climb-previous-step"}


def built(config: LearnerConfig) -> Parts:
    return build_parts(PartFactory(config=config, seed=0, device=torch.device("cpu")))


@pytest.mark.parametrize("objective", ["osiris", "scale"])
def test_an_objective_of_the_present_is_refused_where_only_the_memory_is_trained_on(objective: str) -> None:
    check_config(replace(CONFIG, method="er-fifo", objective=objective, replay_batch=8))
    with pytest.raises(
        InputError, match=f"objective '{objective}' learns .* method 'minred' trains on its memory alone"
    ):
        check_config(replace(CONFIG, method="minred", objective=objective, replay_batch=8))


@pytest.mark.parametrize("name", ["finetune", "iid", "cla-b", "climb-none", "lump"])
def test_an_objective_of_past_and_present_is_refused_where_no_stored_image_is_trained_on(name: str) -> None:
    """Its second head would get no gradient."""
    check_config(replace(CONFIG, method=name, objective="vicreg", replay_batch=8))
    with pytest.raises(
        InputError, match=f"method '{name}' trains on no stored image as it is; give another --objective"
    ):
        check_config(replace(CONFIG, method=name, objective="osiris", replay_batch=8))


@pytest.mark.usefixtures("registries")
def test_views_are_those_of_the_objective_or_a_registered_policy() -> None:
    for name in ("objective", "simclr", "satellite", "microscope"):
        check_config(replace(CONFIG, views=name, replay_batch=8))
    with pytest.raises(
        InputError, match=r"unknown augmentation policy 'satelite'; did you mean 'satellite'\? Allowed: "
    ):
        check_config(replace(CONFIG, views="satelite", replay_batch=8))
    views("drone")(satellite)
    check_config(replace(CONFIG, views="drone", replay_batch=8))


def test_impossible_settings_are_refused_before_any_work() -> None:
    check_config(replace(CONFIG, backbone="vit-tiny", image_size=48, replay_batch=8))
    with pytest.raises(InputError, match=r"image_size is 36; vit-tiny .* a multiple of 8: 32 or 40"):
        check_config(replace(CONFIG, backbone="vit-tiny", image_size=36, replay_batch=8))
    with pytest.raises(InputError, match="method 'downhill' has the learning rate -3; it must be above 0"):
        method("downhill", paper="nobody", lr=-3)


def test_somebody_elses_batches_say_that_they_hold_no_stream_image(registries: None) -> None:

    class Past(StreamAndReplay):
        has_stream_rows = False

    @method("past", paper="nobody", batch=Past, objective="configured")
    def past(w: PartFactory) -> Parts:
        return replace(with_replay(w, w.fifo(), None), batch=Past())

    check_config(replace(CONFIG, method="past", objective="vicreg", replay_batch=8))
    with pytest.raises(InputError, match="method 'past' trains on its memory alone"):
        check_config(replace(CONFIG, method="past", objective="scale", replay_batch=8))


@pytest.mark.parametrize("objective", ["simclr", "vicreg", "osiris"])
def test_a_method_brings_an_objective_by_its_name(objective: str, registries: None) -> None:
    """With the projector that the objective asks for; so a bench can compare it."""

    @method("climb-with", paper="nobody", objective=OBJECTIVES[objective].kind, lr=0.01, views="common")
    def climb_with(w: PartFactory) -> Parts:
        return climb(w.with_objective(objective))

    brought, configured = built(replace(CONFIG, method="climb-with")), built(replace(CONFIG, objective=objective))
    assert type(brought.objective) is OBJECTIVES[objective].kind
    assert str(brought.network) == str(configured.network)
    check_config(replace(CONFIG, method="climb-with", replay_batch=8))
    with pytest.raises(InputError, match="brings its own objective"):
        check_config(replace(CONFIG, method="climb-with", objective="byol", replay_batch=8))
    method("undeclared", paper="nobody")(lambda w: climb(w.with_objective(objective)))
    with pytest.raises(InputError, match="method 'undeclared' brings its own objective"):
        built(replace(CONFIG, method="undeclared", objective="byol"))


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
        ({"ltm_centroids": 0}, "ltm_centroids >= 1; given 100 and 0"),  # not the capacity, which has room for many
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


def test_an_objective_of_another_kind_than_it_is_registered_as_is_named(registries: None) -> None:
    """It is no fault of the method, which takes the configured objective."""

    @objective("mistaken", kind=VICReg, paper="nobody", views=simclr)
    def mistaken(factory: PartFactory) -> SimCLR:
        return SimCLR(0.3)

    with pytest.raises(InputError, match=r"objective 'mistaken' is registered as a VICReg, .* makes a SimCLR"):
        built(replace(CONFIG, objective="mistaken"))


def test_views_that_a_method_would_not_use_are_refused() -> None:
    check_config(replace(CONFIG, method="osiris-r", views="common", replay_batch=8))
    with pytest.raises(InputError, match="method 'pcmc' makes its own views"):
        check_config(replace(CONFIG, method="pcmc", views="common", replay_batch=8))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"osiris-r", "scale", "pcmc"}))
def test_every_other_method_takes_the_configured_objective(name: str) -> None:
    config = replace(CONFIG, method=name, objective="vicreg", replay_batch=8)
    check_config(config)
    assert isinstance(built(config).objective, VICReg)


# -- settings without effect ------------------------------------------------------------------------------------------

USED_BY = {
    "batch-views": METHODS.keys() - {"pcmc"},
    # The released code trains the aligners of CLA.
    "frozen-aligner": {"climb-fifo", "climb-minred", "climb-none", "climb-reservoir"}
    | WITH_CENTROIDS - {"climb-memory-only"},
    "swapped-refresh": WITH_CENTROIDS,
    # Memories that are given embeddings.
    "train-embedding": {"climb-minred", "cla-r", "minred"} | WITH_CENTROIDS,
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_faults_are_refused_where_they_change_nothing(method: str) -> None:
    assert USED_BY.keys() == FAULTS.keys()
    used = [fault for fault in FAULTS if method in USED_BY[fault]]
    assert list(faults_of(method)) == used
    refuse_unused(method, faults=used)
    for fault in FAULTS.keys() - set(used):
        with pytest.raises(InputError, match=f"fault '{fault}' changes nothing in method '{method}'"):
            refuse_unused(method, faults=[*used, fault])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_one_method_prunes_in_its_own_way_and_most_do_not(method: str) -> None:
    assert METHODS[method].depends_on("prune") == (method in WITH_CENTROIDS - {"climb-selective"})


@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_a_way_of_pruning_is_refused_where_it_changes_nothing(prune: str) -> None:
    refuse_unused("climb", prune=prune)
    for name in ("er-fifo", "climb-selective"):
        refuse_unused(name)
        with pytest.raises(InputError, match=f"prune '{prune}' changes nothing in method '{name}'"):
            refuse_unused(name, prune=prune)


def test_methods_of_others_are_known_by_what_they_are_made_of() -> None:
    with METHODS.scoped(theirs=METHODS["climb-memory-only"]):
        assert faults_of("theirs") == ("batch-views", "swapped-refresh", "train-embedding")
        assert METHODS["theirs"].depends_on("prune")


def test_a_method_that_declares_nothing_is_refused_nothing(registries: None) -> None:
    @method("undeclared", paper="nobody")
    def undeclared(w: PartFactory) -> Parts:
        return climb(w)

    learner = LearnerConfig(method="undeclared", objective="scale", memory=MemoryConfig(capacity=256, ltm_centroids=90))
    check_config(learner)
    refuse_unused("undeclared", faults=FAULTS, prune="selective")
    refuse_equal(learner, VALUES)
    assert takes_objective("undeclared")
    assert parts_of("undeclared") == dict.fromkeys(("memory", "batch", "objective", "alignment"), "unknown")


# -- settings to tune -------------------------------------------------------------------------------------------------

OF_CENTROIDS = {
    "stm_centroids": (50, 100),
    "ltm_centroids": (30, 60),
    "images_per_centroid": (20, 30),
    "window": (500, 1000),
    "novelty_percentile": (0.9, 0.95),
    "stm_rate": (0.1, 0.2),
    "ltm_accept": (0.5, 0.7),
}
WITHOUT_MEMORY = {"cla-b", "climb-none", "finetune", "iid"}
WITH_TEACHER = {"climb", "climb-selective", "climb-fifo", "climb-minred", "climb-none", "climb-reservoir"}
WITH_TEACHER |= {"cla-e", "cla-b"}
ALIGNED = WITH_TEACHER | {"climb-previous-step", "cla-r", "cassle-r", "scale"}
TUNABLE = {
    **dict.fromkeys(OF_CENTROIDS, WITH_CENTROIDS),
    "capacity": METHODS.keys() - WITHOUT_MEMORY,
    "ema_decay": WITH_TEACHER,
    "alignment_weight": ALIGNED,
    "temperature": METHODS.keys() - {"osiris-r", "scale"},
    "lr": METHODS.keys(),
    **{field: USED_BY[fault] for fault, fields in FAULTS.items() for field in fields},
}
VALUES = {**OF_CENTROIDS, "capacity": (60, 90), "ema_decay": (0.9, 0.99), "alignment_weight": (1.0, 2.0)}
VALUES |= {"temperature": (0.1, 0.5), "lr": (0.1, 0.3), "embed_mode": ("eval", "views")}
VALUES |= dict.fromkeys(("augment_per_batch", "train_aligner", "swapped_refresh"), (False, True))


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"pcmc"}))
def test_what_a_method_does_not_look_at_is_not_tuned(method: str) -> None:
    learner = LearnerConfig(method=method, memory=MemoryConfig(capacity=3000))
    for setting, users in TUNABLE.items():
        refuse_equal(learner, {setting: VALUES[setting][:1]})  # one value: there is nothing to rank
        if method in users:
            refuse_equal(learner, {setting: VALUES[setting]})
        else:
            with pytest.raises(InputError, match=f"{setting} changes nothing in method '{method}'"):
                refuse_equal(learner, {setting: VALUES[setting]})


def test_what_an_objective_does_not_look_at_is_not_tuned_with_it() -> None:
    with pytest.raises(InputError, match="temperature changes nothing in method 'climb'"):
        refuse_equal(LearnerConfig(objective="simsiam"), {"temperature": (0.1, 0.5)})


def test_a_loop_of_its_own_may_look_at_anything() -> None:
    refuse_equal(LearnerConfig(method="pcmc"), {"ema_decay": (0.9, 0.99), "alignment_weight": (1.0, 2.0)})
