"""`Climb`, the estimator: scikit-learn's habits, any images, and no surprise after saving."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from climb import Climb
from climb.augment import Policy, common, simclr, simsiam
from climb.engine import Engine
from climb.errors import ClimbError, InputError
from climb.memory import CentroidMemory
from climb.methods import METHODS
from climb.methods.build import build_engine
from climb.nets import SavedEncoder, build_network, save_encoder
from climb.pixels import as_images
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.fields import settings_of
from climb.state import save_tree

SMALL: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "device": "cpu"}


def images(n: int, seed: int = 0, side: int = 16) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def learned(n: int = 40, **changes: Any) -> Climb:
    return Climb(**{**SMALL, **changes}).partial_fit(images(n))


# -- parameters --------------------------------------------------------------------------------------------------------


def test_the_constructor_has_the_settings_of_learner_and_memory() -> None:
    parameters = inspect.signature(Climb).parameters
    by_position = {name: p.default for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert by_position == {
        "method": "climb",
        "preset": None,
        "capacity": 2500,
        "backbone": "auto",
        "image_size": None,
        "stream_batch": 10,
        "replay_batch": 128,
        "passes": 3,
        "lr": None,
        "alignment_weight": None,
        "seed": 0,
        "device": "auto",
        "objective": None,
    }
    assert list(by_position) == list(parameters)[: len(by_position)]
    declared = {**settings_of(LearnerConfig), **settings_of(MemoryConfig)}
    execution = {"device", "precision", "engine"}
    assert parameters.keys() == {name for name, each in declared.items() if each.has_option} | {"seed"} | execution
    assert all(p.default is None for name, p in parameters.items() if name not in {*by_position, *execution})
    assert all(f"\n    {name}: " in (Climb.__doc__ or "") for name in parameters)
    with pytest.raises(TypeError, match="unexpected keyword argument 'learning_rate'"):
        Climb(learning_rate=1)


def test_any_setting_reaches_the_engine() -> None:
    config = learned(
        temperature=0.2, images_per_centroid=5, stm_centroids=7, prune="selective", views="common"
    ).engine_.config
    memory = config.memory
    assert (config.temperature, config.views) == (0.2, "common")
    assert (memory.images_per_centroid, memory.short_term, memory.long_term, memory.prune) == (5, 7, 1, "selective")
    with pytest.raises(InputError, match="prune 'anchor' changes nothing in method 'er-fifo'"):
        learned(method="er-fifo", prune="anchor")


def test_an_objective_comes_with_its_rates_unless_others_are_given() -> None:
    config = learned(objective="simsiam").engine_.config
    assert (config.objective, config.lr, config.alignment_weight) == ("simsiam", 0.2, 0.1)
    assert learned(objective="simsiam", lr=0.05).engine_.config.lr == 0.05
    with pytest.raises(InputError, match=r"unknown objective 'moco'. Allowed: .*simsiam"):
        learned(objective="moco")


def test_the_constructor_only_stores_its_arguments() -> None:
    given = {name: object() for name in inspect.signature(Climb).parameters}
    model = Climb(**given)  # type: ignore[arg-type]
    assert vars(model) == given
    assert model.get_params() == given


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = learned(seed=3)
    assert model.set_params(lr=0.05, passes=1) is model
    copy = clone(model)
    assert (
        copy.get_params() == model.get_params() == {**Climb(**SMALL).get_params(), "seed": 3, "lr": 0.05, "passes": 1}
    )
    assert not hasattr(copy, "engine_")
    assert repr(Climb(capacity=60, method="cla-e")) == "Climb(method='cla-e', capacity=60)"
    with pytest.raises(InputError, match="unknown parameter of Climb 'learning_rate'"):
        model.set_params(learning_rate=1)


def test_arguments_reach_the_engine() -> None:
    model = learned(method="cla-e", preset="paper", stream_batch=5, passes=2, lr=0.07, alignment_weight=0.9, seed=4)
    config = model.engine_.config
    assert isinstance(config, LearnerConfig)
    assert (config.method, config.preset, config.stream_batch, config.passes) == ("cla-e", "paper", 5, 2)
    assert (config.lr, config.alignment_weight, config.ema_period) == (0.07, 0.9, "batch")
    assert model.engine_.budget.batches == 8
    assert model.engine_.budget.steps == 16


@pytest.mark.parametrize(("capacity", "long_term", "short_term"), [(60, 1, 2), (500, 12, 20), (2500, 60, 100)])
def test_centroids_scale_with_capacity(capacity: int, long_term: int, short_term: int) -> None:
    memory = learned(10, capacity=capacity).memory_
    assert isinstance(memory, CentroidMemory)
    assert memory.capacity == capacity
    assert memory.state_dict()["values"].shape[0] == long_term + short_term


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x,
        lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
        lambda x: x.transpose(0, 3, 1, 2),  # a view
        lambda x: torch.from_numpy(x),
        lambda x: torch.from_numpy(x).permute(0, 3, 1, 2),
    ],
    ids=["numpy HWC", "numpy CHW", "numpy view", "torch HWC", "torch CHW"],
)
def test_every_layout_gives_the_same_model(given: Callable[[Any], Any]) -> None:
    batch = images(25)
    expected = Climb(**SMALL).partial_fit(batch).transform(batch)
    assert np.array_equal(Climb(**SMALL).partial_fit(given(batch)).transform(given(batch)), expected)


@pytest.mark.parametrize("n", [1, 3, 10, 11, 25])
def test_any_number_of_images(n: int) -> None:
    model = Climb(**SMALL)
    assert model.partial_fit(images(n)) is model
    assert model.engine_.budget.images == n
    assert model.engine_.budget.batches == -(-n // 10)
    features = model.transform(images(n))
    assert features.shape == (n, 128)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_no_image_at_all_is_refused() -> None:
    for act in (Climb(**SMALL).partial_fit, learned().transform):
        with pytest.raises(InputError, match=r"no image was given: the shape is \(0, 16, 16, 3\)"):
            act(images(0))


def test_labels_are_ignored() -> None:
    batch = images(20)
    with_labels = Climb(**SMALL).partial_fit(batch, np.arange(20)).transform(batch)
    assert np.array_equal(with_labels, Climb(**SMALL).partial_fit(batch, y="nonsense").transform(batch))


def test_no_label_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    observe, given = Engine.observe, []

    def watched(self: Engine, *arguments: Any, **named: Any) -> Any:
        given.append((len(arguments), named, arguments[0].dtype))
        return observe(self, *arguments, **named)

    monkeypatch.setattr(Engine, "observe", watched)
    Climb(**SMALL).partial_fit(images(20), np.arange(20))
    assert given == [(1, {}, torch.uint8)] * 2


def test_the_callers_images_are_left_as_they_were() -> None:
    batch = images(20)
    kept = batch.copy()
    Climb(**SMALL).partial_fit(batch).transform(batch)
    assert np.array_equal(batch, kept)


def test_many_calls_are_one_stream() -> None:
    batch = images(40)
    model = Climb(**SMALL)
    for part in np.split(batch, 4):
        model.partial_fit(part)
    assert np.array_equal(model.transform(batch), learned(40).transform(batch))


def test_other_sizes_are_resized() -> None:
    model = Climb(**SMALL, image_size=16).partial_fit(images(10, side=24))
    assert model.transform(images(4, side=40)).shape == (4, 128)
    assert model.engine_.config.image_size == 16
    wide = np.zeros((5, 20, 30, 3), dtype=np.uint8)
    assert model.partial_fit(wide).transform(wide).shape == (5, 128)
    plain = torch.full((1, 3, 40, 40), 200, dtype=torch.uint8)
    same = torch.full((1, 3, 16, 16), 200, dtype=torch.uint8)
    assert np.array_equal(model.transform(plain), model.transform(same))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((4, 16, 16, 3), dtype=np.float32), "images must be uint8, values 0 to 255; given float32"),
        (torch.zeros(4, 3, 16, 16), "images must be uint8"),
        (np.zeros((4, 16, 16), dtype=np.uint8), r"shape \(n, H, W, 3\) or \(n, 3, H, W\); given \(4, 16, 16\)"),
        (np.zeros((4, 1, 16, 16), dtype=np.uint8), r"given \(4, 1, 16, 16\)"),
        ([[1, 2], [3, 4]], "given list"),
        ("images/", "given str"),
        (np.zeros((4, 16, 20, 3), dtype=np.uint8), "images of 16 x 20 pixels are not square; give image_size"),
    ],
)
def test_images_that_cannot_be_used(given: Any, message: str) -> None:
    model = Climb(**SMALL)
    with pytest.raises(InputError, match=message):
        model.partial_fit(given)
    assert not hasattr(model, "engine_")


def test_an_ambiguous_shape_is_read_with_channels_first() -> None:
    both = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 3), dtype=np.uint8)
    assert torch.equal(as_images(both), torch.from_numpy(both))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "clim"}, "unknown method 'clim'; did you mean 'climb'"),
        ({"preset": "papper"}, "unknown preset 'papper'; did you mean 'paper'"),
        ({"backbone": "resnet19"}, "unknown backbone 'resnet19'; did you mean 'resnet18'"),
        ({"device": "gpu"}, "unknown device 'gpu'. Allowed"),
        ({"replay_batch": 31}, "replay_batch must be at most half of capacity: 31 > 60 / 2"),
        ({"passes": 0}, "passes must be at least 1; given 0"),
        ({"stream_batch": 0}, "stream_batch must be at least 1; given 0"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"lr": "0.1"}, "lr must be a number; given '0.1'"),
        ({"stream_batch": True}, "stream_batch must be a whole number; given True"),
        ({"image_size": "32"}, "image_size must be a whole number; given '32'"),
        ({"image_size": 32.0}, r"image_size must be a whole number; given 32\.0"),
        ({"capacity": 20, "replay_batch": 8}, "capacity 20 is too small for centroids of 30 images; give at least 31"),
    ],
)
def test_arguments_that_cannot_be_used(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        learned(**changes)


@pytest.mark.parametrize("method", ["er-fifo", "er-reservoir", "cla-r", "minred", "scale"])
def test_a_memory_of_a_few_images_is_learned_with(method: str) -> None:
    memory = learned(method=method, capacity=5, replay_batch=2).memory_
    assert memory is not None
    assert len(memory) == 5


def test_asking_before_learning() -> None:
    model = Climb()
    for ask in (lambda: model.transform(images(2)), lambda: model.memory_, lambda: model.encoder_):
        with pytest.raises(InputError, match=r"has not learned yet; call partial_fit\(images\) first"):
            ask()


def test_what_fit_refuses_makes_it_forget_nothing() -> None:
    model = learned()
    with pytest.raises(InputError, match="images must be uint8"):
        model.fit(images(2).astype(np.float32))  # type: ignore[arg-type]
    assert model.transform(images(2)).shape == (2, 128)


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_transform_is_in_eval_mode_and_changes_nothing(preset: str) -> None:
    model = learned(preset=preset)
    batch = images(20, 7)
    before = {name: value.clone() for name, value in model.encoder_.state_dict().items()}
    together = model.transform(batch)
    alone = np.concatenate([model.transform(batch[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, together, rtol=1e-3, atol=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.encoder_.state_dict().items())
    assert model.encoder_.training


def test_the_preset_chooses_student_or_teacher() -> None:
    model = learned()
    alignment = model.engine_.parts.alignment
    assert alignment is not None
    assert model.encoder_ is alignment.teacher.encoder  # type: ignore[union-attr]
    assert learned(method="er-fifo").encoder_ is not None
    model = learned(preset="paper")
    assert model.encoder_ is model.engine_.parts.network.encoder


def test_a_method_that_must_be_told_of_boundaries_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    Climb(**SMALL).partial_fit(images(20))
    assert not caplog.records
    Climb(**{**SMALL, "method": "cassle-r"}).partial_fit(images(20)).partial_fit(images(20))
    assert [record.message.split(":")[0] for record in caplog.records] == ["'cassle-r' must be told where tasks end"]


def test_fit_transform_learns_then_transforms() -> None:
    batch = images(20)
    assert np.array_equal(Climb(**SMALL).fit_transform(batch), Climb(**SMALL).partial_fit(batch).transform(batch))


def test_fit_starts_anew_and_takes_new_parameters() -> None:
    first, second = images(20), images(20, seed=5)
    model = Climb(**SMALL).fit(first).set_params(passes=2).fit(second)
    fresh = {**SMALL, "passes": 2}
    assert np.array_equal(model.transform(second), Climb(**fresh).partial_fit(second).transform(second))
    assert np.array_equal(model.fit_transform(first), Climb(**fresh).fit_transform(first))


def test_features_depend_on_the_seed_and_nothing_else() -> None:
    batch = images(20)
    first = Climb(**SMALL, seed=1).fit_transform(batch)
    torch.manual_seed(99)
    assert np.array_equal(Climb(**SMALL, seed=1).fit_transform(batch), first)
    assert not np.array_equal(Climb(**SMALL, seed=2).fit_transform(batch), first)


@pytest.mark.parametrize(
    ("objective", "views", "expected"),
    [("simclr", "objective", simclr), ("barlow-twins", "objective", common), ("simclr", "simsiam", simsiam)],
)
def test_views_are_those_of_the_objective_or_those_asked_for(
    objective: str, views: Any, expected: Callable[[int], Policy]
) -> None:
    config = LearnerConfig(backbone="micro", image_size=16, objective=objective, views=views)
    cpu = torch.device("cpu")
    one = (0.5, 0.5, 0.5)
    engine = build_engine(config, mean=one, std=one, seed=0, device=cpu, precision="float32", kind="eager")
    assert engine.augment.policy == expected(16)


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_numbers_of_numpys_are_numbers(tmp_path: Path) -> None:
    """As a loop over an array gives them: a model must not turn out to be unsavable when it has learned."""
    plain = {"capacity": 60, "image_size": 16, "replay_batch": 8, "passes": 2, "seed": 3, "lr": 0.125}
    numpys = {name: np.float32(value) if name == "lr" else np.int64(value) for name, value in plain.items()}
    model, expected = learned(**numpys), learned(**plain)
    model.save(tmp_path / "model")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()
    assert clone(model).get_params()["seed"] is numpys["seed"]


def test_one_that_another_kind_of_device_saved_is_loaded_and_goes_on() -> None:
    """A GPU's generator has a state of 16 bytes, a CPU's one of thousands."""
    state = learned().__getstate__()
    state["engine"]["augmentation"] = torch.arange(16, dtype=torch.uint8)
    model = Climb.__new__(Climb)
    model.__setstate__(state)
    assert np.array_equal(model.transform(images(20)), learned().transform(images(20)))
    assert model.partial_fit(images(20)).engine_.budget.images == learned().engine_.budget.images + 20


def saved(model: Climb, path: Path) -> Climb:
    model.save(path / "model.safetensors")
    return Climb.load(path / "model.safetensors", device="cpu")


def pickled(model: Climb, path: Path) -> Climb:
    copy: Climb = pickle.loads(pickle.dumps(model))
    return copy


@pytest.mark.parametrize("keep", [saved, pickled])
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"iid", "pcmc"}))  # handed images otherwise; its own loop
def test_continues_bit_for_bit(keep: Callable[[Climb, Path], Climb], method: str, tmp_path: Path) -> None:
    model = learned(40, method=method)
    copy = keep(model, tmp_path)
    assert copy.get_params() == model.get_params()
    probe = images(8, 5)
    assert np.array_equal(copy.transform(probe), model.transform(probe))
    for other in (model, copy):
        other.partial_fit(images(30, 6))
    assert np.array_equal(copy.transform(probe), model.transform(probe))
    assert copy.engine_.budget == model.engine_.budget
    if model.memory_ is not None and copy.memory_ is not None:
        ours, theirs = (m.sample(8) for m in (copy.memory_, model.memory_))
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours.images, theirs.images)


@pytest.mark.parametrize("keep", [saved, pickled])
def test_parameters_set_after_learning_do_not_spoil_a_copy(
    keep: Callable[[Climb, Path], Climb], tmp_path: Path
) -> None:
    """They are for a model that has not learned yet; what was learned stays what it is."""
    model = learned(40)
    expected = model.transform(images(8, 5))
    model.set_params(capacity=500, preset="paper", passes=1, backbone="resnet18")
    assert np.array_equal(model.transform(images(8, 5)), expected)
    copy = keep(model, tmp_path)
    assert copy.get_params() == model.get_params()
    assert np.array_equal(copy.transform(images(8, 5)), expected)
    for other in (model, copy):
        other.partial_fit(images(10, 6))
    assert np.array_equal(copy.transform(images(8, 5)), model.transform(images(8, 5)))
    assert copy.memory_ is not None
    assert copy.memory_.capacity == 60


@pytest.mark.parametrize("keep", [saved, pickled])
def test_a_model_that_has_not_learned_can_be_kept(keep: Callable[[Climb, Path], Climb], tmp_path: Path) -> None:
    copy = keep(Climb(**SMALL, seed=3), tmp_path)
    assert copy.get_params() == Climb(**SMALL, seed=3).get_params()
    assert not hasattr(copy, "engine_")


def test_a_model_of_resized_images_keeps_their_size(tmp_path: Path) -> None:
    model = Climb(**SMALL).partial_fit(images(10, side=20))
    copy = saved(model, tmp_path)
    assert copy.image_size is None
    assert copy.engine_.config.image_size == 20


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match="cannot read"):
        Climb.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ClimbError, match="cannot read"):
        Climb.load(tmp_path / "text")


# -- beginning with an encoder -----------------------------------------------------------------------------------------

MEAN, STD = (0.45, 0.5, 0.55), (0.2, 0.25, 0.3)  # of a run's own images: not what a new model begins with


@pytest.fixture
def encoder(tmp_path: Path) -> SavedEncoder:
    encoder = build_network("micro", 16, generator=torch.Generator().manual_seed(7)).encoder
    kept = SavedEncoder(encoder=encoder.eval(), backbone="micro", image_size=16, mean=MEAN, std=STD)
    save_encoder(tmp_path / "model.safetensors", kept, evaluated="student")
    return kept


def features(kept: SavedEncoder, given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    pixels = as_images(given).float() / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (kept.mean, kept.std))
    with torch.no_grad():
        found: torch.Tensor = kept.encoder((pixels - mean) / std)
    return found.numpy()


@pytest.mark.parametrize("name", ["model.safetensors", "."])
def test_an_encoder_gives_its_features_at_once(name: str, encoder: SavedEncoder, tmp_path: Path) -> None:
    model = Climb.load(tmp_path / name, device="cpu")
    probe = images(8, 5)
    expected = features(encoder, probe)
    assert np.allclose(model.transform(probe), expected, atol=0.1 * expected.std())  # where bf16 is faster, bf16
    exact = Climb.load(tmp_path / name, device="cpu", precision="float32")
    assert np.allclose(exact.transform(probe), expected, atol=1e-5)
    assert model.get_params() == Climb(backbone="micro", image_size=16, device="cpu").get_params()
    assert model.memory_ is not None
    assert len(model.memory_) == 0


@pytest.mark.parametrize("keep", [saved, pickled])
def test_learning_goes_on_from_an_encoder(
    keep: Callable[[Climb, Path], Climb], encoder: SavedEncoder, tmp_path: Path
) -> None:
    probe = images(8, 5)
    model = Climb.load(tmp_path, device="cpu")
    student = model.engine_.parts.network.encoder.state_dict()
    assert all(torch.equal(student[name], value) for name, value in encoder.encoder.state_dict().items())
    model.partial_fit(images(10))
    assert model.engine_.budget.images == 10
    before, after = (
        torch.cat([weight.flatten() for weight in network.parameters()])
        for network in (encoder.encoder, model.encoder_)
    )
    assert not torch.equal(before, after)
    assert torch.cosine_similarity(before, after, dim=0) > 0.9  # a step away from the encoder, not another network
    (tmp_path / "kept").mkdir()
    copy = keep(model, tmp_path / "kept")
    assert np.array_equal(copy.transform(probe), model.transform(probe))


def test_an_encoder_of_patches_is_refused(encoder: SavedEncoder, tmp_path: Path) -> None:
    state = {f"backbone.{name}": value for name, value in encoder.encoder.state_dict().items()}
    tree = {"backbone": "micro", "image_size": 16, "mean": list(MEAN), "std": list(STD), "encoder": state}
    save_tree(tmp_path / "pcmc.safetensors", tree, kind="encoder")
    with pytest.raises(InputError, match="cannot be rebuilt from its weights alone"):
        Climb.load(tmp_path / "pcmc.safetensors")
