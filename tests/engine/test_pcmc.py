"""PCMC's loop: what waking leaves alone, what sleeping changes, and what both cost."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from climb.contrib.pcmc.engine import Pcmc, Sleep, build_pcmc
from climb.contrib.pcmc.memory import PatchMemory
from climb.contrib.pcmc.patches import CROPPED, WHOLE, PatchEncoder, Patching, two_views
from climb.engine.engine import Engine
from climb.errors import InputError
from climb.evaluation import extract_features
from climb.nets import Network
from climb.objectives import DecoupledContrast
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.state import load_tree, save_tree

Draw = Callable[..., torch.Tensor]

PATCHING = Patching(image=16, patch=8, stride=4)  # 9 patches of an image
SLEEP = Sleep(every=30, epochs=3, batch=16, lr=0.05)
CONFIG = LearnerConfig(
    method="pcmc",
    backbone="micro",
    image_size=16,
    replay_batch=8,
    memory=MemoryConfig(capacity=60, images_per_centroid=6, window=100, novelty_percentile=0.9),
)


def make(seed: int = 0, *, config: LearnerConfig = CONFIG, sleep: Sleep = SLEEP, **changes: Any) -> Pcmc:
    settings: dict[str, Any] = {
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "device": torch.device("cpu"),
        "precision": "float32",
        "kind": "eager",
        "patching": PATCHING,
        "stm_centroids": 12,
    }
    return build_pcmc(config, seed=seed, sleep=sleep, **(settings | changes))


def memory_of(engine: Pcmc) -> PatchMemory:
    memory = engine.parts.memory
    assert isinstance(memory, PatchMemory)
    return memory


def weights(engine: Pcmc) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in engine.parts.network.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def watch(engine: Pcmc) -> list[dict[str, Any]]:
    """What holds just before each gradient step, and the loss it gives, written down as the engine goes."""
    seen: list[dict[str, Any]] = []
    train = engine._train

    def watched(patches: torch.Tensor) -> torch.Tensor:
        buffers = engine._eager_step.state_dict().values()
        seen.append(
            {
                "lr": float(engine._eager_step.optimizer.param_groups[0]["lr"]),
                "rows": len(patches),
                "momentum": sum(float(buffer.abs().sum()) for buffer in buffers),
                "shades": patches.float().mean((1, 2, 3)),
            }
        )
        loss = train(patches)
        seen[-1]["loss"] = float(loss)
        return loss

    engine._train = watched  # type: ignore[method-assign]
    return seen


# -- patches ---------------------------------------------------------------------------------------------------------


def test_sixteen_patches_of_sixty_pixels_by_default() -> None:
    assert Patching().count == 16
    assert Patching()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (32, 3, 60, 60)


def test_patches_are_the_image_cut_row_by_row() -> None:
    images = torch.arange(2 * 3 * 16 * 16).view(2, 3, 16, 16).remainder(251).to(torch.uint8)
    cut = PATCHING(images)
    assert cut.dtype == torch.uint8
    expected = [image[:, top : top + 8, left : left + 8] for image in images for top in (0, 4, 8) for left in (0, 4, 8)]
    assert torch.equal(cut, torch.stack(expected))


def test_images_of_another_size_are_resized_first() -> None:
    flat = torch.full((1, 3, 5, 7), 200, dtype=torch.uint8)
    assert torch.equal(PATCHING(flat), torch.full((9, 3, 8, 8), 200, dtype=torch.uint8))
    assert PATCHING(flat.float()).dtype == torch.float32
    slope = torch.arange(8, dtype=torch.uint8).view(1, 1, 1, 8).expand(1, 3, 8, 8)
    assert PATCHING(slope)[0, 0, 0].tolist() == PATCHING(slope.float())[0, 0, 0].round().tolist()  # not cut off


def test_no_pixel_of_a_larger_image_is_skipped() -> None:
    lines = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    lines[..., ::4] = 200  # between the points that plain interpolation at a quarter of the size looks at
    assert (PATCHING(lines).float() - 50).abs().max() < 20


@pytest.mark.parametrize(("patching", "most"), [(PATCHING, 512), (Patching(image=46, patch=2, stride=2), 529)])
def test_only_so_many_patches_go_through_at_once_and_at_least_one_image(patching: Patching, most: int) -> None:
    backbone = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    given: list[int] = []
    backbone.register_forward_hook(lambda _, inputs, __: given.append(len(inputs[0])))
    assert PatchEncoder(backbone, patching, feature_dim=3)(torch.zeros(60, 3, 16, 16)).shape == (60, 3)
    assert sum(given) == 60 * patching.count
    assert max(given) <= most


def test_the_features_of_an_image_are_the_mean_over_its_patches() -> None:
    backbone = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    encoder = PatchEncoder(backbone, PATCHING, feature_dim=3)
    images = torch.randn(70, 3, 16, 16, generator=torch.Generator().manual_seed(0))  # more than go through at once
    expected = torch.stack([backbone(PATCHING(image[None])).mean(0) for image in images])
    torch.testing.assert_close(encoder(images), expected)


@pytest.mark.parametrize("fault", [{"patch": 20}, {"patch": 0}, {"stride": 0}])
def test_refuses_patches_that_do_not_exist(fault: dict[str, int]) -> None:
    with pytest.raises(InputError, match="0 < patch <= image"):
        replace(PATCHING, **fault)


# -- views -----------------------------------------------------------------------------------------------------------


def test_one_view_is_cropped_and_the_other_is_whole() -> None:
    engine = make()
    drawn = two_views((8, 8), engine.augment.numbers(torch.zeros(50, 3, 8, 8), engine._generator))
    first, second = drawn.box[:50], drawn.box[50:]
    assert torch.equal(second, torch.tensor([0.0, 0.0, 8.0, 8.0]).expand(50, 4))
    assert (first[:, 2] * first[:, 3] < 64).float().mean() > 0.5
    assert not drawn.flip.any()
    assert len(set(drawn.hue.tolist())) > 50  # every patch and view has colours of its own
    assert (CROPPED.crop_scale, WHOLE.blur) == ((0.3, 1.0), 0.2)


# -- awake -----------------------------------------------------------------------------------------------------------


def test_observe_takes_images_and_nothing_else() -> None:
    assert list(inspect.signature(Pcmc.observe).parameters) == list(inspect.signature(Engine.observe).parameters)


def test_waking_changes_the_memory_and_no_weight(images: Draw) -> None:
    engine = make()
    before = weights(engine)
    seen = engine.observe(images(20))
    engine.on_boundary()
    assert same(before, weights(engine))
    report = seen.report
    assert report.novel + report.joined + report.replaced + report.rejected == 20 * 9
    assert report.pruned == 0
    assert len(memory_of(engine)) > 12
    assert math.isnan(seen.objective.item())
    assert math.isnan(seen.alignment.item())
    budget = engine.budget
    assert (budget.images, budget.batches, budget.steps, budget.cbp, budget.forward_only) == (20, 1, 0, 0, 180)


def test_memory_is_given_the_encoders_features_in_eval_mode(images: Draw) -> None:
    engine = make()
    engine.observe(images(30))  # sleeps: the running statistics are no longer those of the start
    memory = memory_of(engine)
    (patch, *_), *_ = memory.stm.ids
    everything = memory.sample(len(memory))
    assert everything is not None
    first = everything.images[everything.ids == patch]
    encoder = engine.parts.network.encoder.eval()
    with torch.no_grad():
        expected = encoder.backbone(engine.augment.plain(first))[0]  # type: ignore[operator]
    torch.testing.assert_close(memory.stm.values[0], expected)


def test_an_observation_tells_the_features_that_the_memory_was_given_also_where_it_slept(images: Draw) -> None:
    engine = make()
    expected = engine._embed_patches(PATCHING(images(30)))
    seen = engine.observe(images(30))
    assert seen.report.pruned == 1
    assert torch.equal(seen.embeddings, expected)  # from before the sleep
    assert math.isnan(seen.alignment.item())  # nothing is aligned, whatever was trained


def test_only_so_many_patches_are_embedded_at_once(images: Draw) -> None:
    engine = make()
    encoder, given = engine.parts.network.encoder, []
    assert isinstance(encoder, PatchEncoder)
    encoder.backbone.register_forward_hook(lambda _, inputs, __: given.append(len(inputs[0])))
    patches = PATCHING(images(60))
    assert len(engine._embed_patches(patches)) == len(patches) == 540
    assert given == [512, 28]


def test_refuses_an_empty_batch() -> None:
    with pytest.raises(InputError, match="at least one image"):
        make().observe(torch.zeros(0, 3, 16, 16, dtype=torch.uint8))


# -- asleep ----------------------------------------------------------------------------------------------------------


def test_sleeps_whenever_enough_images_have_been_seen(images: Draw) -> None:
    engine = make()
    slept = []
    for number, size in enumerate((10, 10, 10, 25, 4, 1, 70)):  # 30, 60 and (90 and 120 in one) are passed
        slept.append(engine.observe(images(size, number)).report.pruned)
    assert slept == [0, 0, 1, 0, 0, 1, 1]


def test_a_sleep_trains_every_weight_on_the_rehearsed_patches_and_counts_them(images: Draw) -> None:
    engine = make()
    steps = watch(engine)
    before = weights(engine)
    engine.observe(images(29))
    rehearsed = len(memory_of(engine).rehearsal())  # one more image adds some
    forwards = engine.budget.forward_only
    seen = engine.observe(images(1, 1))
    after = weights(engine)
    still = [name for name, _ in engine.parts.network.named_parameters() if torch.equal(before[name], after[name])]
    assert not still
    assert seen.objective.isfinite()
    per_epoch = len(steps) // 3
    assert rehearsed // 16 <= per_epoch <= (rehearsed + 9 + 12) // 16
    assert len(steps) == 3 * per_epoch
    assert {step["rows"] for step in steps} == {16}
    assert engine.budget.steps == len(steps)
    assert engine.budget.cbp == 2 * 16 * len(steps)
    summary = memory_of(engine).summary()
    # The image's own patches, the first patch of every centroid, and those of the full centroids before thinning.
    least = 9 + summary["stm_centroids"] + summary["ltm_centroids"]
    assert least <= engine.budget.forward_only - forwards <= least + 6 * summary["ltm_centroids"]
    assert summary["stm_images"] == summary["stm_centroids"]


def test_an_epoch_is_a_shuffle_of_the_patches_without_repetition(images: Draw) -> None:
    engine = make(sleep=replace(SLEEP, every=20, batch=4))
    steps = watch(engine)
    engine.observe(images(20))
    per_epoch = len(steps) // 3
    epochs = [torch.cat([step["shades"] for step in steps[k * per_epoch : (k + 1) * per_epoch]]) for k in range(3)]
    for shades in epochs:
        assert len(set(shades.tolist())) == len(shades)  # no two patches of these images have the same mean
    assert not torch.equal(epochs[0], epochs[1])


def test_patches_that_fill_no_batch_are_left_out_of_an_epoch(images: Draw) -> None:
    engine = make(sleep=replace(SLEEP, every=1000))
    engine.observe(images(10))
    rehearsed = len(memory_of(engine).rehearsal())
    engine.sleep = replace(SLEEP, batch=rehearsed // 2 - 1)
    assert rehearsed % engine.sleep.batch > 0
    steps = watch(engine)
    assert engine._fall_asleep()
    assert [step["rows"] for step in steps] == 3 * (rehearsed // engine.sleep.batch) * [engine.sleep.batch]
    assert engine.budget.cbp == 2 * sum(step["rows"] for step in steps)


def test_the_rate_falls_along_a_cosine_and_every_sleep_starts_afresh(images: Draw) -> None:
    engine = make()
    steps = watch(engine)
    engine.observe(images(30))
    first = len(steps)
    engine.observe(images(30, 1))
    for sleep in (steps[:first], steps[first:]):
        expected = [0.05 * (1 + math.cos(math.pi * k / len(sleep))) / 2 for k in range(len(sleep))]
        assert [step["lr"] for step in sleep] == pytest.approx(expected, rel=1e-5)
        assert sleep[0]["momentum"] == 0
        assert sleep[1]["momentum"] > 0
    assert first < len(steps)


def test_a_sleep_is_sgd_with_the_configured_momentum_and_decay(images: Draw) -> None:
    """Two steps of the engine against two written out, on the same views."""
    config = replace(CONFIG, momentum=0.7, weight_decay=0.01)
    engine, twin = make(config=config), make(config=config)
    patches = PATCHING(images(4))
    momentum = [torch.zeros_like(parameter) for parameter in twin.parts.network.parameters()]
    for lr in (0.05, 0.02):
        engine._lr.fill_(lr)
        loss = engine._train(patches)
        views = twin.augment(patches, twin._generator)
        encoder = twin.parts.network.encoder
        assert isinstance(encoder, PatchEncoder)
        unit = F.normalize(twin.parts.network.projector(encoder.backbone(views.flatten(0, 1))), dim=1)
        cosines = unit @ unit.T / 0.5
        n = len(patches)
        terms = []
        for i in range(2 * n):
            p = (i + n) % (2 * n)
            others = [k for k in range(2 * n) if k not in (i, p)]
            terms.append(cosines[i, others].logsumexp(0) - cosines[i, p])
        expected = torch.stack(terms).mean()
        gradients = torch.autograd.grad(expected, list(twin.parts.network.parameters()))
        with torch.no_grad():
            for parameter, buffer, gradient in zip(twin.parts.network.parameters(), momentum, gradients, strict=True):
                buffer.mul_(0.7).add_(gradient + 0.01 * parameter)
                parameter.sub_(lr * buffer)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    for one, other in zip(engine.parts.network.parameters(), twin.parts.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_sleeps_in_bfloat16_too(images: Draw) -> None:
    exact, rounded = make(), make(precision="bf16")
    losses = [engine.observe(images(30)).objective for engine in (exact, rounded)]
    assert rounded._loss.dtype == torch.float32
    assert not torch.equal(*losses)
    assert rounded.embed(images(3)).dtype == torch.float32
    assert losses[1].isfinite()


def test_stays_awake_while_there_is_too_little_to_train_on(images: Draw) -> None:
    engine = make(sleep=replace(SLEEP, every=1), stm_centroids=400)
    before = weights(engine)
    seen = engine.observe(images(2))  # 18 patches, each a centroid of its own: nothing was seen twice
    assert seen.report.pruned == 0
    assert engine.budget.steps == 0
    assert same(before, weights(engine))


def test_stays_awake_over_a_single_patch() -> None:
    """The loss of one patch is infinite: there is nothing to tell it apart from."""
    engine = make(config=replace(CONFIG, memory=replace(CONFIG.memory, images_per_centroid=2)), stm_centroids=1)
    memory, alike = memory_of(engine), torch.ones(2, engine.parts.network.feature_dim)
    assert memory.insert(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), alike).promoted == 1
    assert memory.after_sleep(lambda patches: alike[: len(patches)]) == 1
    assert len(memory.rehearsal()) == 1
    before = weights(engine)
    assert not engine._fall_asleep()
    assert same(before, weights(engine))


@pytest.mark.parametrize(("full", "least"), [(10, 5), (6, 5), (5, 4), (2, 1)])
def test_its_memory_thins_centroids_down_to_five_patches_where_they_hold_more(full: int, least: int) -> None:
    engine = make(config=replace(CONFIG, memory=replace(CONFIG.memory, images_per_centroid=full)))
    assert [memory_of(engine)._chance(patches) > 0 for patches in (least, least + 1)] == [False, True]


def test_sleeps_at_the_configured_rate() -> None:
    config = LearnerConfig(method="pcmc", backbone="micro", image_size=16, lr=0.07)
    place = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": "eager"}
    assert build_pcmc(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place).sleep.lr == 0.07  # type: ignore[arg-type]


def test_contrasts_at_the_configured_temperature() -> None:
    objective = make(config=replace(CONFIG, temperature=0.2)).parts.objective
    assert isinstance(objective, DecoupledContrast)
    assert objective.temperature == 0.2


def test_its_memory_calls_novel_what_the_configured_percentile_does(images: Draw) -> None:
    novel = []
    for percentile in (0.1, 0.9):
        engine = make(config=replace(CONFIG, memory=replace(CONFIG.memory, novelty_percentile=percentile)))
        novel.append(engine.observe(images(20)).report.novel)
    assert novel[0] > novel[1]


def test_patches_fit_the_images_unless_told_otherwise() -> None:
    encoder = make(patching=None).parts.network.encoder
    assert isinstance(encoder, PatchEncoder)
    assert encoder.patching == Patching.fitting(16) != Patching()


def test_the_seed_decides_on_the_network_it_starts_from() -> None:
    first, again, other = (weights(make(seed)) for seed in (5, 5, 6))
    assert same(first, again)
    assert not same(first, other)


def test_refuses_an_impossible_configuration() -> None:
    with pytest.raises(InputError, match="passes must be at least 1; given 0"):
        make(config=replace(CONFIG, passes=0))


def test_refuses_a_network_that_does_not_take_patches() -> None:
    with pytest.raises(InputError, match="backbone 'vit-tiny' does not take PCMC's patches of 8 x 8 pixels"):
        make(config=replace(CONFIG, backbone="vit-tiny"))


def test_its_memory_looks_back_on_the_configured_window(images: Draw) -> None:
    engine = make(config=replace(CONFIG, memory=replace(CONFIG.memory, window=37)))
    engine.observe(images(20))  # 180 patches
    assert len(engine.state_dict()["memory"]["window"]) == 37


def test_the_order_of_patches_has_random_numbers_of_its_own(images: Draw) -> None:
    engine = make()
    state = engine.state_dict()
    assert not torch.equal(state["order"], state["augmentation"])
    assert engine.observe(images(30)).report.pruned == 1
    assert not torch.equal(engine.state_dict()["order"], state["order"])  # it is what the sleep has drawn from


def test_a_kept_state_and_a_kept_loss_do_not_follow_the_next_sleep(images: Draw) -> None:
    engine = make()
    awake = engine.state_dict()
    first = engine.observe(images(30)).objective
    kept = float(first)
    assert not math.isnan(kept)
    assert float(engine.observe(images(30, 1)).objective) != kept
    assert float(first) == kept
    assert math.isnan(float(awake["loss"]))


def test_the_seed_decides_on_what_its_memory_draws() -> None:
    first, again, other = (memory_of(make(seed)).state_dict() for seed in (5, 5, 6))
    for name in ("insertion", "replay"):
        assert str(first[name]) == str(again[name])
        assert str(first[name]) != str(other[name])


def test_images_are_normalised_by_the_given_statistics(images: Draw) -> None:
    engine = make(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)))
    torch.testing.assert_close(engine.augment.plain(images(2)), (images(2) / 255 - mean) / std)


def test_trains_on_all_patches_at_once_where_there_are_fewer_than_a_batch(images: Draw) -> None:
    engine = make(sleep=Sleep(every=20, epochs=2, batch=512, lr=0.05))
    steps = watch(engine)
    engine.observe(images(20))
    assert len(steps) == 2
    assert 2 <= steps[0]["rows"] < 512


def test_the_loss_falls_and_nothing_collapses(images: Draw) -> None:
    engine = make(sleep=replace(SLEEP, epochs=40))
    steps = watch(engine)
    fixed = images(30)
    engine.observe(fixed)  # one sleep: another has other patches, and another number of them
    losses = [step["loss"] for step in steps]
    tenth = len(losses) // 10
    assert tenth > 0
    assert mean(losses[-tenth:]) < mean(losses[:tenth]) - 0.1
    features = F.normalize(engine.embed(fixed), dim=1)
    assert features.std(0).mean() > 0.005


@pytest.mark.parametrize(
    "fault", [{"every": 0}, {"epochs": 0}, {"batch": 1}, {"lr": 0.0}, {"lr": math.nan}, {"lr": math.inf}]
)
def test_refuses_an_impossible_sleep(fault: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a sleep needs"):
        replace(SLEEP, **fault)


# -- the engine's other verbs ------------------------------------------------------------------------------------------


def test_its_encoder_can_be_probed_like_any_other(images: Draw) -> None:
    engine = make()
    engine.observe(images(30))
    network = engine.parts.network
    assert isinstance(network, Network)
    assert network.feature_dim == 128
    before = weights(engine)
    features = extract_features(network.encoder, images(7), engine.augment.plain, device="cpu")
    assert features.shape == (7, 128)
    assert same(before, weights(engine))
    spent = engine.budget.forward_only
    torch.testing.assert_close(engine.embed(images(7)), features, rtol=1e-4, atol=1e-5)
    assert engine.budget.forward_only == spent + 7 * 9


@pytest.mark.parametrize("observed", [1, 3, 4])
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_happened(observed: int, images: Draw, tmp_path: Path) -> None:
    engine = make(seed=1)
    for number in range(observed):
        engine.observe(images(10, number))
    save_tree(tmp_path / "state", engine.state_dict(), kind="test")
    copy = make(seed=2)
    copy.observe(images(30, 99))  # it has slept before: nothing of that may remain
    copy.load_state_dict(load_tree(tmp_path / "state", kind="test"))
    for number in range(observed, 7):
        one, other = engine.observe(images(10, number)), copy.observe(images(10, number))
        assert one.report == other.report
        assert torch.equal(one.objective.nan_to_num(7.0), other.objective.nan_to_num(7.0))
    assert same(weights(engine), weights(copy))
    assert engine.budget == copy.budget


def test_goes_back_to_a_state_that_it_kept(images: Draw) -> None:
    engine = make()
    engine.observe(images(20))
    state = engine.state_dict()
    slept = [engine.observe(images(20, 1)).objective for _ in range(2)]  # the second with what the first has learned
    engine.load_state_dict(state)
    assert slept == [engine.observe(images(20, 1)).objective for _ in range(2)]


def test_the_seed_decides_everything_and_the_global_generator_nothing(images: Draw) -> None:
    torch.manual_seed(0)
    one, state = make(seed=3), torch.get_rng_state()
    one.observe(images(30))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    other, another = make(seed=3), make(seed=4)
    for engine in (other, another):
        engine.observe(images(30))
    assert same(weights(one), weights(other))
    assert not same(weights(one), weights(another))


def test_residual_networks_get_the_stem_of_large_images() -> None:
    engine = make(config=replace(CONFIG, backbone="resnet18"), patching=Patching())
    encoder = engine.parts.network.encoder
    assert isinstance(encoder, PatchEncoder)
    assert encoder.backbone.conv1.weight.shape[-2:] == (7, 7)  # type: ignore[union-attr, index]
    assert memory_of(engine).image_shape == (3, 60, 60)
    assert memory_of(engine).embedding_dim == 512


def test_needs_a_memory_of_patches() -> None:
    engine = make()
    parts = replace(engine._eager_step.parts, memory=None)
    place = {"seed": 0, "device": torch.device("cpu"), "precision": "float32"}
    with pytest.raises(InputError, match="PCMC needs a PatchMemory"):
        Pcmc(parts, engine.augment, CONFIG, patching=PATCHING, sleep=SLEEP, **place)  # type: ignore[arg-type]
