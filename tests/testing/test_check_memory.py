"""`check_memory` accepts sound memories and names the contract that each faulty one violates."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from climb.errors import InputError
from climb.memory import CentroidMemory, FifoMemory, Group, InsertReport, ReplayBatch, ReservoirMemory
from climb.memory.flat import FlatMemory
from climb.memory.minred import MinRedMemory
from climb.testing import ContractViolation, check_memory


class HonestMemory:
    """A small sound memory of images and embeddings with random replacement."""

    space: ClassVar[Any] = "projector"
    inserts: ClassVar[Any] = "after"
    bounded: ClassVar[bool] = True
    image_shape = (3, 4, 4)
    embedding_dim = 6
    capacity = 12

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.seen = 0
        self.ids: list[int] = []
        self.images: list[torch.Tensor] = []
        self.embeddings: list[torch.Tensor] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.capacity * (48 + 24)

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        novel = replaced = 0
        for image, embedding in zip(images, embeddings, strict=True):
            if len(self.ids) < self.capacity:
                self.ids.append(self.seen)
                self.images.append(image.clone())
                self.embeddings.append(embedding.clone())
                novel += 1
            else:
                slot = int(self.rng.integers(self.capacity))
                self.ids[slot] = self.seen
                self.images[slot] = image.clone()
                self.embeddings[slot] = embedding.clone()
                replaced += 1
            self.seen += 1
        return InsertReport(novel=novel, replaced=replaced)

    def sample(self, n: int) -> ReplayBatch | None:
        if len(self.ids) < n:
            return None
        return self.batch([int(slot) for slot in self.rng.choice(len(self.ids), size=n, replace=False)])

    def batch(self, slots: list[int]) -> ReplayBatch:
        return ReplayBatch(
            images=torch.stack([self.images[slot] for slot in slots]),
            ids=torch.tensor([self.ids[slot] for slot in slots]),
            embeddings=torch.stack([self.embeddings[slot] for slot in slots]),
        )

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        for image, embedding in zip(ids.tolist(), embeddings, strict=True):
            if image in self.ids:
                self.embeddings[self.ids.index(image)] = embedding.clone()

    def state_dict(self) -> dict[str, Any]:
        return {
            "rng": self.rng.bit_generator.state,
            "seen": self.seen,
            "ids": list(self.ids),
            "images": [image.clone() for image in self.images],
            "embeddings": [embedding.clone() for embedding in self.embeddings],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.seen = state["seen"]
        self.ids = list(state["ids"])
        self.images = [image.clone() for image in state["images"]]
        self.embeddings = [embedding.clone() for embedding in state["embeddings"]]


class ReturnsNoReport(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> Any:
        super().insert(images, embeddings, embed=embed)


class SamplesTuples(HonestMemory):
    def sample(self, n: int) -> Any:
        batch = super().sample(n)
        return None if batch is None else (batch.images, batch.ids)


class SamplesAListOfIds(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        drawn = super().batch(slots)
        return ReplayBatch(images=drawn.images, ids=drawn.ids.tolist(), embeddings=drawn.embeddings)  # type: ignore[arg-type]


class ExceedsItsCapacity(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        self.ids += range(self.seen, self.seen + len(images))
        self.images += list(images.clone())
        self.embeddings += list(embeddings.clone())
        self.seen += len(images)
        return InsertReport(novel=len(images))


class ExceedsItsCapacityByALargeBatch(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        if len(images) <= self.capacity:
            return super().insert(images, embeddings)
        return ExceedsItsCapacity.insert(self, images, embeddings)  # type: ignore[arg-type]


class StoresTwice(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        if len(self.images) >= 2:
            self.images[0] = self.images[-1].clone()
        return report


class SamplesAnIdTwice(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return None if len(self.ids) < n else self.batch(self.rng.choice(len(self.ids), size=n).tolist())


class SamplesPositionsAsIds(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images, ids=torch.tensor(slots), embeddings=batch.embeddings)


class AltersImages(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images + 1, ids=batch.ids, embeddings=batch.embeddings)


class SamplesFloats(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images.float(), ids=batch.ids, embeddings=batch.embeddings)


class SamplesTooFew(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return super().sample(min(n, len(self.ids))) if self.ids else None


class SamplesNone(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return super().sample(n) if len(self.ids) >= 2 * n else None


class ReportsNothing(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        return InsertReport(novel=report.novel)


class HidesGrowth(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        super().insert(images, embeddings)
        return InsertReport(replaced=len(images))


class ReportsRejectedImages(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        return InsertReport(novel=report.novel, rejected=report.replaced)


class IgnoresTheSeed(HonestMemory):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng()


class AliasesImages(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        for slot, image in enumerate(self.ids):
            row = image - (self.seen - len(images))
            if row >= 0:
                self.images[slot] = images[row]
        return report


class AliasesEmbeddings(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        for image, embedding in zip(ids.tolist(), embeddings, strict=True):
            if image in self.ids:
                self.embeddings[self.ids.index(image)] = embedding


class OverwritesEmbeddings(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        embeddings /= embeddings.norm(dim=1, keepdim=True)
        return report


class RefreshesBySlot(HonestMemory):
    """Uses an id as a slot, which is correct until the slot holds another image."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        for image, embedding in zip(ids.tolist(), embeddings, strict=True):
            self.embeddings[image % len(self.embeddings)] = embedding.clone()


