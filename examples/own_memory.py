"""A memory of your own: every image is kept, in a slot drawn at random.

Each mini-batch wears a little of the past away, so the chance that an image is still stored falls with its age: between
the last N images and a uniform sample of all. Run it: ``python examples/own_memory.py``.
"""

from __future__ import annotations

import numpy as np
import torch

from climb import Climb
from climb.engine import Parts
from climb.memory import memory
from climb.memory.contract import Embed
from climb.memory.flat import FlatMemory
from climb.methods import PartFactory, replay_method, with_replay
from climb.testing import check_memory, check_method


@memory("random-slot")
class RandomSlotMemory(FlatMemory):
    """Fills up, then gives each new image the slot of a random stored one. `FlatMemory` does the rest."""

    def _slots(self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None) -> list[int]:
        free = list(range(len(self), self.capacity))[: len(images)]
        taken = self._insertion.integers(self.capacity, size=len(images) - len(free))
        return [*free, *map(int, taken)]


@replay_method("er-random-slot", RandomSlotMemory, None, paper="an example", lr=0.1)
def er_random_slot(w: PartFactory) -> Parts:
    """Experience replay from a memory that wears off."""
    return with_replay(w, w.memory("random-slot"), None)


def main() -> None:
    """Check it, then learn with it for a moment."""
    check_memory(lambda seed: RandomSlotMemory(20, (3, 8, 8), 16, seed=seed))
    check_method("er-random-slot")
    images = np.random.default_rng(0).integers(0, 256, (120, 16, 16, 3), dtype=np.uint8)
    model = Climb("er-random-slot", capacity=60, replay_batch=8, backbone="micro", device="cpu").partial_fit(images)
    assert model.memory_ is not None
    print(f"er-random-slot saw {len(images)} images and keeps {len(model.memory_)}")


if __name__ == "__main__":
    main()
