"""Named methods: which parts each one picks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from climb.alignment import EmaTeacher, Relation
from climb.augment import Augment, Policy, common, simclr, simsiam
from climb.contrib.pcmc.engine import Sleep
from climb.contrib.pcmc.patches import CROPPED
from climb.contrib.released import ReferenceMemory, SwappedRefreshMemory
from climb.engine import Engine, MemoryOnly, MixUp, Parts, StreamAndReplay
from climb.errors import InputError
from climb.memory import CentroidMemory, FifoMemory, Memory, ReservoirMemory
from climb.methods import (
    METHODS,
    OBJECTIVES,
    PartFactory,
    build_parts,
    choose_method,
    choose_objective,
    climb,
    method,
    objective,
    with_replay,
)
from climb.methods.build import build_engine
from climb.methods.catalog import takes_objective
from climb.objectives import Osiris, Scale, SimCLR
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset

CONFIG = LearnerConfig(
    backbone="micro",
    image_size=16,
    temperature=0.3,
    ema_decay=0.9,
    ema_period="batch",
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=33),
)


def parts_of(config: LearnerConfig, seed: int = 0) -> Parts:
    return build_parts(PartFactory(config=config, seed=seed, device=torch.device("cpu")))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"pcmc"}))
def test_every_method_is_described_and_fills_the_sockets(name: str) -> None:
    assert METHODS[name].summary != name
    assert METHODS[name].paper
    parts = parts_of(replace(CONFIG, method=name))
    assert parts.memory is None or isinstance(parts.memory, Memory)
    assert parts.memory is None or parts.memory.capacity == 60


@pytest.mark.parametrize(
    ("name", "memory", "aligned"),
    [
        ("climb", CentroidMemory, True),
        ("cla-e", FifoMemory, True),
        ("er-fifo", FifoMemory, False),
        ("er-reservoir", ReservoirMemory, False),
    ],
)
def test_the_parts_of(name: str, memory: type, aligned: bool) -> None:
    parts = parts_of(replace(CONFIG, method=name))
    assert type(parts.memory) is memory
    assert type(parts.batch) is StreamAndReplay
    assert isinstance(parts.objective, SimCLR)
    assert parts.objective.temperature == 0.3
    assert isinstance(parts.alignment, EmaTeacher) == aligned
    if isinstance(parts.alignment, EmaTeacher):
        assert (parts.alignment.decay, parts.alignment.period) == (0.9, "batch")
        assert any(p.requires_grad for p in parts.alignment.parameters())


def test_what_there_is() -> None:
    ours = {name for name, found in METHODS.items() if found.build.__module__.startswith("climb.")}
    ablations = {"selective", "memory-only", "none", "previous-step", "fifo", "minred", "reservoir"}
    compared = "cla-e cla-r cla-b minred osiris-r scale pcmc er-fifo er-reservoir cassle-r lump finetune iid"
    assert ours == {"climb", *compared.split(), *(f"climb-{name}" for name in ablations)}


@pytest.mark.parametrize(
    ("name", "memory", "prune", "teacher"),
    [
        ("climb", "CentroidMemory", "anchor", (0.9, "step")),
        ("climb-selective", "CentroidMemory", "selective", (0.9, "step")),
        ("climb-memory-only", "CentroidMemory", "anchor", None),
        ("climb-previous-step", "CentroidMemory", "anchor", (0.0, "batch")),
        ("climb-fifo", "FifoMemory", None, (0.9, "step")),
        ("climb-minred", "MinRedMemory", None, (0.9, "step")),
        ("climb-reservoir", "ReservoirMemory", None, (0.9, "step")),
    ],
)
def test_an_ablation_is_climb_but_for_one_part(
    name: str, memory: str, prune: str | None, teacher: tuple[float, str] | None
) -> None:
    """The pages name classes, and of the previous step and of selective pruning those are CLIMB's."""
    found = parts_of(replace(CONFIG, method=name, ema_period="step"))
    assert type(found.memory).__name__ == memory
    assert getattr(found.memory, "pruning", None) == prune
    assert found.memory is not None
    assert found.memory.inserts == "after"
    aligned = found.alignment
    assert (None if aligned is None else (aligned.decay, aligned.period)) == teacher
    assert (type(found.batch), type(found.objective)) == (StreamAndReplay, SimCLR)
    assert METHODS[name].lr is METHODS[name].alignment_weight is None  # CLIMB's rates, whatever they are


