"""`check_memory` passes what keeps the contract, and fails on one broken promise at a time."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from climb.errors import InputError
from climb.memory import CentroidMemory, FifoMemory, InsertReport, ReplayBatch, ReservoirMemory, check_memory
from climb.memory.flat import FlatMemory
from climb.memory.minred import MinRedMemory


class HonestMemory:
    """A small memory of images and embeddings that replaces at random and keeps every promise."""

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


class SaysNothing(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> Any:
        super().insert(images, embeddings, embed=embed)


class GivesPairs(HonestMemory):
    def sample(self, n: int) -> Any:
        batch = super().sample(n)
        return None if batch is None else (batch.images, batch.ids)


class GivesAListOfIds(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        drawn = super().batch(slots)
        return ReplayBatch(images=drawn.images, ids=drawn.ids.tolist(), embeddings=drawn.embeddings)  # type: ignore[arg-type]


class LeaksOverCapacity(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        self.ids += range(self.seen, self.seen + len(images))
        self.images += list(images.clone())
        self.embeddings += list(embeddings.clone())
        self.seen += len(images)
        return InsertReport(novel=len(images))


class OverflowsOnLargeBatch(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        if len(images) <= self.capacity:
            return super().insert(images, embeddings)
        return LeaksOverCapacity.insert(self, images, embeddings)  # type: ignore[arg-type]


class StoresTwice(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        if len(self.images) >= 2:
            self.images[0] = self.images[-1].clone()
        return report


class GivesAnIdTwice(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return None if len(self.ids) < n else self.batch(self.rng.choice(len(self.ids), size=n).tolist())


class NamesPositions(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images, ids=torch.tensor(slots), embeddings=batch.embeddings)


class AltersImages(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images + 1, ids=batch.ids, embeddings=batch.embeddings)


class GivesFloats(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return ReplayBatch(images=batch.images.float(), ids=batch.ids, embeddings=batch.embeddings)


class GivesTooFew(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return super().sample(min(n, len(self.ids))) if self.ids else None


class WithholdsImages(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return super().sample(n) if len(self.ids) >= 2 * n else None


class LosesCountOfImages(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        return InsertReport(novel=report.novel)


class HidesGrowth(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        super().insert(images, embeddings)
        return InsertReport(replaced=len(images))


class RejectsOnPaper(HonestMemory):
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


class WritesOnItsInput(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        embeddings /= embeddings.norm(dim=1, keepdim=True)
        return report


class RefreshesByPosition(HonestMemory):
    """An id is taken for a slot: right until the slot holds another image."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        for image, embedding in zip(ids.tolist(), embeddings, strict=True):
            self.embeddings[image % len(self.embeddings)] = embedding.clone()


class RefreshesInOrder(HonestMemory):
    """The ids' order is ignored: embeddings go to the stored images in the order of their slots."""

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


class SavesObjects(HonestMemory):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "dtype": np.dtype("uint8")}


class ClaimsNoBytes(HonestMemory):
    @property
    def nbytes(self) -> int:
        return 0


class GrowsForever(HonestMemory):
    @property
    def nbytes(self) -> int:
        return self.seen * (48 + 24)


