from __future__ import annotations

from typing import Any

import pytest
import torch

from climb.contrib.pcmc.memory import PatchMemory
from climb.contrib.released import ReferenceMemory
from climb.memory import CentroidMemory, FifoMemory, Memory, MinRedMemory
from climb.memory.snapshot import MemorySnapshot, saved_images, take_snapshot

SHAPE = (3, 8, 8)


def snapshot_of(memory: Memory, **changes: Any) -> MemorySnapshot:
    """The snapshot of a memory, with changes to its state; a change to None removes an entry."""
    state = {**memory.state_dict(), **changes}
    snapshot = take_snapshot(type(memory), {name: value for name, value in state.items() if value is not None})
    assert snapshot is not None
    return snapshot


def centroid(kind: type = CentroidMemory) -> Memory:
    memory: Memory = kind(60, SHAPE, 4, stm_centroids=6, ltm_centroids=3, images_per_centroid=5, window=30)
    return memory


def filled(memory: Memory, batches: int = 20) -> Memory:
    """Inserts images whose pixels are their number, modulo 256."""
    generator = torch.Generator().manual_seed(0)
    for batch in range(batches):
        numbers = torch.arange(batch * 10, batch * 10 + 10)
        images = (numbers % 256).to(torch.uint8)[:, None, None, None].expand(10, *SHAPE).clone()
        memory.insert(images, torch.randn(10, 4, generator=generator), embed=None)
    return memory


MEMORIES = {
    "centroid": centroid,
    "reference": lambda: centroid(ReferenceMemory),
    "patches": lambda: PatchMemory(6, SHAPE, 4, patches_per_centroid=5, least_patches=2, window=30),
    "fifo": lambda: FifoMemory(60, SHAPE, 4),
    "minred": lambda: MinRedMemory(60, SHAPE, 4),
}


@pytest.mark.parametrize("name", MEMORIES)
def test_every_stored_image_has_its_number(name: str) -> None:
    memory = filled(MEMORIES[name]())
    snapshot = snapshot_of(memory)
    assert snapshot.seen == 200
    assert len(snapshot.images) == len(memory)
    if name == "reference":  # copies have negative ids
        return
    for group in snapshot.groups:
        assert group.images[:, 0, 0, 0].tolist() == [number % 256 for number in group.numbers]


@pytest.mark.parametrize("kind", [CentroidMemory, ReferenceMemory])
def test_centroids_equal_those_of_the_memory(kind: type) -> None:
    memory = filled(centroid(kind))
    snapshot = snapshot_of(memory)
    for tier, name in ((memory.ltm, "long-term"), (memory.stm, "short-term")):  # type: ignore[attr-defined]
        groups = [group for group in snapshot.groups if group.tier == name]
        order = tier.centroids.argsort()  # oldest first; the reference memory has another order
        assert [group.centroid for group in groups] == tier.centroids[order].tolist()
        assert [group.numbers for group in groups] == [tier.ids[place] for place in order]
        assert [group.updated for group in groups] == tier.updated[order].tolist()
        assert torch.equal(torch.stack([g.value for g in groups if g.value is not None]), tier.values[order])
    assert [group.tier for group in snapshot.groups] == sorted(group.tier for group in snapshot.groups)


def test_births_missing_from_an_older_state_come_from_its_events() -> None:
    memory = filled(centroid())
    state = memory.state_dict()
    snapshots = [snapshot_of(memory), snapshot_of(memory, born=None)]
    memory.load_state_dict({name: value for name, value in state.items() if name != "born"})
    snapshots.append(snapshot_of(memory))
    first, *others = [[group.born for group in snapshot.groups] for snapshot in snapshots]
    assert others == [first, first]
    assert None not in first


def test_a_patch_centroid_is_born_with_its_first_patch() -> None:
    snapshot = snapshot_of(filled(MEMORIES["patches"]()))
    assert {group.tier for group in snapshot.groups} == {"short-term", "long-term"}
    assert [group.born for group in snapshot.groups] == [group.numbers[0] for group in snapshot.groups]


def test_a_short_term_centroid_is_born_with_its_anchor() -> None:
    snapshot = snapshot_of(filled(centroid()))
    short = [group for group in snapshot.groups if group.tier == "short-term"]
    assert short
    assert [group.born for group in short] == [group.numbers[0] for group in short]


def test_births_do_not_depend_on_events() -> None:
    memory = filled(centroid())
    whole, snapshot = snapshot_of(memory), snapshot_of(memory, events=memory.state_dict()["events"][-1:])
    assert [group.born for group in snapshot.groups] == [group.born for group in whole.groups]
    assert {group.born_before for group in snapshot.groups} == {None}


def test_without_births_and_early_events_an_upper_bound_is_known() -> None:
    memory = filled(centroid())
    events = memory.state_dict()["events"][-30:]  # a memory keeps only the latest events
    oldest = int(events[0, 0])
    whole, snapshot = snapshot_of(memory), snapshot_of(memory, born=None, events=events)
    unknown = [group for group in snapshot.groups if group.born is None]
    assert 0 < len(unknown) < len(snapshot.groups)
    for group, exact in zip(snapshot.groups, whole.groups, strict=True):
        assert exact.born is not None
        assert group.born == exact.born if exact.born >= oldest else exact.born < oldest == group.born_before


def test_an_empty_memory_and_one_without_groups_give_no_snapshot() -> None:
    empty = FifoMemory(5, SHAPE, 4)
    assert take_snapshot(FifoMemory, empty.state_dict()) is None
    assert empty.groups() == []
    assert take_snapshot(object, filled(empty).state_dict()) is None


@pytest.mark.parametrize("name", MEMORIES)
def test_groups_are_copies(name: str) -> None:
    memory: Any = filled(MEMORIES[name]())
    before = [group.images.clone() for group in memory.groups()]
    for group in memory.groups():
        group.images.fill_(7)
    assert all(torch.equal(group.images, images) for group, images in zip(memory.groups(), before, strict=True))


@pytest.mark.parametrize("name", MEMORIES)
def test_saved_images_are_those_of_the_state_in_its_order(name: str) -> None:
    memory = filled(MEMORIES[name]())
    images = saved_images(memory.state_dict())
    assert images is not None
    assert torch.equal(images, memory.state_dict()["images"])
    assert len(images) == len(memory)
    assert saved_images({}) is None