def test_climb_without_a_memory_is_cla_b_at_climbs_rates() -> None:
    """To the bit, and with no memory whatever the settings of memories are."""
    noise = torch.randint(0, 256, (3, 10, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    losses = {}
    climb = replace(choose_method(CONFIG, "climb"), replay_batch=8)
    for name in ("climb-none", "cla-b"):
        engine = build_engine(
            replace(climb, method=name), mean=(0.5,) * 3, std=(0.25,) * 3, seed=0,
            device=torch.device("cpu"), precision="float32", kind="eager",
        )  # fmt: skip
        assert engine.parts.memory is None
        losses[name] = [(float(seen.objective), float(seen.alignment)) for seen in map(engine.observe, noise)]
    assert losses["climb-none"] == losses["cla-b"]
    assert all(alignment < 0 for _, alignment in losses["climb-none"])  # of stream rows: there are no others
    assert METHODS["climb-none"].lr is METHODS["climb-none"].alignment_weight is None  # CLIMB's rates


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_every_objective_goes_with_climbs_memory(objective: str) -> None:
    """Those of Osiris and SCALE too, which are of methods with other memories."""
    config = choose_objective(replace(CONFIG, replay_batch=8, stream_batch=6), objective)
    factory = PartFactory(config=config, seed=0, device=torch.device("cpu"))
    parts = with_replay(factory, factory.centroid(), None)
    assert type(parts.objective) is OBJECTIVES[objective].kind
    augment = Augment(simclr(16), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    engine = Engine(parts, augment, config, seed=0, device=torch.device("cpu"), precision="float32")
    noise = torch.randint(0, 256, (15, 6, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seen = [engine.observe(images) for images in noise]
    assert all(observation.objective.isfinite() for observation in seen)
    assert isinstance(parts.memory, CentroidMemory)
    assert 12 < len(parts.memory) <= 60
    assert sum(observation.report.joined for observation in seen) > 0  # its embeddings are told apart, and found again
    assert engine.budget.cbp > 2 * engine.budget.steps * 6  # replay was trained on


def test_which_objectives_there_are() -> None:
    ours = [name for name, found in OBJECTIVES.items() if found.make.__module__ == "climb.methods.objectives"]
    assert ours == ["simclr", "simsiam", "byol", "barlow-twins", "vicreg", "osiris", "scale"]
    assert all(OBJECTIVES[name].summary != name and OBJECTIVES[name].paper for name in ours)


@pytest.mark.parametrize(
    ("objective", "method", "views", "lr"),
    [("osiris", "osiris-r", common, 0.03), ("scale", "scale", simclr, 0.001)],
)
def test_an_objective_of_a_method_is_the_methods_own(
    objective: str, method: str, views: Callable[[int], Policy], lr: float
) -> None:
    """On its views, at a rate at which it learns with CLIMB's parts."""
    config = choose_objective(LearnerConfig(), objective)
    assert config == replace(LearnerConfig(), objective=objective, lr=lr)
    assert OBJECTIVES[objective].views is views
    ours, theirs = (
        parts_of(replace(CONFIG, objective=objective)).objective,
        parts_of(replace(CONFIG, method=method)).objective,
    )
    assert type(ours) is type(theirs)
    plain = ("temperature", "positives")
    assert [getattr(ours, name, None) for name in plain] == [getattr(theirs, name, None) for name in plain]
    assert all(torch.equal(*both) for both in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "../up"}, r"a method cannot be called '../up'; use letters"),
        ({"name": 5}, "a method cannot be called 5"),
        ({"paper": None}, "method 'mine' has paper=None; say in words"),
        ({"paper": " "}, "method 'mine' has paper=' '"),
        ({"lr": "0.1"}, "the learning rate '0.1'; it must be above 0 and a number"),
        ({"lr": float("nan")}, "the learning rate nan"),
        ({"lr": float("inf")}, "the learning rate inf"),
        ({"alignment_weight": -1}, "the alignment weight -1; it must be at least 0"),
        ({"views": simclr}, "has views=<function simclr .*Allowed, by name: objective, simclr, simsiam, common"),
    ],
)
def test_what_cannot_be_listed_is_not_registered(given: dict[str, Any], said: str) -> None:
    """`climb methods` would break off at it, for everybody."""
    before = dict(METHODS)
    with pytest.raises(InputError, match=said):
        method(**{"name": "mine", "paper": "me"} | given)
    assert before == METHODS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": SimCLR()}, r"objective 'mine' has kind=SimCLR\(\); it must be its class"),
        ({"kind": nn.Module}, "it must be its class, derived from Objective"),
        ({"views": "simclr"}, "objective 'mine' has views='simclr'; it must be a function"),
        ({"lr": "0.1"}, "objective 'mine' has the learning rate '0.1'"),
        ({"paper": None}, "objective 'mine' has paper=None"),
    ],
)
def test_nor_is_such_an_objective(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        objective(**{"name": "mine", "kind": SimCLR, "paper": "me", "views": simclr} | given)


def unbounded_in_words() -> FifoMemory:
    memory = FifoMemory(60, (3, 16, 16), 128)
    memory.inserts = "afterwards"  # type: ignore[assignment,misc]
    return memory


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network": nn.Identity()}, "has Identity as its network; it must be a Network"),
        ({"memory": FifoMemory}, "has the class FifoMemory, not an instance, as its memory"),
        ({"memory": {}}, "has dict as its memory; .* It lacks capacity, nbytes"),
        (
            {"memory": unbounded_in_words()},
            r"FifoMemory.inserts is 'afterwards' \(method 'mine'\). Allowed: 'after', 'be",
        ),
        ({"batch": StreamAndReplay}, "the class StreamAndReplay, not an instance, as its batch"),
        ({"objective": "simclr"}, "has str as its objective; it must be an Objective"),
        ({"alignment": nn.Identity()}, "has Identity as its alignment; it must be an Alignment"),
        (
            {"batch": MemoryOnly(), "objective": Scale()},
            "Scale learns the present .* 'mine' trains on its memory alone",
        ),
        ({"memory": None, "objective": Osiris(nn.Identity())}, "Osiris learns from stored images, method 'mine'"),
        ({"memory": None}, "EmaTeacher aligns stored images, method 'mine' trains on no stored image as it is"),
    ],
)
def test_parts_that_do_not_fit_are_refused_before_any_work(
    changes: dict[str, Any], said: str, registries: None
) -> None:

    @method("mine", paper="me")
    def mine(w: PartFactory) -> Parts:
        return replace(climb(w), **changes)

    with pytest.raises(InputError, match=said):
        parts_of(replace(CONFIG, method="mine"))


