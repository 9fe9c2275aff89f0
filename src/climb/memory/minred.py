"""MinRed's memory: of the two stored images that are most alike, the older makes room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from climb.errors import ClimbError, unknown
from climb.memory.contract import Embed
from climb.memory.flat import FlatMemory
from climb.precision import full_float32, widest


class MinRedMemory(FlatMemory):
    """Minimum redundancy (Purushwalkam, Morgado and Gupta, 2022): drop what the memory holds twice.

    Beside each image its embedding is kept, a running average of unit vectors:
    ``u <- normalise((1 - r) u + r normalise(z))`` at every replay. When an image finds the memory full, the two
    stored images i, j with the largest cosine ``u_i . u_j`` are looked up, and the older of the two goes.

    Our choices, where sources differ or are silent:

    - Averages are of unit vectors, as in the authors' code; later ports average raw vectors.
    - The images of the mini-batch being inserted are exempt, as targets and as neighbours: only images of earlier
      mini-batches are compared. All of those have an embedding, from insertion on.
    - A mini-batch that needs more room than pairs of earlier images can give removes the oldest image.

    The similarities are kept from one mini-batch to the next; one matrix product brings the rows of new and replayed
    images up to date, and one transfer tells the host enough to choose all that must go.

    Args:
        capacity: most images ever stored.
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        embedding_rate: r, how far a replay moves an embedding.
        inserts: "before" puts a mini-batch in before the passes over it, so that training may draw from the memory
            alone (the method); "after" is for a learner that trains on the stream beside the memory.
        seed: seed of the draws for replay; evictions are not random.
        device: where images, embeddings and similarities live.

    >>> memory = MinRedMemory(3, (3, 8, 8), 2)
    >>> pixels = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    >>> _ = memory.insert(pixels, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]]))
    >>> _ = memory.insert(pixels[:1], torch.tensor([[-1.0, 0.0]]))
    >>> sorted(memory.sample(3).ids.tolist())  # 1 and 2 were the closest pair
    [0, 2, 3]
    """

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
    ) -> None:
        if inserts not in ("before", "after"):
            raise unknown("time of insertion", inserts, ["before", "after"])
        super().__init__(capacity, image_shape, embedding_dim, embedding_rate=embedding_rate, seed=seed, device=device)
        self.inserts = inserts  # type: ignore[misc]  # the method and its ablation differ in this alone
        # Minus infinity on the diagonal and in empty slots: never the largest.
        self._similarities = torch.full((capacity, capacity), -math.inf, dtype=torch.float32, device=device)
        self._outdated = np.zeros(capacity, dtype=np.bool_)  # slots whose embedding changed since their row did

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images, embeddings and their similarities."""
        return super().nbytes + self._similarities.nbytes

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """New embeddings (n, d) of replayed images, each of which counts by its direction alone."""
        super().refresh(ids, normalize(embeddings.detach().float(), dim=1))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        stored = len(self)
        return {
            **super().state_dict(),
            # Not computed again on loading: rounding would differ, and with it the choice between near ties.
            "similarities": self._similarities[:stored, :stored].clone(),
            "outdated": torch.from_numpy(self._outdated.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        stored = len(self)
        self._similarities.fill_(-math.inf)
        self._similarities[:stored, :stored] = state["similarities"].to(self._similarities.device)
        self._outdated[:] = False
        self._outdated[:stored] = state["outdated"].numpy()[:stored]

    def _keep(self, slots: Sequence[int], embeddings: torch.Tensor) -> None:
        super()._keep(slots, normalize(embeddings, dim=1))
        self._outdated[np.asarray(slots)] = True

    def _slots(self, images: torch.Tensor, embed: Embed | None) -> list[int]:
        stored = len(self)
        slots = list(range(stored, min(stored + len(images), self.capacity)))
        over = len(images) - len(slots)
        if over == 0:
            return slots
        by_similarity = self._redundant(min(over, stored - 1)) if stored > 1 else []
        slots += by_similarity
        if over > len(by_similarity):
            # No pair is left: the last image of earlier mini-batches goes, then this one's own, oldest first.
            slots += sorted(set(range(stored)) - set(by_similarity))
            while len(slots) < len(images):
                slots.append(slots[len(slots) - self.capacity])
        return slots

    def _redundant(self, count: int) -> list[int]:
        """The slots of ``count`` images to remove one at a time: each time, the older of the closest pair left."""
        self._update_similarities()
        stored = len(self)
        # When `count` others have gone, at least one of a row's `count + 1` nearest is left, so these suffice.
        nearest = self._similarities[:stored, :stored].topk(min(count + 1, stored), dim=1)
        packed = torch.stack([part.to(widest(self._similarities.device)) for part in nearest])
        values, neighbours = packed.cpu().numpy()  # the one synchronisation
        if np.isnan(values).any():
            raise ClimbError(
                "the memory was given embeddings with NaN or infinity: training has diverged; lower the learning rate"
            )
        rank = np.zeros(stored, dtype=np.int64)  # of each row's nearest neighbour that is not known to be gone
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
        index = self._index(changed)
        kept = self._embeddings[:stored]
        with full_float32():
            rows = kept.index_select(0, index) @ kept.T
        similarities = self._similarities[:stored, :stored]
        similarities.index_copy_(0, index, rows)
        similarities.index_copy_(1, index, rows.T)
        similarities.fill_diagonal_(-math.inf)
        self._outdated[:] = False
