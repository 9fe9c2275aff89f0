"""Properties of three memories under random sequences of actions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images

from climb.contrib.pcmc.memory import PatchMemory
from climb.memory import CentroidMemory, FifoMemory, Memory, ReservoirMemory
from climb.memory.minred import MinRedMemory
from climb.memory.part_and_select import PartAndSelectMemory
from climb.seeds import numpy_generator

Action = tuple[str, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["insert", "insert", "sample", "refresh", "reload"]), st.integers(1, 12)),
    min_size=10,
    max_size=40,
)
SEEDS = st.integers(0, 2**32 - 1)
DIM = 5
EVERY_IMAGE = numbered_images(0, 40 * 12)
# The same examples every time: two roundings of one distance could, once in a long while, fall on either side of the
# threshold, and that must not break a build.
FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None)
MANY = settings(FEW, max_examples=50)


@st.composite
def centroid_options(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes for which K M + L <= N, sometimes with equality."""
    stm, ltm, full = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    return {
        "capacity": ltm * full + stm + draw(st.integers(0, 10)),
        "stm_centroids": stm,
        "ltm_centroids": ltm,
        "images_per_centroid": full,
        "window": draw(st.integers(1, 40)),
        "novelty_percentile": draw(st.floats(0, 1)),
        "stm_rate": draw(st.floats(0, 1)),
        "ltm_accept": draw(st.floats(0, 1)),
        "prune": draw(st.sampled_from(["anchor", "selective"])),
        "seed": draw(SEEDS),
    }


def stored_numbers(memory: Memory) -> list[int]:
    batch = memory.sample(len(memory)) if len(memory) else None
    if batch is None:
        assert len(memory) == 0
        return []
    # Bit-identical: an image's bytes follow from its number.
    assert torch.equal(batch.images, EVERY_IMAGE[batch.ids])
    return sorted(batch.ids.tolist())


def act(memory: Any, fresh: Any, actions: list[Action], seed: int, look: Any) -> None:
    """Insert single images and check after each; sample, refresh and reload in between."""
    rng = np.random.default_rng(seed)
    embeddings = drifting_clusters(sum(n for _, n in actions) + 1, DIM, clusters=6, task=40, seed=seed % 1000)
    seen = 0
    for kind, n in actions:
        if kind == "insert":
            for _ in range(n):
                report = memory.insert(numbered_images(seen, 1), torch.from_numpy(embeddings[seen : seen + 1]))
                assert report.novel + report.joined + report.replaced + report.rejected == 1
                seen += 1
                look(memory, seen, report)
        elif kind == "reload":
            state = memory.state_dict()
            memory = fresh()
            memory.load_state_dict(state)
        else:
            batch = memory.sample(n)
            assert (batch is None) == (n > len(memory))
            if batch is not None:
                assert len(set(batch.ids.tolist())) == n
                if kind == "refresh":
                    ids = torch.cat([batch.ids, torch.tensor([10**9])])
                    memory.refresh(ids, torch.from_numpy(rng.standard_normal((n + 1, DIM))).float())