class RefreshesInOrderOfSlots(HonestMemory):
    """Ignores the order of ids: embeddings go to stored images in the order of slots."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        given = ids.tolist()
        slots = [slot for slot, image in enumerate(self.ids) if image in given]
        for slot, embedding in zip(slots, embeddings, strict=False):
            self.embeddings[slot] = embedding.clone()


class ForgetsItsGenerator(HonestMemory):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({**state, "rng": self.rng.bit_generator.state})


class ForgetsEmbeddings(HonestMemory):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({**state, "embeddings": [torch.zeros(self.embedding_dim) for _ in state["embeddings"]]})


class SharesItsState(HonestMemory):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "images": self.images}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.images = state["images"]


class SavesADtype(HonestMemory):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "dtype": np.dtype("uint8")}


class CountsNoBytes(HonestMemory):
    @property
    def nbytes(self) -> int:
        return 0


class CountsEverMoreBytes(HonestMemory):
    @property
    def nbytes(self) -> int:
        return self.seen * (48 + 24)


class RejectsAll(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        return InsertReport(rejected=len(images))


class SamplesTheFirst(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return self.batch(list(range(n))) if 0 < n <= len(self.ids) else None


class ShiftsEmbeddings(HonestMemory):
    """Samples each image with the embedding of its neighbour."""

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return ReplayBatch(images=batch.images, ids=batch.ids, embeddings=batch.embeddings.roll(1, 0))


class KeepsOldEmbeddings(HonestMemory):
    """A new image keeps the embedding of the image that it replaces."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        before = list(self.embeddings)
        report = super().insert(images, embeddings)
        self.embeddings[: len(before)] = before
        return report


class StartsWithZeroEmbeddings(HonestMemory):
    """Embeddings are zero until the first refresh."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        return super().insert(images, torch.zeros_like(embeddings))


class RejectsOnceFull(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        room = self.capacity - len(self.ids)
        report = super().insert(images[:room], embeddings[:room])
        self.seen += len(images[room:])
        return InsertReport(novel=report.novel, rejected=len(images[room:]))


class IgnoresRefresh(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Stored targets must not move."""


class PrefersLowSlots(HonestMemory):
    """Samples images of low slots far more often."""

    def sample(self, n: int) -> ReplayBatch | None:
        if len(self.ids) < n:
            return None
        chance = 0.5 ** np.arange(len(self.ids))
        return self.batch(self.rng.choice(len(self.ids), size=n, replace=False, p=chance / chance.sum()).tolist())


