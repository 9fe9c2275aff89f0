"""A method of your own: four parts that nobody has put together.

MinRed's memory keeps an embedding beside each image anyway, to find what it holds twice; CLA-R's alignment can be held
to the same embeddings, so that no second network is needed. Run it: ``python examples/own_method.py``.
"""

from __future__ import annotations

import numpy as np

from climb import Climb
from climb.alignment import StoredTargets
from climb.engine import Parts, StreamAndReplay
from climb.memory import MinRedMemory
from climb.methods import PartFactory, method
from climb.testing import check_method


@method(
    "minred-targets",
    memory=MinRedMemory,
    batch=StreamAndReplay,
    objective="configured",
    alignment=StoredTargets,
    paper="an example",
    lr=0.1,
    alignment_weight=1.0,
)
def minred_targets(w: PartFactory) -> Parts:
    """The least redundant images, replay, distillation from the embeddings stored with them."""
    return Parts(
        network=w.network,
        memory=w.minred(inserts="after"),
        batch=StreamAndReplay(),
        objective=w.objective(),
        alignment=w.stored_targets(),
    )


def main() -> None:
    """Check it, then learn with it for a moment."""
    check_method("minred-targets")
    images = np.random.default_rng(0).integers(0, 256, (120, 16, 16, 3), dtype=np.uint8)
    model = Climb("minred-targets", capacity=60, replay_batch=8, backbone="micro", device="cpu").partial_fit(images)
    budget = model.engine_.budget
    print(f"minred-targets: {budget.steps} steps, {budget.cbp} backward passes, {budget.forward_only} other forwards")


if __name__ == "__main__":
    main()
