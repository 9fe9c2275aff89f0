from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from climb.contrib.released import ReferenceMemory, SwappedRefreshMemory
from climb.errors import ClimbError
from climb.files import write_json
from climb.memory import CentroidMemory, FifoMemory, MemorySnapshot
from climb.memory.snapshot import take_snapshot
from climb.methods import METHODS
from climb.runs import RunFolder
from climb.runs.memory_snapshot import SMALL, memory_class_of
from climb.settings.config import LearnerConfig, RunConfig, to_dict
from climb.state import load_tree

SHAPE = (3, 8, 8)
GOLDEN = Path(__file__).parents[1] / "golden" / "folders"


def folder_with_checkpoint(path: Path, memory: Any, **learner: Any) -> RunFolder:
    folder = RunFolder(path)
    config = RunConfig(learner=LearnerConfig(method="climb", **learner))
    write_json(folder.config_path, {"format_version": 1, "config": to_dict(config)})
    folder.save_checkpoint({"engine": {"memory": memory.state_dict(), "network": {"w": torch.zeros(2)}}})
    return folder


def filled_centroids(memory_class: type = CentroidMemory) -> Any:
    memory = memory_class(60, SHAPE, 4, stm_centroids=6, ltm_centroids=3, images_per_centroid=5, window=30)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        memory.insert(torch.zeros(10, *SHAPE, dtype=torch.uint8), torch.randn(10, 4, generator=generator))
    return memory


def test_a_folder_stores_small_images(tmp_path: Path) -> None:
    state = {"images": torch.full((3, 3, 96, 96), 7, dtype=torch.uint8), "ids": torch.tensor([4, 2, 9]), "seen": 10}
    snapshot = take_snapshot(FifoMemory, state)
    assert snapshot is not None
    folder = RunFolder(tmp_path)
    assert folder.load_memory() is None
    folder.save_memory(snapshot.with_embeddings(torch.arange(6.0).reshape(3, 2)))
    loaded = folder.load_memory()
    assert isinstance(loaded, MemorySnapshot)
    (group,) = loaded.groups
    assert (loaded.seen, group.numbers, group.centroid) == (10, [2, 4, 9], None)
    assert torch.equal(group.images, torch.full((3, 3, SMALL, SMALL), 7, dtype=torch.uint8))
    assert group.embeddings is not None
    assert group.embeddings.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_checkpoint_is_read_by_the_memory_of_its_method(tmp_path: Path) -> None:
    folder = folder_with_checkpoint(tmp_path, filled_centroids())
    loaded = folder.load_memory()
    assert loaded is not None
    assert loaded.seen == 200
    assert {group.tier for group in loaded.groups} == {"short-term", "long-term"}
    with pytest.raises(ClimbError, match=r"has no engine\.teacher"):
        load_tree(folder.checkpoint_path, kind="checkpoint", at=("engine", "teacher"))


@pytest.mark.parametrize("memory_class", [ReferenceMemory, SwappedRefreshMemory])
def test_a_checkpoint_is_read_by_the_memory_that_a_fault_substitutes(tmp_path: Path, memory_class: Any) -> None:
    _, setting = memory_class.replaces
    folder = folder_with_checkpoint(tmp_path, filled_centroids(memory_class), **{setting: True})
    loaded = folder.load_memory()
    assert loaded is not None
    assert loaded.seen == 200


def test_the_checkpoint_of_a_missing_plug_in_shows_nothing(tmp_path: Path) -> None:
    folder = folder_with_checkpoint(tmp_path, filled_centroids())
    header = folder.header()
    header["config"]["learner"]["method"] = "from-a-plug-in"
    write_json(folder.config_path, header)
    assert folder.load_memory() is None


@pytest.mark.parametrize("name", ["learner", "run-interrupted"])
def test_checkpoints_of_earlier_versions_are_readable(name: str) -> None:
    loaded = RunFolder(GOLDEN / name).load_memory()
    assert loaded is not None
    assert len(loaded.images) > 10
    assert all(group.born is not None for group in loaded.groups if group.tier != "stored")


def test_every_method_with_a_memory_shows_its_groups() -> None:
    for name in METHODS:
        memory_class = memory_class_of({"method": name})
        assert memory_class is type(None) or hasattr(memory_class, "snapshot_of"), name