def test_a_memory_for_more_images_than_are_allowed_is_refused(registries: None) -> None:
    """Than the run allows: what a method is made of can be looked at whatever its memory's size."""

    @method("mine", paper="me")
    def mine(w: PartFactory) -> Parts:
        return replace(climb(w), memory=FifoMemory(100, (3, 16, 16), 128))

    def built(capacity: int) -> Engine:
        memory = MemoryConfig(capacity=capacity)
        config = replace(CONFIG, method="mine", replay_batch=8, memory=memory, objective="vicreg")
        place = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": "eager"}
        return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]

    assert built(100).parts.memory is not None
    with pytest.raises(InputError, match="method 'mine' has a memory for 100 images where 99 are allowed"):
        built(99)


def test_views_and_objectives_that_are_none_are_told(registries: None) -> None:
    place = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": "eager"}

    @objective("sightless", kind=SimCLR, paper="me", views=lambda side: None)
    def sightless(w: PartFactory) -> SimCLR:
        return SimCLR()

    @objective("forgotten", kind=SimCLR, paper="me", views=simclr)
    def forgotten(w: PartFactory) -> SimCLR:
        """Has no return."""

    for name, said in (
        ("sightless", "must give a Policy"),
        ("forgotten", "makes a NoneType; it must return an Objective"),
    ):
        config = replace(CONFIG, objective=name, replay_batch=8)
        with pytest.raises(InputError, match=said):
            build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]


def test_a_method_that_is_not_installed_counts_as_taking_the_configured_objective() -> None:
    assert takes_objective("no-longer-installed")


@pytest.mark.parametrize(
    ("declared", "made"),
    [
        ({"memory": ReservoirMemory}, "memory=ReservoirMemory, but its function makes FifoMemory"),
        ({"memory": None}, "memory=None, but its function makes FifoMemory"),
        ({"batch": MixUp}, "batch=MixUp, but its function makes StreamAndReplay"),
        ({"objective": Scale}, "objective=Scale, but its function makes SimCLR"),
        ({"alignment": EmaTeacher}, "alignment=EmaTeacher, but its function makes NoneType"),
    ],
)
def test_parts_must_be_those_that_the_method_declares(declared: dict[str, Any], made: str, registries: None) -> None:
    method("declared", paper="me", **declared)(METHODS["er-fifo"].build)
    with pytest.raises(InputError, match=f"method 'declared' declares {made}"):
        parts_of(replace(CONFIG, method="declared"))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"pcmc"}))
