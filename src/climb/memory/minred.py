"""MinRed's memory: removes the older one of the two most similar stored images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from climb.arguments import check_room, checked
from climb.memory.contract import Embed, memory
from climb.memory.flat import FlatMemory
from climb.memory.store import index_on
from climb.memory.validate import check_finite
from climb.parallel import SINGLE, Group
from climb.precision import full_float32, widest


@memory("minred")
class MinRedMemory(FlatMemory):
    """Minimum redundancy (Purushwalkam, Morgado and Gupta, 2022): removes the most redundant images.

    Each image has an embedding, a running average of unit vectors: every replay sets
    ``u <- normalise((1 - r) u + r normalise(z))``. When the memory is full, each new image removes the older image of
    the pair i, j with the largest cosine ``u_i . u_j``.

    Our choices where sources differ or are silent:

    - The average is of unit vectors, as in the authors' code; later ports average raw vectors.
    - Only images of earlier mini-batches are compared and removed, not those of the current one.
    - Without a pair of earlier images left, the oldest image is removed.

    Similarities persist between mini-batches. One matrix product updates the rows of new and replayed images, and
    one transfer to the host suffices to choose all images to remove.

    Args:
        capacity: maximum number of stored images.
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        embedding_rate: r, how far a replay moves an embedding.
        inserts: "before" inserts a mini-batch before its training passes, so that training draws from the memory alone
            (the published method); "after" suits a learner that also trains on the stream.
        seed: seed of the draws for replay; removal is not random.
        device: device of images, embeddings and similarities.
        group: the processes over which the images are spread.

    >>> memory = MinRedMemory(3, (3, 8, 8), 2)
    >>> pixels = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    >>> _ = memory.insert(pixels, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]]))
    >>> _ = memory.insert(pixels[:1], torch.tensor([[-1.0, 0.0]]))
    >>> sorted(memory.sample(3).ids.tolist())  # 1 and 2 were the most similar pair
    [0, 2, 3]
    """

    sharded: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("capacity", "embed_mode")

    @checked(capacity=1)
    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        embedding_rate: float = 0.5,
        inserts: Literal["before", "after"] = "before",
        seed: int = 0,
        device: torch.device | str = "cpu",
        group: Group = SINGLE,
    ) -> None:
        super().__init__(
            capacity, image_shape, embedding_dim, embedding_rate=embedding_rate, seed=seed, device=device, group=group
        )
        check_room(4 * capacity**2, f"the similarities of {capacity} images", self._embeddings.device)
        self.inserts = inserts  # type: ignore[misc]  # set per instance
        # Minus infinity on the diagonal and in empty slots: never the largest.
        self._similarities = torch.full((capacity, capacity), -math.inf, device=self._embeddings.device)
        self._outdated = np.zeros(capacity, dtype=np.bool_)  # slots whose embedding changed since their row did

    @property
    def nbytes(self) -> int:
        """Bytes of images, embeddings and similarities."""
        return super().nbytes + self._similarities.nbytes

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Update the embeddings (n, d) of replayed images by the directions of the new ones."""
        super().refresh(ids, normalize(embeddings.detach().float(), dim=1))

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        stored = len(self)
        return {
            **super().state_dict(),
            # Recomputed similarities would round differently and decide near ties otherwise.
            "similarities": self._similarities[:stored, :stored].clone(),
            "outdated": torch.from_numpy(self._outdated.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        super().load_state_dict(state)
        stored = len(self)
        self._similarities.fill_(-math.inf)
        self._similarities[:stored, :stored] = state["similarities"].to(self._similarities.device)
        self._outdated[:] = False
        self._outdated[:stored] = state["outdated"].numpy()[:stored]

    def _keep(self, slots: Sequence[int], embeddings: torch.Tensor) -> None:
        super()._keep(slots, normalize(embeddings, dim=1))
        self._outdated[np.asarray(slots)] = True

    def _slots(self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None = None) -> list[int]:
        stored = len(self)
        # Subclasses of the earlier release do not pass the embeddings on.
        finite = (
            embeddings.isfinite().all() if isinstance(embeddings, torch.Tensor) else torch.ones((), dtype=torch.bool)
        )
        slots = list(range(stored, min(stored + len(images), self.capacity)))
        over = len(images) - len(slots)
        by_similarity = []
        if over > 0 and stored > 1:
            by_similarity = self._redundant(min(over, stored - 1), finite)
        else:
            check_finite(bool(finite), "embeddings")
        slots += by_similarity
        if over > len(by_similarity):
            # No pair is left: remove the last earlier image, then images of this mini-batch, oldest first.
            slots += sorted(set(range(stored)) - set(by_similarity))
            while len(slots) < len(images):
                slots.append(slots[len(slots) - self.capacity])
        return slots

    def _redundant(self, count: int, finite: torch.Tensor) -> list[int]:
        """The slots of ``count`` images to remove: repeatedly the older one of the most similar remaining pair.

        ``finite`` tells whether the embeddings of the mini-batch are finite.
        """
        self._update_similarities()
        stored = len(self)
        # After `count` removals, at least one of a row's `count + 1` nearest neighbours remains.
        nearest = self._similarities[:stored, :stored].topk(min(count + 1, stored), dim=1)
        packed = torch.stack([part.to(widest(self._similarities.device)) for part in nearest])
        flat = torch.cat([packed.reshape(-1), finite.reshape(1).to(packed)])
        host = flat.cpu().numpy()  # the only synchronisation
        check_finite(bool(host[-1]), "embeddings")
        values, neighbours = host[:-1].reshape(packed.shape)
        rank = np.zeros(stored, dtype=np.int64)  # of each row's nearest neighbour that may remain
        best = values[:, 0].copy()
        gone: list[int] = []
        left = np.ones(stored, dtype=np.bool_)
        while len(gone) < count:
            row = int(best.argmax())
            other = int(neighbours[row, rank[row]])
            if not left[other]:
                rank[row] += 1
                best[row] = values[row, rank[row]]
                continue
            older = row if self._ids[row] < self._ids[other] else other
            left[older] = False
            best[older] = -math.inf
            gone.append(older)
        return gone

    def _update_similarities(self) -> None:
        stored = len(self)
        changed = np.flatnonzero(self._outdated)
        if len(changed) == 0:
            return
        index = index_on(self._embeddings.device, changed)
        kept = self._embeddings[:stored]
        with full_float32():
            rows = kept.index_select(0, index) @ kept.T
        similarities = self._similarities[:stored, :stored]
        similarities.index_copy_(0, index, rows)
        similarities.index_copy_(1, index, rows.T)
        similarities.fill_diagonal_(-math.inf)
        self._outdated[:] = False
