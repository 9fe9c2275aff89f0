"""PCMC's memory: worked examples of waking and of what a sleep leaves behind."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from climb.contrib.pcmc import memory as patches_module
from climb.contrib.pcmc.memory import FIRST_SLOTS, PatchMemory
from climb.errors import ClimbError, InputError
from climb.memory import InsertReport
from climb.memory.pairs import later_of_closest
from climb.testing import check_memory

DIM = 4
AXES = torch.eye(DIM)


def make(stm: int = 2, **changes: Any) -> PatchMemory:
    settings = {"patches_per_centroid": 3, "least_patches": 1, "novelty_percentile": 0.5} | changes
    return PatchMemory(stm, (3, 4, 4), DIM, **settings)


def patches(*shades: int) -> torch.Tensor:
    return torch.tensor(shades, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()


def put(memory: PatchMemory, shade: int, *embedding: float) -> InsertReport:
    return memory.insert(patches(shade), torch.tensor([embedding]))


def held(memory: PatchMemory, tier: Any) -> list[list[int]]:
    ids: list[list[int]] = getattr(memory, tier).ids
    return ids


def value(memory: PatchMemory, first: int) -> torch.Tensor:
    """The centroid whose first patch has this id."""
    pairs = [pair for tier in (memory.stm, memory.ltm) for pair in zip(tier.ids, tier.values, strict=True)]
    (found,) = [centroid for ids, centroid in pairs if ids[0] == first]
    return found


def promoted() -> PatchMemory:
    """Ids 0, 2, 3 are a long-term centroid along the first axis; id 1 a short-term one along the second."""
    memory = make()
    put(memory, 10, 1, 0, 0, 0)
    put(memory, 11, 0, 1, 0, 0)
    put(memory, 12, 1, 0, 0, 0)
    report = put(memory, 13, 1, 0, 0, 0)
    assert report == InsertReport(joined=1, promoted=1)
    return memory


def test_the_capacity_is_that_of_the_short_term_memory() -> None:
    assert PatchMemory(7, (3, 4, 4), DIM, patches_per_centroid=6).capacity == 7 * 6


@pytest.mark.parametrize("percentile", [0.3, 0.95])
def test_satisfies_the_contract(percentile: float) -> None:
    check_memory(
        lambda seed: PatchMemory(
            6,
            (3, 8, 8),
            16,
            patches_per_centroid=5,
            least_patches=2,
            window=40,
            novelty_percentile=percentile,
            seed=seed,
        )
    )


def test_every_patch_is_novel_until_the_short_term_memory_has_been_full() -> None:
    memory = make(stm=3)
    reports = [put(memory, shade, 1, 0, 0, 0) for shade in range(4)]
    assert [report.novel for report in reports] == [1, 1, 1, 0]
    assert reports[3] == InsertReport(joined=1)


def test_a_patch_joins_its_nearest_centroid_and_does_not_move_it() -> None:
    memory = make()
    put(memory, 0, 1, 0, 0, 0)
    put(memory, 1, 0, 1, 0, 0)  # distance 1 goes into the window: the threshold is 1
    report = put(memory, 2, 0, 3, 4, 0)  # distance 1 - 3/5 from the second
    assert report == InsertReport(joined=1)
    assert held(memory, "stm") == [[0], [1, 2]]
    torch.testing.assert_close(value(memory, 1), AXES[1])
    assert memory.threshold == pytest.approx((1.0 + 0.4) / 2)  # the median of both distances


def test_a_novel_patch_takes_the_place_of_the_oldest_centroid_however_recently_matched() -> None:
    memory = make()
    put(memory, 0, 1, 0, 0, 0)
    put(memory, 1, 0, 1, 0, 0)
    put(memory, 2, 1, 0, 0, 0)  # the older centroid is matched, which does not make it younger
    report = put(memory, 3, 0, 0, 1, 0)  # distance 1 from both, above the median of 1 and 0
    assert report == InsertReport(novel=1, evicted=1)
    assert held(memory, "stm") == [[3], [1]]
    assert len(memory) == 2
    torch.testing.assert_close(value(memory, 3), AXES[2])


def test_a_sleep_does_not_make_a_centroid_younger() -> None:
    memory = make()
    put(memory, 0, 1, 0, 0, 0)
    put(memory, 1, 0, 1, 0, 0)
    memory.after_sleep(lambda images: AXES[images[:, 0, 0, 0].long()])
    put(memory, 2, 1, 0, 0, 0)
    assert put(memory, 3, 0, 0, 1, 0).evicted == 1
    assert held(memory, "stm") == [[3], [1]]


def test_a_full_centroid_moves_to_the_long_term_memory() -> None:
    memory = promoted()
    assert held(memory, "ltm") == [[0, 2, 3]]
    assert held(memory, "stm") == [[1]]  # no copy stays behind
    assert memory.summary()["ltm_images"] == 3
    assert put(memory, 14, 0, 0, 1, 0) == InsertReport(novel=1)  # its place is free: nothing is evicted


def test_a_patch_known_to_the_long_term_memory_changes_only_the_window() -> None:
    memory = promoted()
    before = value(memory, 0)
    report = put(memory, 14, 1, 0, 0, 0)
    assert report == InsertReport(rejected=1)
    assert held(memory, "ltm") == [[0, 2, 3]]
    torch.testing.assert_close(value(memory, 0), before)


def test_a_patch_far_from_its_nearest_long_term_centroid_is_novel() -> None:
    memory = promoted()
    # 1 - 0.8 from the long-term centroid, its nearest; the median of 1, 0, 0 is 0
    assert put(memory, 14, 0.8, 0, 0.6, 0) == InsertReport(novel=1)


def test_one_call_equals_calls_of_single_patches() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(60, DIM, generator=generator)
    together, apart = make(stm=4), make(stm=4)
    together.insert(patches(*range(60)), embeddings)
    for number in range(60):
        put(apart, number, *embeddings[number].tolist())
    assert together.ltm.ids
    assert held(together, "stm") == held(apart, "stm")
    assert held(together, "ltm") == held(apart, "ltm")
    for ids in held(apart, "stm") + held(apart, "ltm"):
        torch.testing.assert_close(value(together, ids[0]), value(apart, ids[0]), rtol=1e-4, atol=1e-5)


def test_the_long_term_memory_grows_without_bound() -> None:
    memory = PatchMemory(50, (3, 4, 4), 8, patches_per_centroid=4, least_patches=1, novelty_percentile=0.8)
    assert memory.nbytes == FIRST_SLOTS * 48 + 50 * 8 * 4  # patches, and a value for each centroid
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 256, (4000, 3, 4, 4), generator=generator, dtype=torch.uint8)
    embeddings = torch.randn(4000, 8, generator=generator)
    for rows in torch.split(torch.arange(4000), 50):
        memory.insert(truth[rows], embeddings[rows])
    assert len(memory) > 2 * FIRST_SLOTS
    assert len(memory) > memory.capacity  # of the short-term memory alone
    assert not memory.bounded
    assert memory.summary()["stm_centroids"] <= 50
    reserved = (memory.nbytes - memory.state_dict()["values"].nbytes) // 48
    assert reserved >= len(memory)
    assert reserved in [FIRST_SLOTS << doubled for doubled in range(10)]  # room is doubled: copied seldom, however many
    batch = memory.sample(len(memory))
    assert batch is not None
    assert torch.equal(batch.images, truth[batch.ids])
    loaded = PatchMemory(50, (3, 4, 4), 8, patches_per_centroid=4, least_patches=1, novelty_percentile=0.8)
    loaded.load_state_dict(memory.state_dict())  # more than a new memory has room for
    assert loaded.nbytes == memory.nbytes  # which a result says, whether or not its run was interrupted
    batch = loaded.sample(len(memory))
    assert batch is not None
    assert torch.equal(batch.images, truth[batch.ids])


# -- sleep -----------------------------------------------------------------------------------------------------------


def test_rehearses_the_long_term_memory_and_what_was_seen_more_than_once() -> None:
    memory = promoted()
    assert memory.rehearsal()[:, 0, 0, 0].tolist() == [10, 12, 13]  # id 1 is alone
    put(memory, 14, 0, 1, 0, 0)
    assert sorted(memory.rehearsal()[:, 0, 0, 0].tolist()) == [10, 11, 12, 13, 14]
    assert make().rehearsal().shape == (0, 3, 4, 4)


def test_a_sleep_leaves_short_term_centroids_their_first_patch() -> None:
    memory = make()
    put(memory, 5, 1, 0, 0, 0)
    put(memory, 6, 0, 1, 0, 0)
    put(memory, 7, 1, 0, 0, 0)
    assert memory.after_sleep(lambda images: images[:, 0, 0, :DIM].float()) == 1
    assert held(memory, "stm") == [[0], [1]]
    torch.testing.assert_close(value(memory, 0), torch.full((DIM,), 5.0))  # as the encoder sees patch 0 now
    torch.testing.assert_close(value(memory, 1), torch.full((DIM,), 6.0))


@pytest.mark.parametrize(
    ("angles", "kept"),
    [
        ((0.0, 1.0, 1.1), [0, 2]),  # the last two are the closest: the later one goes
        ((0.0, 0.1, 1.0), [0, 3]),  # the first patch stays even in the closest pair
        ((0.0, 1.0, 0.2), [0, 2]),
    ],
)
def test_a_sleep_takes_the_later_of_the_closest_pair_from_a_full_centroid(
    angles: tuple[float, ...], kept: list[int]
) -> None:
    memory = promoted()
    angle_of = dict(zip((10, 12, 13), angles, strict=True)) | {11: 0.0}

    def embed(images: torch.Tensor) -> torch.Tensor:
        turned = torch.tensor([angle_of[shade] for shade in images[:, 0, 0, 0].tolist()])
        return torch.stack([turned.cos(), turned.sin(), 0 * turned, 0 * turned], 1)

    assert memory.after_sleep(embed) == 1
    assert held(memory, "ltm") == [kept]
    torch.testing.assert_close(value(memory, 0), embed(patches(10))[0])


def test_thinning_is_as_likely_as_the_formula_says_and_stops_at_the_least() -> None:
    memory = make(patches_per_centroid=30, least_patches=5, thinning=4.0)
    assert memory._chance(30) == 1.0
    assert memory._chance(20) == pytest.approx((15 / 25) ** 4)
    assert [memory._chance(n) for n in (1, 5)] == [0.0, 0.0]

    memory = promoted()  # M = 3, m = 1, q = 4
    sizes = []
    for _ in range(300):
        memory.after_sleep(lambda images: AXES[:1].expand(len(images), -1))
        sizes.append(len(held(memory, "ltm")[0]))
    assert sizes[0] == 2  # certain when full, and then with probability (1/2)^4
    assert sizes[-1] == 1
    assert memory.after_sleep(lambda images: AXES[:1].expand(len(images), -1)) == 0


def test_how_often_a_centroid_that_is_not_full_is_thinned() -> None:
    lost = 0
    for seed in range(400):
        memory = make(thinning=1.0, seed=seed)  # with two patches of three: (2 - 1) / (3 - 1)
        memory.insert(patches(0, 1, 2, 3), AXES[[0, 1, 0, 0]])
        memory.after_sleep(lambda images: torch.ones(len(images), DIM))
        lost += memory.after_sleep(lambda images: torch.ones(len(images), DIM))
    assert 160 < lost < 240  # four standard deviations around 200


def test_a_sleep_embeds_only_what_it_needs() -> None:
    memory = promoted()
    given: list[int] = []

    def embed(images: torch.Tensor) -> torch.Tensor:
        given.append(len(images))
        return torch.ones(len(images), DIM)

    memory.after_sleep(embed)
    assert given == [3, 2]  # the full centroid's patches, then the first of each centroid
    assert make().after_sleep(embed) == 0
    assert given == [3, 2]  # an empty memory has nothing to embed


def test_thinning_in_chunks_removes_the_same_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = torch.randn(200, DIM, generator=torch.Generator().manual_seed(0))

    def after_a_sleep() -> tuple[int, list[list[int]]]:
        memory = make(stm=4)
        memory.insert(patches(*range(200)), embeddings)
        return memory.after_sleep(lambda images: embeddings[images[:, 0, 0, 0].long()].roll(1, 1)), held(memory, "ltm")

    together = after_a_sleep()
    assert len(together[1]) > 4
    assert {len(ids) for ids in together[1]} == {2}  # each was full, and has lost one
    monkeypatch.setattr(patches_module, "CENTROIDS_AT_ONCE", 3)
    assert after_a_sleep() == together


def test_save_and_load_between_sleeps_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(3)
    embeddings = torch.randn(200, DIM, generator=generator)
    shades = patches(*range(200))

    def drive(memory: PatchMemory, rows: slice) -> None:
        memory.insert(shades[rows], embeddings[rows])
        memory.after_sleep(lambda images: embeddings[images[:, 0, 0, 0].long()].roll(1, 1))

    one = make(stm=4, seed=0)
    drive(one, slice(0, 100))
    other = make(stm=4, seed=9)
    other.load_state_dict(one.state_dict())
    for memory in (one, other):
        drive(memory, slice(100, 200))
    assert one.stm.ids == other.stm.ids
    assert one.ltm.ids == other.ltm.ids
    assert one.ltm.ids
    assert torch.equal(one.state_dict()["values"], other.state_dict()["values"])
    draws = one.sample(5), other.sample(5)
    assert draws[0] is not None
    assert draws[1] is not None
    assert torch.equal(draws[0].images, draws[1].images)


# -- the closest pair --------------------------------------------------------------------------------------------------


def test_the_later_of_the_closest_pair_is_that_of_a_search_over_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = [2, 7, 3, 12, 5]
    embeddings = torch.randn(sum(counts), 6, generator=generator)
    unit = torch.split(torch.nn.functional.normalize(embeddings, dim=1), counts)
    expected = [max(itertools.combinations(range(len(u)), 2), key=lambda p: float(u[p[0]] @ u[p[1]]))[1] for u in unit]
    assert later_of_closest(3 * embeddings, counts) == expected


def test_padding_is_not_closer_than_opposite_members() -> None:
    groups = [[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1], [0.0, -1.0]]]
    assert later_of_closest(torch.tensor([member for group in groups for member in group]), [2, 4]) == [1, 2]


# -- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"stm": 0}, "stm_centroids"),
        ({"window": 0}, "window"),
        ({"least_patches": 0}, "least_patches"),
        ({"least_patches": 3}, "patches_per_centroid"),
        ({"thinning": -1.0}, "thinning"),
        ({"novelty_percentile": 1.5}, "novelty_percentile"),
    ],
)
def test_impossible_settings_are_rejected(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        make(**changes)


def test_the_least_of_every_setting_works() -> None:
    memory = make(stm=1, window=1, least_patches=1, patches_per_centroid=2, thinning=0)
    assert memory.insert(patches(1, 2), AXES[[0, 0]]) == InsertReport(novel=1, joined=1, promoted=1)
    assert memory.after_sleep(lambda images: torch.ones(len(images), DIM)) == 1  # a power of 0: always
    assert memory.after_sleep(lambda images: torch.ones(len(images), DIM)) == 0  # never below the least


def test_input_that_cannot_be_stored_is_rejected() -> None:
    memory = make()
    assert memory.insert(patches(), torch.zeros(0, DIM)) == InsertReport()
    with pytest.raises(InputError, match=r"embeddings must have shape \(1, 4\)"):
        memory.insert(patches(1), None)
    with pytest.raises(InputError, match="uint8"):
        memory.insert(patches(1).float(), AXES[:1])
    with pytest.raises(ClimbError, match="diverged"):
        memory.insert(patches(1), torch.full((1, DIM), np.nan))
    with pytest.raises(InputError, match="does not fit"):
        memory.load_state_dict(make(stm=3).state_dict())
