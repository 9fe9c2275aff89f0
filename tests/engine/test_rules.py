"""Batch rules: which images reach the network, how they are marked, and that budgets come out equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from climb.alignment import Alignment, EmaTeacher
from climb.alignment.relation import Relation
from climb.alignment.snapshot import Snapshot
from climb.alignment.stored_targets import StoredTargets
from climb.augment import Augment, simclr
from climb.engine import BatchRule, Engine, IidChunks, MemoryOnly, MixUp, Parts, Precision, StreamAndReplay
from climb.errors import ClimbError, InputError
from climb.memory import CentroidMemory, FifoMemory, Memory, ReservoirMemory
from climb.nets import Encoded, Network, bottleneck, build_network
from climb.objectives import SimCLR
from climb.settings.config import LearnerConfig, MemoryConfig

CONFIG = LearnerConfig(
    backbone="micro",
    image_size=16,
    stream_batch=4,
    replay_batch=8,
    passes=3,
    lr=0.05,
    memory=MemoryConfig(capacity=40),
)


def numbered(first: int, n: int, side: int = 8) -> torch.Tensor:
    """n images, each of one shade, its number."""
    return torch.arange(first, first + n, dtype=torch.uint8).view(n, 1, 1, 1).repeat(1, 3, side, side)


def shades(images: torch.Tensor) -> list[int]:
    return [int(shade) for shade in images[:, 0, 0, 0]]


class Before(FifoMemory):
    """A memory that inserts before the passes, as MinRed's does."""

    inserts = "before"