class KeepsUnitVectors(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        unit = torch.nn.functional.normalize(batch.embeddings, dim=1)
        return ReplayBatch(images=batch.images, ids=batch.ids, embeddings=unit)


class ReseedsWhenSaved(HonestMemory):
    """Taking a state changes the following draws."""

    def state_dict(self) -> dict[str, Any]:
        self.rng = np.random.default_rng(int(self.rng.integers(2**31)))
        return super().state_dict()


class DropsStaleIdsOnly(HonestMemory):
    """Removes stale ids, but not their embeddings."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        stored = [image for image in ids.tolist() if image in self.ids]
        for image, embedding in zip(stored, embeddings, strict=False):
            self.embeddings[self.ids.index(image)] = embedding.clone()


class OverwritesIds(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(ids, embeddings)
        ids.fill_(-1)


class ReportsRejectedAsNovel(HonestMemory):
    says = "novel"

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        room = self.capacity - len(self.ids)
        report = super().insert(images[:room], embeddings[:room])
        rest = len(images) - report.novel
        self.seen += rest
        return dataclasses.replace(report, **{self.says: getattr(report, self.says) + rest})


class ReportsRejectedAsReplaced(ReportsRejectedAsNovel):
    says = "replaced"


class StoresOneOfABatch(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images[:1], embeddings[:1])
        return dataclasses.replace(report, novel=report.novel + len(images) - 1)


class LeavesEmbeddingsUncounted(HonestMemory):
    @property
    def nbytes(self) -> int:
        return self.capacity * 48


class CountsEverMoreBytesBesideSimilarities(HonestMemory):
    """The bytes of similarities must not hide the growth."""

    @property
    def nbytes(self) -> int:
        return 4 * 500**2 + self.seen * (48 + 24)


class SamplesDoubles(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.double())


class SamplesEmbeddingsOfAnotherDevice(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.to("meta"))


class SamplesEmbeddingsWithGradient(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.requires_grad_())


class ChangesItsCapacity(HonestMemory):
    @property
    def capacity(self) -> int:  # type: ignore[override]
        return max(12, 2 * len(self.ids))


class HasInfiniteCapacity(HonestMemory):
    capacity = float("inf")  # type: ignore[assignment]


class ExceedsItsCapacityWhileEmbedding(HonestMemory):
    """Stores all images of a mini-batch and removes surplus ones at its end."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        ExceedsItsCapacity.insert(self, images, embeddings)  # type: ignore[arg-type]
        over = max(0, len(self.ids) - self.capacity)
        if over:
            embed(torch.stack(self.images))
        del self.ids[:over], self.images[:over], self.embeddings[:over]
        return InsertReport(novel=len(images) - min(over, len(images)), replaced=min(over, len(images)))


class UsesNegativeIds(RejectsOnceFull):
    """Ids count down from -1."""

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return dataclasses.replace(batch, ids=-1 - batch.ids)

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(-1 - ids, embeddings)


class RejectsTheFirst(HonestMemory):
    """Holds no bytes while it is empty."""

    @property
    def nbytes(self) -> int:
        return 72 * len(self.ids)

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        skipped = min(len(images), max(0, 7 - self.seen))
        self.seen += skipped
        report = super().insert(images[skipped:], embeddings[skipped:])
        return dataclasses.replace(report, rejected=skipped)


class ForgetsOldImages(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        young = [slot for slot, image in enumerate(self.ids) if image >= self.seen - 20]
        for kept in (self.ids, self.images, self.embeddings):
            kept[:] = [kept[slot] for slot in young]  # type: ignore[call-overload]
        return report


class StoresHalfPrecision(HonestMemory):
    """Counts two bytes per number."""

    @property
    def nbytes(self) -> int:
        return self.capacity * (48 + 12)

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        return super().insert(images, embeddings.bfloat16())

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(ids, embeddings.bfloat16())

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.float())


class AllocatesSimilaritiesOnceFull(HonestMemory):
    """Allocates the similarity matrix when the first image is replaced."""

    capacity = 60

    @property
    def nbytes(self) -> int:
        return self.capacity * 72 + (4 * self.capacity**2 if self.seen > self.capacity else 0)


class ReportsManyEvents(HonestMemory):
    """Reports the largest possible event counts."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        before = len(self.ids)
        report = super().insert(images, embeddings)
        seen = before + len(images)
        events = {"evicted": report.replaced, "pruned": report.replaced, "merged": seen - 1, "promoted": seen}
        return dataclasses.replace(report, **events)


class StartsWithAnImage(HonestMemory):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.insert(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 6))


class BufferedMemory(HonestMemory):
    """Stores embeddings in one tensor, which `state_dict` copies and `nbytes` counts."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.buffer = torch.zeros(self.capacity, self.embedding_dim)

    def write_buffer(self) -> None:
        for slot, embedding in enumerate(self.embeddings):
            self.buffer[slot] = embedding
            self.embeddings[slot] = self.buffer[slot]

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        self.write_buffer()
        return report

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(ids, embeddings)
        self.write_buffer()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "embeddings": self.buffer[: len(self)].clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.write_buffer()


class PutsLiveTensorsInItsState(BufferedMemory):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "embeddings": self.buffer[: len(self)]}