@pytest.mark.parametrize("fault", ["memory_faults", "swapped_refresh"])
def test_every_method_declares_its_parts(name: str, fault: str) -> None:
    parts_of(replace(CONFIG, method=name, **{fault: True}))  # build_parts compares


def test_sockets_are_declared_by_classes(registries: None) -> None:
    with pytest.raises(InputError, match="method 'mine' declares memory='fifo'; it must be a class or None"):
        method("mine", paper="me", memory="fifo")
    with pytest.raises(InputError, match="method 'mine' declares objective=None; it must be a class or 'configured'"):
        method("mine", paper="me", objective=None)


def test_the_old_name_of_a_custom_engine_warns(registries: None) -> None:
    with pytest.warns(DeprecationWarning, match="custom_engine"):
        method("old", paper="me", own_loop=True)(METHODS["pcmc"].build)
    assert METHODS["old"].custom_engine
    with pytest.warns(DeprecationWarning, match="custom_engine"):
        assert METHODS["old"].own_loop


def test_importing_the_methods_imports_no_contributed_part() -> None:
    code = "import sys, climb.methods; print([name for name in sys.modules if name.startswith('climb.contrib')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_method_that_brings_its_own_objective_does_not_take_the_configured_one() -> None:
    takes = {name for name in METHODS if takes_objective(name)}
    assert METHODS.keys() - takes == {"osiris-r", "scale", "pcmc"}


def test_rates_that_are_climbs_go_by_the_size_of_images() -> None:
    for name in ("cla-e", "cassle-r", "climb"):
        for side, rate in ((32, 0.3), (224, 0.1)):
            assert choose_method(apply_preset(LearnerConfig(image_size=side), "paper"), name).lr == rate


def test_scale_has_the_numbers_of_its_paper() -> None:
    parts = parts_of(LearnerConfig(method="scale", memory=CONFIG.memory))
    assert isinstance(parts.objective, Scale)
    assert (parts.objective.temperature, parts.objective.positives) == (0.1, 0.1)
    assert isinstance(parts.alignment, Relation)
    assert (parts.alignment.power, parts.alignment.past_temperature, parts.alignment.temperature) == (0.15, 0.01, 0.1)
    layers = [module for module in parts.network.projector.modules() if isinstance(module, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(512, 512), (512, 128)]


def test_objectives_have_the_numbers_and_views_of_their_papers() -> None:
    def made(name: str) -> Any:
        return parts_of(replace(CONFIG, objective=name)).objective

    assert made("osiris").temperature == 0.1
    assert made("byol").decay == 0.99
    assert (made("barlow-twins").off_diagonal, made("barlow-twins").scale) == (0.005, 0.1)
    vicreg = made("vicreg")
    assert (vicreg.invariance, vicreg.variance, vicreg.covariance) == (25.0, 25.0, 1.0)
    views = {
        name: found.views for name, found in OBJECTIVES.items() if found.make.__module__ == "climb.methods.objectives"
    }
    assert views == {
        **dict.fromkeys(("simclr", "scale"), simclr),
        **dict.fromkeys(("byol", "barlow-twins", "vicreg", "osiris"), common),
        "simsiam": simsiam,
    }


def test_pcmc_has_the_numbers_of_its_code() -> None:
    place = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "seed": 0, "device": torch.device("cpu")}
    config = choose_method(LearnerConfig(backbone="micro"), "pcmc")
    engine = METHODS["pcmc"].build(config, **place, precision="float32", kind="eager")
    assert engine.sleep == Sleep(every=2000, epochs=200, batch=512, lr=0.6)
    memory = engine.parts.memory
    assert memory.capacity == 400 * 30  # of the short-term memory
    assert memory.image_shape == (3, 60, 60)
    assert replace(CROPPED, crop_scale=(1.0, 1.0)) == Policy(
        crop_scale=(1.0, 1.0), flip=0.0, brightness=0.6, contrast=0.6, saturation=0.6, hue=0.2, blur=0.2, blur_kernel=5
    )
    assert CROPPED.crop_scale == (0.3, 1.0)