@given(options=centroid_options(), actions=ACTIONS, seed=SEEDS)
@MANY
def test_centroid_memory_keeps_its_invariants(options: dict[str, Any], actions: list[Action], seed: int) -> None:
    stm_limit, ltm_limit = options["stm_centroids"], options["ltm_centroids"]
    full, capacity = options["images_per_centroid"], options["capacity"]
    before = {"stm": 0, "ltm": 0}

    def look(memory: CentroidMemory, seen: int, report: Any) -> None:
        stm, ltm = memory.stm, memory.ltm
        assert len(stm.ids) <= stm_limit
        assert len(ltm.ids) <= ltm_limit
        held = [image for ids in stm.ids + ltm.ids for image in ids]
        assert len(held) == len(set(held)) == len(memory) <= capacity
        assert all(1 <= len(ids) < full for ids in stm.ids)
        assert all(len(ids) == full for ids in ltm.ids)  # long-term centroids are full, and never pruned
        assert stm.counts.tolist() == [len(ids) for ids in stm.ids]
        assert all(ids == sorted(ids) for ids in stm.ids)
        assert max([*stm.updated.tolist(), *ltm.updated.tolist()]) < seen
        assert all(
            updated >= max(ids) for tier in (stm, ltm) for updated, ids in zip(tier.updated, tier.ids, strict=True)
        )
        assert stm.values.isfinite().all()
        # Every change in the number of centroids is accounted for.
        assert len(stm.ids) == before["stm"] + report.novel - report.evicted - report.promoted
        assert len(ltm.ids) == before["ltm"] + report.promoted - report.merged
        if report.pruned and options["prune"] == "anchor":
            assert all(len(ids) == 1 for ids in stm.ids)
        before.update(stm=len(stm.ids), ltm=len(ltm.ids))
        assert stored_numbers(memory) == sorted(held)

    act(
        CentroidMemory(image_shape=IMAGE_SHAPE, embedding_dim=DIM, **options),
        lambda: CentroidMemory(image_shape=IMAGE_SHAPE, embedding_dim=DIM, **options),
        actions,
        seed,
        look,
    )


@given(capacity=st.integers(1, 30), actions=ACTIONS, seed=SEEDS)
@FEW
def test_fifo_holds_the_last_images(capacity: int, actions: list[Action], seed: int) -> None:
    def look(memory: FifoMemory, seen: int, report: Any) -> None:
        assert stored_numbers(memory) == list(range(max(0, seen - capacity), seen))

    act(
        FifoMemory(capacity, IMAGE_SHAPE, DIM, seed=seed),
        lambda: FifoMemory(capacity, IMAGE_SHAPE, DIM),
        actions,
        seed,
        look,
    )


@given(capacity=st.integers(1, 30), actions=ACTIONS, seed=SEEDS)
@FEW
def test_reservoir_never_restores_an_image_and_stays_full(capacity: int, actions: list[Action], seed: int) -> None:
    stored: set[int] = set()

    def look(memory: ReservoirMemory, seen: int, report: Any) -> None:
        now = set(stored_numbers(memory))
        assert len(now) == min(seen, capacity)
        assert now - stored == (set() if report.rejected else {seen - 1})
        stored.clear()
        stored.update(now)

    act(
        ReservoirMemory(capacity, IMAGE_SHAPE, DIM, seed=seed),
        lambda: ReservoirMemory(capacity, IMAGE_SHAPE, DIM),
        actions,
        seed,
        look,
    )


@given(sizes=st.lists(st.integers(1, 15), min_size=5, max_size=20), seed=SEEDS)
@FEW
@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_the_size_of_mini_batches_has_no_effect(prune: Any, sizes: list[int], seed: int) -> None:
    embeddings = torch.from_numpy(drifting_clusters(sum(sizes), DIM, clusters=6, task=40, seed=seed % 1000))
    options: dict[str, Any] = {"stm_centroids": 5, "ltm_centroids": 3, "images_per_centroid": 3, "window": 25}
    cut, single = (
        CentroidMemory(15, IMAGE_SHAPE, DIM, novelty_percentile=0.8, prune=prune, seed=seed, **options)
        for _ in range(2)
    )
    start = 0
    for size in sizes:
        cut.insert(numbered_images(start, size), embeddings[start : start + size])
        for image in range(start, start + size):
            single.insert(numbered_images(image, 1), embeddings[image : image + 1])
        start += size
    assert cut.events() == single.events()
    assert (cut.stm.ids, cut.ltm.ids) == (single.stm.ids, single.ltm.ids)
    torch.testing.assert_close(cut.stm.values, single.stm.values)
    assert stored_numbers(cut) == stored_numbers(single)


