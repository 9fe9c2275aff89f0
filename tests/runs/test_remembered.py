from __future__ import annotations

from pathlib import Path

import pytest
import torch

from climb.errors import ClimbError
from climb.memory import CentroidMemory, FifoMemory, Memory, MinRedMemory, ReferenceMemory
from climb.memory.patches import PatchMemory
from climb.runs import RunFolder
from climb.runs.remembered import SMALL, Remembered, remembered
from climb.state import load_tree

SHAPE = (3, 8, 8)


def centroid(kind: type = CentroidMemory) -> Memory:
    memory: Memory = kind(60, SHAPE, 4, stm_centroids=6, ltm_centroids=3, images_per_centroid=5, window=30)
    return memory


def filled(memory: Memory, batches: int = 20) -> Memory:
    """Images that say their own number, so that what is remembered can be checked against it."""
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
def test_every_stored_image_is_found_under_its_number(name: str) -> None:
    memory = filled(MEMORIES[name]())
    found = remembered(memory.state_dict())
    assert found is not None
    assert found.seen == 200
    assert len(found.images) == len(memory)
    if name == "reference":  # copies have names beyond the stream's numbers
        return
    for group in found.groups:
        assert group.images[:, 0, 0, 0].tolist() == [number % 256 for number in group.numbers]


@pytest.mark.parametrize("kind", [CentroidMemory, ReferenceMemory])
def test_centroids_are_those_of_the_memory(kind: type) -> None:
    memory = filled(centroid(kind))
    found = remembered(memory.state_dict())
    assert found is not None
    for tier, name in ((memory.ltm, "long-term"), (memory.stm, "short-term")):  # type: ignore[attr-defined]
        groups = [group for group in found.groups if group.tier == name]
        order = tier.centroids.argsort()  # oldest first, which a memory with faults does not keep to
        assert [group.centroid for group in groups] == tier.centroids[order].tolist()
        assert [group.numbers for group in groups] == [tier.ids[place] for place in order]
        assert [group.updated for group in groups] == tier.updated[order].tolist()
        assert torch.equal(torch.stack([g.value for g in groups if g.value is not None]), tier.values[order])
    assert [group.tier for group in found.groups] == sorted(group.tier for group in found.groups)


def test_a_memory_continued_from_one_that_noted_no_births_tells_what_its_events_tell() -> None:
    memory = filled(centroid())
    whole = memory.state_dict()
    older = {name: value for name, value in whole.items() if name != "born"}
    memory.load_state_dict(older)
    ages = [remembered(state) for state in (whole, older, memory.state_dict())]
    first, *others = [[group.born for group in found.groups] for found in ages if found is not None]
    assert others == [first, first]
    assert None not in first


def test_a_patch_centroid_was_born_with_its_first_patch() -> None:
    found = remembered(filled(MEMORIES["patches"]()).state_dict())
    assert found is not None
    assert {group.tier for group in found.groups} == {"short-term", "long-term"}
    assert [group.born for group in found.groups] == [group.numbers[0] for group in found.groups]


def test_a_short_term_centroid_was_born_with_its_anchor() -> None:
    found = remembered(filled(centroid()).state_dict())
    assert found is not None
    short = [group for group in found.groups if group.tier == "short-term"]
    assert short
    assert [group.born for group in short] == [group.numbers[0] for group in short]


def test_every_age_is_known_however_long_the_stream() -> None:
    state = filled(centroid()).state_dict()
    whole = remembered(state)
    state["events"] = state["events"][-1:]
    found = remembered(state)
    assert whole is not None
    assert found is not None
    assert [group.born for group in found.groups] == [group.born for group in whole.groups]
    assert {group.born_before for group in found.groups} == {None}


def test_a_checkpoint_without_births_tells_how_old_a_centroid_is_at_least() -> None:
    state = filled(centroid()).state_dict()
    whole = remembered(state)
    del state["born"]
    state["events"] = state["events"][-30:]  # a memory keeps the last ones only
    oldest = int(state["events"][0, 0])
    found = remembered(state)
    assert whole is not None
    assert found is not None
    unknown = [group for group in found.groups if group.born is None]
    assert 0 < len(unknown) < len(found.groups)
    for group, exact in zip(found.groups, whole.groups, strict=True):
        assert exact.born is not None
        assert group.born == exact.born if exact.born >= oldest else exact.born < oldest == group.born_before


def test_what_cannot_be_shown_is_nothing() -> None:
    assert remembered({}) is None
    assert remembered(FifoMemory(5, SHAPE, 4).state_dict()) is None


def test_a_folder_keeps_it_small(tmp_path: Path) -> None:
    state = {"images": torch.full((3, 3, 96, 96), 7, dtype=torch.uint8), "ids": torch.tensor([4, 2, 9]), "seen": 10}
    content = remembered(state)
    assert content is not None
    folder = RunFolder(tmp_path)
    assert folder.load_memory() is None
    folder.save_memory(content.with_embeddings(torch.arange(6.0).reshape(3, 2)))
    loaded = folder.load_memory()
    assert isinstance(loaded, Remembered)
    (group,) = loaded.groups
    assert (loaded.seen, group.numbers, group.centroid) == (10, [2, 4, 9], None)
    assert torch.equal(group.images, torch.full((3, 3, SMALL, SMALL), 7, dtype=torch.uint8))
    assert group.embeddings is not None
    assert group.embeddings.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_checkpoint_gives_its_memory_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"engine": {"memory": filled(centroid()).state_dict(), "network": {"w": torch.zeros(2)}}})
    loaded = folder.load_memory()
    assert loaded is not None
    assert loaded.seen == 200
    with pytest.raises(ClimbError, match=r"nothing under engine\.teacher"):
        load_tree(folder.checkpoint_path, kind="checkpoint", at=("engine", "teacher"))