class LeavesABufferUncounted(HonestMemory):
    """Keeps a second copy of its embeddings."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        self.copies = np.stack([embedding.numpy() for embedding in self.embeddings])
        return report


class RaisesOnStaleIds(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        for image in ids.tolist():
            self.ids.index(image)
        super().refresh(ids, embeddings)


class AssertsInInsert(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        assert len(images) < 5, "too many"
        return super().insert(images, embeddings)


class LosesGroups(BufferedMemory):
    def groups(self) -> list[Group]:
        images = torch.stack(self.images[1:])
        return [Group(tier="stored", centroid=None, numbers=self.ids[1:], images=images)]


@pytest.mark.parametrize(
    ("violating", "message"),
    [
        (RaisesOnStaleIds, r"^refresh ignores ids of images no longer stored: ValueError: -?\d+ is not in list"),
        (AssertsInInsert, r"^a memory stores, samples and refreshes mini-batches: AssertionError: too many"),
    ],
)
def test_an_exception_names_the_contract_and_its_own_line(violating: type[HonestMemory], message: str) -> None:
    message = "(?s)" + message + r".*\(.*test_check_memory\.py, line \d+\)$"
    with pytest.raises(ContractViolation, match=message) as raised:
        check_memory(violating)
    line = int(str(raised.value).rsplit(" ", 1)[1].rstrip(")"))
    source = Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]
    assert "self.ids.index(image)" in source or "too many" in source


@pytest.mark.parametrize("kind", [HonestMemory, BufferedMemory])
def test_an_honest_memory_passes(kind: type[HonestMemory]) -> None:
    check_memory(kind)


@pytest.mark.parametrize(
    ("violating", "message"),
    [
        (ReturnsNoReport, "insert returned NoneType, not an InsertReport"),
        (SamplesTuples, "sample returned tuple, not ReplayBatch or None"),
        (SamplesAListOfIds, "sampled ids are list, not a tensor"),
        (ExceedsItsCapacity, "13 images stored; the capacity is 12"),
        (ExceedsItsCapacityByALargeBatch, "27 images stored; the capacity is 12"),
        (StoresTwice, "stored twice"),
        (SamplesAnIdTwice, "returned an id twice"),
        (SamplesPositionsAsIds, "now identifies another image"),
        (AltersImages, "was never inserted"),
        (SamplesFloats, r"sampled images are torch\.float32"),
        (SamplesTooFew, "returned a batch with"),
        (SamplesNone, "returned None with"),
        (ReportsNothing, r"1 images inserted, but novel \+ joined \+ replaced \+ rejected = 0"),
        (HidesGrowth, "grew by 1 images"),
        (ReportsRejectedImages, "1 of 1 new images are stored, but the report has 1 rejected"),
        (IgnoresTheSeed, "two memories with the same seed differ"),
        (AliasesImages, "overwriting tensors"),
        (AliasesEmbeddings, "overwriting tensors"),
        (OverwritesEmbeddings, "insert changed the embeddings"),
        (RefreshesBySlot, "no longer stored changed the memory"),
        (RefreshesInOrderOfSlots, "in another order"),
        (ForgetsItsGenerator, "the loaded memory differs"),
        (ForgetsEmbeddings, "the loaded memory differs"),
        (SharesItsState, r"state\['images'\]\[\d+\] changed after state_dict had returned"),
        (SavesADtype, r"state\['dtype'\] is a UInt8DType"),
        (CountsNoBytes, "nbytes is 0"),
        (CountsEverMoreBytes, "nbytes grew to"),
        (RejectsAll, "nothing is stored after 12 images; the capacity is 12"),
        (SamplesTheFirst, r"sample\(3\) returned the same 3 images 50 times, with 12 stored"),
        (ShiftsEmbeddings, r"the embedding sampled with id \d+ is not that of its image"),
        (KeepsOldEmbeddings, r"the embedding sampled with id \d+ is not that of its image"),
        (StartsWithZeroEmbeddings, r"the embedding sampled with id \d+ is not that of its image: .* is 0\.000"),
        (StartsWithAnImage, "a new memory stores 1 images"),
        (ReseedsWhenSaved, "taking a state changed the memory"),
        (
            DropsStaleIdsOnly,
            "when mixed with ids of images no longer stored: sampled different embeddings",
        ),
        (OverwritesIds, "refresh changed the ids passed to it"),
        (ReportsRejectedAsNovel, "only 0 of 1 new images are stored, and the report does not account"),
        (ReportsRejectedAsReplaced, "only 0 of 1 new images are stored, and the report does not account"),
        (StoresOneOfABatch, r"only 1 of \d+ new images are stored, and the report does not account"),
        (LeavesEmbeddingsUncounted, "nbytes is 576, but the stored images and embeddings take 648"),
        (CountsEverMoreBytesBesideSimilarities, "nbytes grew to"),
        (SamplesDoubles, r"sampled embeddings are torch\.float64, not torch\.float32"),
        (SamplesEmbeddingsOfAnotherDevice, "sampled embeddings are on meta, not on cpu"),
        (SamplesEmbeddingsWithGradient, "sampled embeddings require a gradient"),
        (ChangesItsCapacity, "capacity changed from 12 to 14"),
        (HasInfiniteCapacity, "capacity is inf"),
        (PutsLiveTensorsInItsState, r"state\['embeddings'\] changed after state_dict had returned: it shares data"),
        (LeavesABufferUncounted, r"nbytes is 864, but the memory holds .* tensors of \d+ bytes"),
        (LosesGroups, r"groups\(\) does not return each stored image once"),
        (ExceedsItsCapacityWhileEmbedding, "13 images stored while insert calls embed; the capacity is 12"),
    ],
)
def test_a_violated_contract_is_named(violating: type[HonestMemory], message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        check_memory(violating)


@pytest.mark.parametrize("capacity", [12, 20])
def test_an_unsaved_ring_position_is_detected(capacity: int) -> None:
    """At any position of the ring."""

    class Ring(FlatMemory):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.place = 0

        def _slots(self, images: torch.Tensor, embeddings: Any, embed: Any) -> list[int]:
            empty = list(range(len(self), self.capacity))[: len(images)]
            full = len(images) - len(empty)
            self.place += full
            return [*empty, *((self.place - full + number) % self.capacity for number in range(full))]

    with pytest.raises(AssertionError, match="the loaded memory differs"):
        check_memory(lambda seed: Ring(capacity, (3, 8, 8), 16, seed=seed))


@pytest.mark.parametrize("event", ["evicted", "pruned", "merged", "promoted"])
def test_impossible_event_counts_are_detected(event: str) -> None:
    class Exaggerates(HonestMemory):
        def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
            return dataclasses.replace(super().insert(images, embeddings), **{event: 99})

    with pytest.raises(AssertionError, match=f"the report has 99 {event}, but"):
        check_memory(Exaggerates)


@pytest.mark.parametrize("kind", [RejectsOnceFull, IgnoresRefresh, PrefersLowSlots, KeepsUnitVectors])
def test_a_memory_may_choose_what_to_store_and_to_sample(kind: type[HonestMemory]) -> None:
    check_memory(kind)


@pytest.mark.parametrize(
    "kind",
    [
        UsesNegativeIds,
        RejectsTheFirst,
        ForgetsOldImages,
        StoresHalfPrecision,
        AllocatesSimilaritiesOnceFull,
        ReportsManyEvents,
    ],
)
def test_an_unusual_memory_that_satisfies_the_contract_passes(kind: type[HonestMemory]) -> None:
    check_memory(kind)


def test_similarities_may_take_more_bytes_than_images() -> None:
    check_memory(lambda seed: MinRedMemory(200, (3, 8, 8), 16, seed=seed))


@pytest.mark.parametrize("says", [10**9, sys.maxsize, float("inf"), None])
def test_an_unbounded_memory_may_report_any_capacity(says: Any) -> None:
    class Endless(ExceedsItsCapacity):
        bounded: ClassVar[bool] = False

        @property
        def capacity(self) -> Any:
            return len(self.ids) if says is None else says

        @property
        def nbytes(self) -> int:
            return 72 * len(self.ids)

    check_memory(Endless)


def test_an_unbounded_memory_may_grow() -> None:
    class Unbounded(ExceedsItsCapacity):
        bounded: ClassVar[bool] = False

        @property
        def nbytes(self) -> int:
            return 72 * max(1, len(self.ids))

    check_memory(Unbounded)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_flat_memories_pass(kind: type[FifoMemory | ReservoirMemory], seed: int) -> None:
    check_memory(lambda seed: kind(25, (3, 4, 4), 6, seed=seed), seed=seed)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_the_centroid_memory_passes(prune: Any, seed: int) -> None:
    made: list[CentroidMemory] = []

    def factory(seed: int) -> CentroidMemory:
        sizes: dict[str, Any] = {"stm_centroids": 6, "ltm_centroids": 3, "images_per_centroid": 4, "window": 20}
        made.append(CentroidMemory(20, (3, 4, 4), 6, novelty_percentile=0.8, prune=prune, seed=seed, **sizes))
        return made[-1]

    check_memory(factory, seed=seed)
    happened = {kind for memory in made for _, kind, _ in memory.events()}
    assert happened == {"created", "evicted", "promoted", "merged", "pruned"}


def test_a_factory_may_take_no_arguments() -> None:
    check_memory(lambda: FifoMemory(10, (3, 4, 4), 6))
    with pytest.raises(AssertionError, match="the loaded memory differs"):
        check_memory(lambda: ForgetsItsGenerator(3))


def test_a_factory_with_other_arguments_is_rejected() -> None:
    with pytest.raises(InputError, match=r"callable as factory\(seed=0\) or factory\(\)"):
        check_memory(FifoMemory)