EVERY_KIND: dict[str, Callable[..., Any]] = {
    "centroid": partial(
        CentroidMemory,
        20,
        IMAGE_SHAPE,
        DIM,
        stm_centroids=5,
        ltm_centroids=3,
        images_per_centroid=3,
        window=25,
        novelty_percentile=0.8,
    ),
    "fifo": partial(FifoMemory, 10, IMAGE_SHAPE, DIM, embedding_rate=0.5),
    "reservoir": partial(ReservoirMemory, 10, IMAGE_SHAPE, DIM, embedding_rate=0.5),
    "minred": partial(MinRedMemory, 10, IMAGE_SHAPE, DIM),
    "part_and_select": partial(PartAndSelectMemory, 10, IMAGE_SHAPE, DIM),
    "patches": partial(PatchMemory, 5, IMAGE_SHAPE, DIM, patches_per_centroid=3, least_patches=1, window=25),
}
every_kind = pytest.mark.parametrize("make", EVERY_KIND.values(), ids=EVERY_KIND)


@every_kind
def test_a_single_image_can_be_drawn(make: Callable[[], Any]) -> None:
    memory = make()
    assert memory.sample(1) is None
    assert memory.sample(0) is None
    memory.insert(numbered_images(0, 1), torch.ones(1, DIM))
    assert memory.sample(1).ids.tolist() == [0]
    assert memory.sample(2) is None


@pytest.mark.parametrize("seed", [0, 7])
@every_kind
def test_draws_use_a_seeded_generator_of_their_own(make: Callable[..., Any], seed: int) -> None:
    """Insertions use another generator, so that later versions can repeat a run."""
    memory, generator = make(seed=seed), numpy_generator(seed, "replay")
    memory.insert(numbered_images(0, 4), torch.eye(4, DIM))
    for n in (3, 1, 4):
        assert memory.sample(n).ids.tolist() == generator.choice(4, size=n, replace=False).tolist()


def live(memory: Any, start: int, stop: int) -> None:
    """The images with these numbers, four at a time, and a small replay after each mini-batch: much stays as it is."""
    embeddings = torch.from_numpy(drifting_clusters(120, DIM, clusters=6, task=40, seed=0))
    for first in range(start, stop, 4):
        rows = embeddings[first : min(first + 4, stop)]
        images = numbered_images(first, len(rows))
        memory.insert(images, rows, embed=lambda images: images.flatten(1)[:, -DIM:].float())
        batch = memory.sample(min(len(memory), 3))
        memory.refresh(batch.ids, batch.images.flatten(1)[:, :DIM].float())


def assert_same_state(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name], name


@every_kind
def test_a_state_is_a_copy(make: Callable[[], Any]) -> None:
    """Neither the saved nor the loaded memory changes it later."""
    memory, loaded = make(), make()
    live(memory, 0, 40)
    state = memory.state_dict()
    taken = copy.deepcopy(state)
    loaded.load_state_dict(state)
    for each in (memory, loaded):
        live(each, 40, 80)
    assert_same_state(taken, state)
    assert_same_state(memory.state_dict(), loaded.state_dict())


@pytest.mark.parametrize("images", [0, 4, 60])
@every_kind
def test_loading_replaces_the_complete_state(make: Callable[[], Any], images: int) -> None:
    memory, used = make(), make()
    live(memory, 0, images)
    live(used, 40, 120)
    used.load_state_dict(memory.state_dict())
    assert len(used) == len(memory)
    for stop in (images + 4, images + 30):
        for each in (memory, used):
            live(each, each._seen, stop)
        assert_same_state(memory.state_dict(), used.state_dict())


@every_kind
def test_stored_embeddings_are_detached(make: Callable[[], Any]) -> None:
    """A stored graph would keep all earlier batches alive."""
    memory = make()
    weight = torch.ones((), requires_grad=True)

    def embed(images: torch.Tensor) -> torch.Tensor:
        return weight * images.flatten(1)[:, -DIM:].float()

    for first in range(0, 40, 4):
        images = numbered_images(first, 4)
        memory.insert(images, weight * torch.randn(4, DIM), embed=embed)
        batch = memory.sample(3)
        memory.refresh(batch.ids, weight * torch.randn(3, DIM))
    if isinstance(memory, PatchMemory):
        memory.after_sleep(embed)
    kept = [value for value in vars(memory).values() if isinstance(value, torch.Tensor)]
    kept += [value for value in memory.state_dict().values() if isinstance(value, torch.Tensor)]
    assert not any(value.requires_grad for value in kept)
