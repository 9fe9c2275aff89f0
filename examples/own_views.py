"""Views of your own: for drawings, where colours mean nothing and left is not right.

Run it: ``python examples/own_views.py``. From the command line:
``climb learn IMAGES --import examples/own_views.py --views drawings --out runs/drawings``.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from climb.augment import Augment, Policy, simclr, views


@views("drawings")
def drawings(image_size: int) -> Policy:
    """SimCLR's crops and brightness, always grey, never flipped."""
    return replace(simclr(image_size), grayscale=1.0, flip=0.0, hue=0.0)


def main() -> None:
    """Make two views of a few random images."""
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    augment = Augment(drawings(32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    generator = torch.Generator().manual_seed(0)
    two = augment.views(images, augment.numbers(images, generator))
    print(f"drawings: two views of each image, {tuple(two.shape)}")


if __name__ == "__main__":
    main()
