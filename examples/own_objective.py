"""An objective of your own: views of an image close together, images spread evenly (Wang and Isola, 2020).

With unit embeddings u: ``L = mean |u_1 - u_2|^2 + log mean over pairs of images of exp(-2 |u_i - u_j|^2)``, the second
term averaged over the views. By its name it goes with every method that takes the configured objective; a method of
its own brings it into a bench. Run it: ``python examples/own_objective.py``.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from climb import Climb
from climb.augment import simclr
from climb.engine import Parts
from climb.methods import PartFactory, climb, method, objective
from climb.nets import Encoded
from climb.objectives import Objective
from climb.testing import check_method


class CloseAndEven(Objective):
    """Alignment and uniformity on the sphere."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch, stream and replay rows alike."""
        unit = F.normalize(encoded.embeddings, dim=2)
        close = (unit[0] - unit[1]).square().sum(1).mean()
        even = torch.stack([torch.pdist(view).square().mul(-2).exp().mean().log() for view in unit])
        return close + even.mean()


@objective("close-and-even", kind=CloseAndEven, paper="an example; Wang and Isola, 2020", views=simclr)
def close_and_even(w: PartFactory) -> CloseAndEven:
    """Views of an image close together, images spread evenly."""
    return CloseAndEven()


@method("climb-close-and-even", objective=CloseAndEven, paper="an example; Wang and Isola, 2020")
def climb_close_and_even(w: PartFactory) -> Parts:
    """CLIMB that learns to put views close and images evenly."""
    return climb(w.with_objective("close-and-even"))


def main() -> None:
    """Check it, then learn with it for a moment."""
    check_method("climb-close-and-even")
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    model = Climb("climb-close-and-even", capacity=60, replay_batch=8, backbone="micro", device="cpu")
    print(f"climb-close-and-even: features of shape {model.fit_transform(images).shape}")


if __name__ == "__main__":
    main()