class TakesNothing(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        return InsertReport(rejected=len(images))


class DrawsTheFirst(HonestMemory):
    def sample(self, n: int) -> ReplayBatch | None:
        return self.batch(list(range(n))) if 0 < n <= len(self.ids) else None


class ShiftsEmbeddings(HonestMemory):
    """Each image is handed out with the embedding of its neighbour."""

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return ReplayBatch(images=batch.images, ids=batch.ids, embeddings=batch.embeddings.roll(1, 0))


class KeepsOldEmbeddings(HonestMemory):
    """An image that takes the place of another gets the other's embedding."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        before = list(self.embeddings)
        report = super().insert(images, embeddings)
        self.embeddings[: len(before)] = before
        return report


class HasNoEmbeddingYet(HonestMemory):
    """Zeros until the first refresh."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        return super().insert(images, torch.zeros_like(embeddings))


class TakesNothingOnceFull(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        room = self.capacity - len(self.ids)
        report = super().insert(images[:room], embeddings[:room])
        self.seen += len(images[room:])
        return InsertReport(novel=report.novel, rejected=len(images[room:]))


class IgnoresRefresh(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Targets that must not move."""


class HasFavourites(HonestMemory):
    """Images of low slots are drawn far more often."""

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
    """What is drawn after a state was taken is not what would have been drawn."""

    def state_dict(self) -> dict[str, Any]:
        self.rng = np.random.default_rng(int(self.rng.integers(2**31)))
        return super().state_dict()


class DropsStaleIdsAlone(HonestMemory):
    """Ids that have left are taken out, but not the embeddings beside them."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        stored = [image for image in ids.tolist() if image in self.ids]
        for image, embedding in zip(stored, embeddings, strict=False):
            self.embeddings[self.ids.index(image)] = embedding.clone()


class WritesOnIds(HonestMemory):
    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(ids, embeddings)
        ids.fill_(-1)


class TakesNothingOnceFullAndSaysNovel(HonestMemory):
    says = "novel"

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        room = self.capacity - len(self.ids)
        report = super().insert(images[:room], embeddings[:room])
        rest = len(images) - report.novel
        self.seen += rest
        return dataclasses.replace(report, **{self.says: getattr(report, self.says) + rest})


class TakesNothingOnceFullAndSaysReplaced(TakesNothingOnceFullAndSaysNovel):
    says = "replaced"


class KeepsOneOfABatch(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images[:1], embeddings[:1])
        return dataclasses.replace(report, novel=report.novel + len(images) - 1)


class LeavesEmbeddingsUncounted(HonestMemory):
    @property
    def nbytes(self) -> int:
        return self.capacity * 48


class LeaksBesideAllPairs(HonestMemory):
    """The similarities are many bytes, and need not hide the others."""

    @property
    def nbytes(self) -> int:
        return 4 * 500**2 + self.seen * (48 + 24)


class GivesDoubles(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.double())


class GivesEmbeddingsElsewhere(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.to("meta"))


class WantsAGradient(HonestMemory):
    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.requires_grad_())


class RaisesItsBound(HonestMemory):
    @property
    def capacity(self) -> int:  # type: ignore[override]
        return max(12, 2 * len(self.ids))


class HasNoEnd(HonestMemory):
    capacity = float("inf")  # type: ignore[assignment]


class OverflowsWhileItEmbeds(HonestMemory):
    """All images of a mini-batch are taken in, and those that are too many let go at its end."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        LeaksOverCapacity.insert(self, images, embeddings)  # type: ignore[arg-type]
        over = max(0, len(self.ids) - self.capacity)
        if over:
            embed(torch.stack(self.images))
        del self.ids[:over], self.images[:over], self.embeddings[:over]
        return InsertReport(novel=len(images) - min(over, len(images)), replaced=min(over, len(images)))


class CountsIdsDown(TakesNothingOnceFull):
    """From -1, which is never let go."""

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        return dataclasses.replace(batch, ids=-1 - batch.ids)

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        super().refresh(-1 - ids, embeddings)


class LetsItsFirstImagesGo(HonestMemory):
    """And holds no bytes until then."""

    @property
    def nbytes(self) -> int:
        return 72 * len(self.ids)

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        skipped = min(len(images), max(0, 7 - self.seen))
        self.seen += skipped
        report = super().insert(images[skipped:], embeddings[skipped:])
        return dataclasses.replace(report, rejected=skipped)


class LetsImagesGoByAge(HonestMemory):
    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        report = super().insert(images, embeddings)
        young = [slot for slot, image in enumerate(self.ids) if image >= self.seen - 20]
        for kept in (self.ids, self.images, self.embeddings):
            kept[:] = [kept[slot] for slot in young]  # type: ignore[call-overload]
        return report


class KeepsCoarseNumbers(HonestMemory):
    """Two bytes each, and counted so."""

    @property
    def nbytes(self) -> int:
        return self.capacity * (48 + 12)

    def batch(self, slots: list[int]) -> ReplayBatch:
        batch = super().batch(slots)
        assert batch.embeddings is not None
        return dataclasses.replace(batch, embeddings=batch.embeddings.bfloat16().float())


class ComparesAllPairsOnceFull(HonestMemory):
    """The matrix of similarities is made when the first image has to go."""

    capacity = 60

    @property
    def nbytes(self) -> int:
        return self.capacity * 72 + (4 * self.capacity**2 if self.seen > self.capacity else 0)


class SweepsAndMerges(HonestMemory):
    """Counts what is not about images: as much of it as there can be."""

    def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
        before = len(self.ids)
        report = super().insert(images, embeddings)
        seen = before + len(images)
        events = {"evicted": report.replaced, "pruned": report.replaced, "merged": seen - 1, "promoted": seen}
        return dataclasses.replace(report, **events)


class StartsUsed(HonestMemory):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.insert(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 6))


def test_passes_an_honest_memory() -> None:
    check_memory(HonestMemory)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (SaysNothing, "insert gave NoneType; it must return an InsertReport"),
        (GivesPairs, "sample gave tuple; it must return a ReplayBatch or None"),
        (GivesAListOfIds, "sampled ids are list; they must be a tensor"),
        (LeaksOverCapacity, "13 images stored, the capacity is 12"),
        (OverflowsOnLargeBatch, "27 images stored, the capacity is 12"),
        (StoresTwice, "stored twice"),
        (GivesAnIdTwice, "gave an id twice"),
        (NamesPositions, "now names another image"),
        (AltersImages, "not one that was inserted"),
        (GivesFloats, r"sampled images are torch\.float32"),
        (GivesTooFew, "did not give None"),
        (WithholdsImages, "gave nothing"),
        (LosesCountOfImages, r"1 images given, but novel \+ joined \+ replaced \+ rejected = 0"),
        (HidesGrowth, "grew by 1 images"),
        (RejectsOnPaper, "1 of 1 given images are stored, but the report has 1 rejected"),
        (IgnoresTheSeed, "two memories with the same seed differ"),
        (AliasesImages, "writing over tensors"),
        (AliasesEmbeddings, "writing over tensors"),
        (WritesOnItsInput, "insert changed the embeddings"),
        (RefreshesByPosition, "no longer stored changed the memory"),
        (RefreshesInOrder, "in another order"),
        (ForgetsItsGenerator, "the copy differs"),
        (ForgetsEmbeddings, "the copy differs"),
        (SharesItsState, "not one that was inserted|now names another image"),
        (SavesObjects, r"state\['dtype'\] is a UInt8DType"),
        (ClaimsNoBytes, "nbytes is 0"),
        (GrowsForever, "nbytes grew to"),
        (TakesNothing, "nothing is stored after 12 images; the capacity is 12"),
        (DrawsTheFirst, r"sample\(3\) gave the same 3 images 50 times, with 12 stored"),
        (ShiftsEmbeddings, r"the embedding drawn with id \d+ is not that of its image"),
        (KeepsOldEmbeddings, r"the embedding drawn with id \d+ is not that of its image"),
        (HasNoEmbeddingYet, r"the embedding drawn with id \d+ is not that of its image: .* is 0\.000"),
        (StartsUsed, "a fresh memory holds 1 images"),
        (ReseedsWhenSaved, "taking a state changed the memory"),
        (DropsStaleIdsAlone, "when ids of images no longer stored came among theirs: drew different embeddings"),
        (WritesOnIds, "refresh changed the ids it was given"),
        (TakesNothingOnceFullAndSaysNovel, "only 0 of 1 given images are stored, and the report does not say where"),
        (TakesNothingOnceFullAndSaysReplaced, "only 0 of 1 given images are stored, and the report does not say where"),
        (KeepsOneOfABatch, r"only 1 of \d+ given images are stored, and the report does not say where"),
        (LeavesEmbeddingsUncounted, "nbytes is 576, but the stored images and embeddings take 648"),
        (LeaksBesideAllPairs, "nbytes grew to"),
        (GivesDoubles, r"sampled embeddings are torch\.float64, not torch\.float32"),
        (GivesEmbeddingsElsewhere, "sampled embeddings are on meta, the images on cpu"),
        (WantsAGradient, "sampled embeddings require a gradient"),
        (RaisesItsBound, "capacity was 12 and is 14"),
        (HasNoEnd, "capacity is inf"),
        (OverflowsWhileItEmbeds, "13 images stored while insert calls embed, the capacity is 12"),
    ],
)
def test_fails_on_a_broken_promise(broken: type[HonestMemory], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_memory(broken)


@pytest.mark.parametrize("capacity", [12, 20])
def test_a_place_that_goes_round_and_is_not_saved_is_found(capacity: int) -> None:
    """Whatever number of images it has gone round by when the state is taken."""

    class Ring(FlatMemory):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.place = 0

        def _slots(self, images: torch.Tensor, embed: Any) -> list[int]:
            empty = list(range(len(self), self.capacity))[: len(images)]
            full = len(images) - len(empty)
            self.place += full
            return [*empty, *((self.place - full + number) % self.capacity for number in range(full))]

    with pytest.raises(AssertionError, match="the copy differs"):
        check_memory(lambda seed: Ring(capacity, (3, 8, 8), 16, seed=seed))


@pytest.mark.parametrize("event", ["evicted", "pruned", "merged", "promoted"])
def test_counts_of_what_cannot_have_happened_are_found(event: str) -> None:
    class Boasts(HonestMemory):
        def insert(self, images: torch.Tensor, embeddings: Any, *, embed: Any = None) -> InsertReport:
            return dataclasses.replace(super().insert(images, embeddings), **{event: 99})

    with pytest.raises(AssertionError, match=f"the report has 99 {event}, but"):
        check_memory(Boasts)


@pytest.mark.parametrize("kind", [TakesNothingOnceFull, IgnoresRefresh, HasFavourites, KeepsUnitVectors])
def test_what_to_keep_and_to_prefer_is_the_memorys_own_affair(kind: type[HonestMemory]) -> None:
    check_memory(kind)


@pytest.mark.parametrize(
    "kind",
    [
        CountsIdsDown,
        LetsItsFirstImagesGo,
        LetsImagesGoByAge,
        KeepsCoarseNumbers,
        ComparesAllPairsOnceFull,
        SweepsAndMerges,
    ],
)
def test_an_unusual_memory_that_keeps_its_promises_passes(kind: type[HonestMemory]) -> None:
    check_memory(kind)


def test_all_pairs_may_take_more_than_the_images() -> None:
    check_memory(lambda seed: MinRedMemory(200, (3, 8, 8), 16, seed=seed))


@pytest.mark.parametrize("says", [10**9, sys.maxsize, float("inf"), None])
def test_what_an_unbounded_memory_gives_as_capacity_does_not_matter(says: Any) -> None:
    class Endless(LeaksOverCapacity):
        bounded: ClassVar[bool] = False

        @property
        def capacity(self) -> Any:
            return len(self.ids) if says is None else says

        @property
        def nbytes(self) -> int:
            return 72 * len(self.ids)

    check_memory(Endless)


def test_an_unbounded_memory_need_not_keep_the_bound() -> None:
    class Unbounded(LeaksOverCapacity):
        bounded: ClassVar[bool] = False

        @property
        def nbytes(self) -> int:
            return 72 * max(1, len(self.ids))

    check_memory(Unbounded)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_passes_the_flat_memories(kind: type[FifoMemory | ReservoirMemory], seed: int) -> None:
    check_memory(lambda seed: kind(25, (3, 4, 4), 6, seed=seed), seed=seed)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_passes_the_centroid_memory(prune: Any, seed: int) -> None:
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
    with pytest.raises(AssertionError, match="the copy differs"):
        check_memory(lambda: ForgetsItsGenerator(3))


def test_a_factory_with_other_arguments_is_refused() -> None:
    with pytest.raises(InputError, match=r"callable as factory\(seed=0\) or factory\(\)"):
        check_memory(FifoMemory)
