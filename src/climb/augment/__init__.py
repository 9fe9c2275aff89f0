"""Random views of images, a whole batch at a time, on the device.

A ``Policy`` says what may happen, ``draw`` decides what happens to each image, ``apply`` does it; ``Augment`` puts
the three together into two normalised views of a batch. The crop has torchvision's distribution, the colours
PIL's and torchvision's meaning.
"""

from __future__ import annotations

from climb.augment.apply import apply
from climb.augment.parameters import Parameters, draw
from climb.augment.policy import POLICIES, Policy, common, simclr, simsiam
from climb.augment.views import Augment

__all__ = ["POLICIES", "Augment", "Parameters", "Policy", "apply", "common", "draw", "simclr", "simsiam"]