def engine_of(
    batch: BatchRule,
    memory: Memory | None,
    alignment: Callable[[Network], Alignment] | None = None,
    config: LearnerConfig = CONFIG,
    precision: Precision = "float32",
) -> Engine:
    network = build_network("micro", config.image_size, generator=torch.Generator().manual_seed(0))
    return Engine(
        Parts(
            network=network,
            memory=memory,
            batch=batch,
            objective=SimCLR(),
            alignment=None if alignment is None else alignment(network),
        ),
        Augment(simclr(config.image_size), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        config,
        seed=0,
        device=torch.device("cpu"),
        precision=precision,
    )


# -- MemoryOnly --------------------------------------------------------------------------------------------------


def test_memory_only_draws_the_rows_of_stream_and_replay_together() -> None:
    memory = FifoMemory(40, (3, 8, 8), 4)
    memory.insert(numbered(0, 30))
    batch = MemoryOnly()(numbered(200, 4), memory, CONFIG, 0)
    assert MemoryOnly().rows(CONFIG) == 12
    assert len(set(shades(batch.images))) == 12
    assert max(shades(batch.images)) < 30
    assert batch.is_replay.tolist() == [True] * 12
    assert shades(batch.images) == batch.ids.tolist()


def test_memory_only_takes_what_there_is_at_the_start() -> None:
    memory = FifoMemory(40, (3, 8, 8), 4)
    stream = numbered(0, 4)
    empty = MemoryOnly()(stream, memory, CONFIG, 0)
    assert torch.equal(empty.images, stream)
    assert not empty.is_replay.any()
    memory.insert(stream)
    batch = MemoryOnly()(numbered(200, 4), memory, CONFIG, 0)
    assert sorted(shades(batch.images)) == [0, 1, 2, 3]
    assert batch.is_replay.all()


def test_memory_only_hands_on_what_is_stored_with_the_images() -> None:
    memory = Before(40, (3, 8, 8), 4, embedding_rate=0.5)
    memory.insert(numbered(0, 20), torch.arange(20.0)[:, None].expand(20, 4))
    batch = MemoryOnly()(numbered(200, 4), memory, CONFIG, 0)
    assert batch.targets is not None
    assert torch.equal(batch.targets, batch.ids[:, None].expand(12, 4).float())


def test_memory_only_spends_what_replay_spends(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(MemoryOnly(), Before(40, (3, 16, 16), 512))
    spent = []
    for number in range(5):
        before = engine.budget.cbp
        assert engine.observe(images(4, number)).objective.isfinite()
        spent.append(engine.budget.cbp - before)
    assert spent == [3 * 2 * n for n in (4, 8, 12, 12, 12)]


def test_memory_only_refuses_what_cannot_work() -> None:
    with pytest.raises(ClimbError, match="give the method a memory"):
        MemoryOnly()(numbered(0, 4), None, CONFIG, 0)
    memory = CentroidMemory(
        40, (3, 8, 8), 4, stm_centroids=4, ltm_centroids=2, images_per_centroid=6, window=10, novelty_percentile=0.95
    )
    with pytest.raises(ClimbError, match="embed_mode 'eval'"):
        MemoryOnly()(numbered(0, 4), memory, CONFIG, 0)
    MemoryOnly()(numbered(0, 4), memory, replace(CONFIG, embed_mode="eval"), 0)


# -- MixUp -------------------------------------------------------------------------------------------------------


def test_mixup_pairs_the_stream_with_as_many_stored_images() -> None:
    memory = ReservoirMemory(40, (3, 8, 8), 4)
    memory.insert(numbered(0, 4))
    batch = MixUp()(numbered(100, 4), memory, CONFIG, 0)
    assert shades(batch.images[~batch.is_replay]) == [100, 101, 102, 103]
    assert sorted(shades(batch.images[batch.is_replay])) == [0, 1, 2, 3]
    assert shades(batch.images[batch.is_replay]) == batch.ids.tolist()


def test_mixup_pairs_a_short_mini_batch_with_no_more_than_it_has() -> None:
    memory = ReservoirMemory(40, (3, 8, 8), 4)
    memory.insert(numbered(0, 10))
    batch = MixUp()(numbered(100, 3), memory, CONFIG, 0)
    assert (len(batch.images), batch.is_replay.sum(), len(batch.ids)) == (6, 3, 3)


def test_mixup_trains_on_the_stream_alone_until_enough_is_stored() -> None:
    memory = ReservoirMemory(40, (3, 8, 8), 4)
    memory.insert(numbered(0, 3))
    for given in (memory, None):
        batch = MixUp()(numbered(100, 4), given, CONFIG, 0)
        assert shades(batch.images) == [100, 101, 102, 103]
        assert not batch.is_replay.any()
    views = torch.rand(2, 4, 3, 8, 8)
    rows, none = torch.arange(4), torch.zeros(0, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    mixed = MixUp().mix(views, rows, none, drawn=MixUp().draw(0, generator))
    assert torch.equal(generator.get_state(), state)
    assert mixed.views is views
    assert mixed.stream_rows.tolist() == [0, 1, 2, 3]


def test_one_share_blends_all_rows_and_both_views_wherever_they_lie() -> None:
    views = torch.rand(2, 6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    stream, replay = torch.tensor([4, 0, 3]), torch.tensor([1, 5, 2])
    mixed = MixUp().mix(views, stream, replay, drawn=MixUp().draw(3, torch.Generator().manual_seed(1)))
    difference = views[:, stream] - views[:, replay]
    share = ((mixed.views - views[:, replay]) * difference).sum() / difference.square().sum()
    # lambda of the docstring, by LUMP's alpha: a run of the same seed blends as it always did.
    gamma = torch._standard_gamma(torch.full((2,), 0.4), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(share, gamma[0] / gamma.sum())
    torch.testing.assert_close(mixed.views, share * views[:, stream] + (1 - share) * views[:, replay])
    assert mixed.views.shape == (2, 3, 3, 8, 8)
    assert mixed.stream_rows.tolist() == [0, 1, 2]
    assert mixed.replay_rows.tolist() == []


@pytest.mark.parametrize("alpha", [0.4, 2.0])
def test_the_share_has_the_beta_distribution(alpha: float) -> None:
    views = torch.zeros(2, 2, 1, 1, 1)
    views[:, 0] = 1.0  # the stream: a blend is then its share
    generator, rule = torch.Generator().manual_seed(0), MixUp(alpha)
    rows = torch.tensor([0]), torch.tensor([1])
    draws = 4000
    shares = torch.stack(
        [rule.mix(views, *rows, drawn=rule.draw(1, generator)).views[0, 0, 0, 0, 0] for _ in range(draws)]
    )
    variance = 1 / (4 * (2 * alpha + 1))
    assert shares.mean().item() == pytest.approx(0.5, abs=4 * (variance / draws) ** 0.5)
    assert shares.var().item() == pytest.approx(variance, rel=0.08)


def test_the_share_comes_from_the_given_generator_alone() -> None:
    views = torch.rand(2, 2, 3, 8, 8)
    rows = torch.tensor([0]), torch.tensor([1])
    before = torch.get_rng_state()
    first, again = (MixUp().draw(1, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)
    assert torch.equal(MixUp().mix(views, *rows, drawn=first).views, MixUp().mix(views, *rows, drawn=again).views)
    assert torch.equal(torch.get_rng_state(), before)
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    MixUp().draw(1, generator)
    assert not torch.equal(generator.get_state(), state)


def test_mixup_counts_blends_and_takes_more_passes(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(MixUp(), ReservoirMemory(40, (3, 16, 16), 512))
    assert (MixUp().rows(CONFIG), MixUp().trained(8, 4), MixUp().trained(4, 0)) == (4, 4, 4)
    for number in range(3):
        assert engine.observe(images(4, number)).objective.isfinite()
    # Every mini-batch pays for 3 * 12 rows: 9 passes of 4.
    assert (engine.budget.steps, engine.budget.cbp) == (27, 2 * 3 * 36)


def test_mixup_refuses_what_cannot_work() -> None:
    memory = CentroidMemory(
        40, (3, 8, 8), 4, stm_centroids=4, ltm_centroids=2, images_per_centroid=6, window=10, novelty_percentile=0.95
    )
    with pytest.raises(ClimbError, match="without embeddings"):
        MixUp()(numbered(0, 4), memory, CONFIG, 0)
    for alpha in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="alpha must be above 0"):
            MixUp(alpha)


# -- IidChunks ---------------------------------------------------------------------------------------------------


def test_each_pass_has_a_chunk_of_its_own() -> None:
    stream = numbered(0, 36)
    batches = [IidChunks()(stream, None, CONFIG, number) for number in range(3)]
    assert [shades(batch.images) for batch in batches] == [
        list(range(12)),
        list(range(12, 24)),
        list(range(24, 36)),
    ]
    assert not any(batch.is_replay.any() for batch in batches)


@pytest.mark.parametrize("given", [4, 35, 37])
def test_a_mini_batch_of_another_size_is_refused(given: int) -> None:
    with pytest.raises(InputError, match=rf"3 \* \(4 \+ 8\) = 36 images; given {given}"):
        IidChunks()(numbered(0, given), None, CONFIG, 0)


def test_chunks_take_as_many_steps_and_rows_as_replay(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(IidChunks(), None)
    for number in range(2):
        assert engine.observe(images(36, number)).objective.isfinite()
    assert (engine.budget.steps, engine.budget.cbp) == (6, 2 * 6 * 12)


# -- alignments inside the engine --------------------------------------------------------------------------------


def aligner(network: Network) -> nn.Sequential:
    return bottleneck(network.embedding_dim, 16, generator=torch.Generator().manual_seed(1))


def test_relation_distillation_speaks_from_the_first_mini_batch(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(StreamAndReplay(), ReservoirMemory(40, (3, 16, 16), 512), Relation)
    losses = [engine.observe(images(4, number)).alignment.item() for number in range(4)]
    assert all(loss > 0 for loss in losses)
    # One view of every row: two mini-batches of 4 rows, then two of 12.
    assert engine.budget.forward_only == CONFIG.passes * (4 + 4 + 12 + 12)


def test_a_snapshot_is_silent_until_the_first_boundary(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(
        StreamAndReplay(), ReservoirMemory(40, (3, 16, 16), 512), lambda network: Snapshot(network, aligner(network))
    )
    first_task = [engine.observe(images(4, number)).alignment.item() for number in range(3)]
    assert torch.tensor(first_task[:2]).isnan().all()  # no replay yet, so no alignment at all
    assert first_task[2] == 0
    engine.on_boundary()
    assert engine.observe(images(4, 3)).alignment.item() != 0


def test_a_teacher_of_all_rows_needs_no_memory(images: Callable[..., torch.Tensor]) -> None:
    engine = engine_of(BatchRule(), None, lambda network: EmaTeacher(network, aligner(network), rows="all"))
    assert engine.observe(images(4)).alignment.isfinite()
    assert engine.budget.forward_only == 9 * 2 * 4


class Recording(StoredTargets):
    """Stored targets that remember the last ones they were given."""

    seen: torch.Tensor | None = None

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        self.seen = encoded.targets
        return super().forward(encoded, objective)


def test_stored_targets_are_what_the_memory_held_before_the_step(images: Callable[..., torch.Tensor]) -> None:
    dim = build_network("micro", 16, generator=torch.Generator()).embedding_dim
    memory = FifoMemory(40, (3, 16, 16), dim, embedding_rate=0.5)
    config = replace(CONFIG, passes=1)
    engine = engine_of(StreamAndReplay(), memory, lambda network: Recording(aligner(network)), config)
    for number in range(3):
        engine.observe(images(4, number))
    held = {tuple(row) for row in memory.state_dict()["embeddings"].tolist()}
    observation = engine.observe(images(4, 3))
    assert -1 <= observation.alignment.item() <= 1
    recording = engine.parts.alignment
    assert isinstance(recording, Recording)
    assert recording.seen is not None
    targets = {tuple(row) for row in recording.seen.tolist()}
    assert len(targets) == 8
    assert targets <= held
    # The step then moved what is stored of those images, and of those alone.
    after = {tuple(row) for row in memory.state_dict()["embeddings"].tolist()}
    assert held - after == targets


ALIGNMENTS = pytest.mark.parametrize(
    "alignment",
    [
        Relation,
        lambda network: Snapshot(network, aligner(network)),
        lambda network: EmaTeacher(network, aligner(network), rows="all"),
    ],
    ids=["relation", "snapshot", "teacher of all rows"],
)


@ALIGNMENTS
def test_half_precision_networks_have_float32_losses(
    alignment: Callable[[Network], Alignment], images: Callable[..., torch.Tensor]
) -> None:
    engine = engine_of(StreamAndReplay(), ReservoirMemory(40, (3, 16, 16), 512), alignment, precision="bf16")
    engine.on_boundary()
    observations = [engine.observe(images(4, number)) for number in range(3)]
    assert observations[-1].alignment.dtype == torch.float32
    assert observations[-1].alignment.isfinite()
    assert observations[-1].alignment != 0


@ALIGNMENTS
def test_the_same_next_loss_after_save_and_load(
    alignment: Callable[[Network], Alignment], images: Callable[..., torch.Tensor]
) -> None:
    def fresh() -> Engine:
        return engine_of(StreamAndReplay(), ReservoirMemory(40, (3, 16, 16), 512), alignment)

    engine, other = fresh(), fresh()
    for number in range(4):
        engine.observe(images(4, number))
    engine.on_boundary()
    other.load_state_dict(engine.state_dict())
    here, there = engine.observe(images(4, 9)), other.observe(images(4, 9))
    assert here.objective.item() == there.objective.item()
    assert here.alignment.item() == there.alignment.item()
    assert here.alignment.item() != 0


def test_views_that_an_objective_embeds_by_itself_are_counted(
    images: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(BatchRule(), None)
    monkeypatch.setattr(SimCLR, "forwards", lambda self, rows: 10 * rows)
    engine.observe(images(4, 0))
    assert engine.budget.forward_only == 10 * engine.budget.cbp // 2 > 0


def test_the_optimiser_is_the_configured_one() -> None:
    settings = {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.01}
    (group,) = engine_of(BatchRule(), None, config=replace(CONFIG, **settings))._eager_step.optimizer.param_groups
    assert {name: group[name] for name in settings} == settings
