"""Random views of whole batches of images, on their device.

A `Policy` holds ranges and probabilities. `draw` turns it into `Parameters` for each image, and `apply` applies them.
`Augment` combines the three and returns two normalised views of a batch. Crops follow torchvision's distribution;
colour changes follow PIL and torchvision.

Register a policy of your own with `views`; its name is then a value of ``--views``::

    @views("drone")
    def drone(image_size: int) -> Policy:
        return Policy(vertical_flip=0.5, turn=0.75, hue=0.05)
"""

from __future__ import annotations

from climb.augment.parameters import Parameters, draw
from climb.augment.policy import POLICIES, Policy, common, microscope, satellite, simclr, simsiam, views
from climb.augment.transform import Augment, apply

__all__ = [
    "POLICIES",
    "Augment",
    "Parameters",
    "Policy",
    "apply",
    "common",
    "draw",
    "microscope",
    "satellite",
    "simclr",
    "simsiam",
    "views",
]