def test_embeddings_that_memories_keep_follow_by_half() -> None:
    """MinRed's, which are unit vectors, and CLA-R's, which are as they come."""
    for name, expected in (("minred", 0.5**0.5), ("cla-r", 0.5)):
        memory = parts_of(replace(CONFIG, method=name)).memory
        assert memory is not None
        first, second = torch.eye(2, 128).unsqueeze(1)
        memory.insert(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), first)
        memory.refresh(torch.tensor([0]), second)
        kept = memory.sample(1)
        assert kept is not None
        assert kept.embeddings is not None
        torch.testing.assert_close(kept.embeddings, expected * (first + second))


def test_the_reference_has_the_faulty_memory_and_a_frozen_aligner() -> None:
    parts = parts_of(replace(CONFIG, memory_faults=True, train_aligner=False))
    assert type(parts.memory) is ReferenceMemory
    assert parts.alignment is not None
    assert not any(p.requires_grad for p in parts.alignment.parameters())


def test_one_fault_of_the_memory_can_be_had_alone() -> None:
    assert type(parts_of(replace(CONFIG, swapped_refresh=True)).memory) is SwappedRefreshMemory
    assert type(parts_of(replace(CONFIG, swapped_refresh=True, memory_faults=True)).memory) is ReferenceMemory


def test_the_aligner_is_drawn_from_the_seed() -> None:
    first, again, other = (parts_of(CONFIG, seed).alignment for seed in (1, 1, 2))
    assert isinstance(first, EmaTeacher)
    assert isinstance(again, EmaTeacher)
    assert isinstance(other, EmaTeacher)
    weights = [next(alignment.aligner.parameters()) for alignment in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_method_brings_the_views_it_is_trained_on() -> None:
    """In the configuration, so that runs with other views have another identity."""
    assert choose_method(LearnerConfig(), "osiris-r").views == "common"
    assert choose_method(LearnerConfig(), "climb").views == LearnerConfig.views
    assert choose_method(replace(LearnerConfig(), views="simsiam"), "climb").views == "simsiam"


def test_a_name_is_given_once(registries: None) -> None:
    """Which of two methods a name meant would depend on what was imported first."""
    before = METHODS["er-fifo"]
    with pytest.raises(InputError, match=r"there is a method 'er-fifo' already \(climb\.methods\.named\.er_fifo\)"):

        @method("er-fifo", paper="somebody else")
        def theirs(factory: PartFactory) -> Parts:
            raise NotImplementedError

    assert METHODS["er-fifo"] is before
    method("er-fifo", paper=before.paper, lr=0.2)(before.build)  # its module is imported again
    assert METHODS["er-fifo"].lr == 0.2


def test_a_name_of_an_objective_is_given_once() -> None:
    """Also where the class is ours: the rates or the temperature could be others."""
    before = OBJECTIVES["simclr"]
    with pytest.raises(
        InputError,
        match=r"there is an objective 'simclr' already \(climb\.methods\.objectives\.simclr\); give .*theirs",
    ):

        @objective("simclr", kind=SimCLR, paper="somebody else", views=simclr)
        def theirs(factory: PartFactory) -> SimCLR:
            raise NotImplementedError

    assert OBJECTIVES["simclr"] is before
    objective("simclr", kind=before.kind, paper=before.paper, views=before.views)(before.make)  # imported again
    assert OBJECTIVES["simclr"] == before


def test_a_loop_of_its_own_has_no_views_of_ours() -> None:
    with pytest.raises(InputError, match="leave views out"):
        method("own-loop", paper="nobody", views="common", custom_engine=True)
    assert "own-loop" not in METHODS


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="unknown method 'cla_e'; did you mean 'cla-e'"):
        parts_of(replace(CONFIG, method="cla_e"))


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_no_objective_is_thrown_far_by_its_first_small_batches(objective: str) -> None:
    """Barlow Twins and VICReg at SimCLR's rate end in weights twenty times as large, or none."""
    sizes = MemoryConfig(capacity=60, images_per_centroid=6)
    config = LearnerConfig(backbone="micro", image_size=16, replay_batch=16, memory=sizes)
    config = choose_objective(apply_preset(config, "paper"), objective)
    place: Any = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": "eager"}
    engine = build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]
    weights = parameters_to_vector(engine.parts.network.parameters()).norm().item()
    noise = torch.randint(0, 256, (12, 10, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for images in noise:
        engine.observe(images)
    assert parameters_to_vector(engine.parts.network.parameters()).norm().item() < 2.5 * weights
