"""Images made on the fly: the class is a texture, everything else is chance.

Each image repeats the motif of its class with an orientation, scale, position, warp, pair of colours, contrast,
shading and noise of its own. Ink may be darker or lighter than the ground, so averages of pixels say next to
nothing about the class, while any crop that holds a few cells shows it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from climb.datasets.check import check_dataset
from climb.datasets.dataset import Dataset, Split
from climb.datasets.motifs import Motif, motifs
from climb.datasets.statistics import channel_statistics
from climb.errors import InputError
from climb.seeds import torch_generator

CELL = (0.25, 0.42)
"""Side of a cell as a share of the image side: the range of scales."""
WARP = 0.10
"""Largest bend of the lattice, in cells."""
CONTRAST = (0.3, 0.75)
"""Difference in brightness of ink and ground, on the 0..1 scale."""
SHADE = 0.1
"""Largest change of brightness across the image."""
TINT = 0.25
"""Largest shift of red and blue."""
NOISE = 0.05
"""Largest standard deviation of the pixel noise."""

RED, GREEN, BLUE = 0.299, 0.587, 0.114
_CHUNK_PIXELS = 1 << 20


def synthetic(
    *,
    classes: int = 10,
    train_per_class: int = 200,
    test_per_class: int = 50,
    image_size: int = 32,
    seed: int = 0,
) -> Dataset:
    """A dataset of random textures; the same arguments give the same bytes.

    The images of a class do not depend on how many other classes there are.

    >>> data = synthetic(classes=4, train_per_class=6, test_per_class=2, image_size=16)
    >>> tuple(data.train.images.shape), len(data.test), data.classes
    ((24, 3, 16, 16), 8, ('crosses', 'stripes', 'rings', 'checks'))
    """
    _refuse_below("train_per_class", train_per_class, 1)
    _refuse_below("test_per_class", test_per_class, 0)
    _refuse_below("image_size", image_size, 8)
    chosen = motifs(classes)
    train = _split(chosen, train_per_class, image_size, seed, "train")
    mean, std = channel_statistics(train.images)
    dataset = Dataset(
        name="synthetic",
        train=train,
        test=_split(chosen, test_per_class, image_size, seed, "test"),
        classes=tuple(chosen),
        mean=mean,
        std=std,
    )
    return check_dataset(dataset)


def _refuse_below(name: str, given: int, least: int) -> None:
    if given < least:
        raise InputError(f"{name}={given} is impossible for synthetic images; allowed: {least} or more")


def _split(chosen: dict[str, Motif], per_class: int, size: int, seed: int, part: str) -> Split:
    images = torch.empty(len(chosen) * per_class, 3, size, size, dtype=torch.uint8)
    step = max(1, _CHUNK_PIXELS // (size * size))
    for label, (name, motif) in enumerate(chosen.items()):
        generator = torch_generator(seed, f"synthetic/{part}/{name}")
        end = (label + 1) * per_class
        for start in range(label * per_class, end, step):
            count = min(step, end - start)
            images[start : start + count] = _render(motif, count, size, generator)
    return Split(images=images, labels=torch.arange(len(chosen)).repeat_interleave(per_class))


def _render(motif: Motif, count: int, size: int, generator: torch.Generator) -> Tensor:
    """``count`` images of one motif, uint8 (count, 3, size, size)."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    axis = (torch.arange(size) + 0.5) / size
    y, x = axis.view(size, 1), axis.view(1, size)

    def swell(height: float) -> Tensor:
        """A wave about as long as the image, (count, size, size) in -height .. height."""
        slant, length, phase = uniform(0, 2 * math.pi), uniform(3, 7), uniform(0, 2 * math.pi)
        along = torch.cos(slant) * x + torch.sin(slant) * y
        return height * torch.sin(length * along + phase)

    def tint() -> Tensor:
        """A colour shift without brightness, (count, 3, 1, 1): a grey copy keeps the contrast drawn below."""
        hue, strength = uniform(0, 2 * math.pi), uniform(0, TINT)
        red, blue = strength * torch.cos(hue), strength * torch.sin(hue)
        green = -(RED * red + BLUE * blue) / GREEN
        return torch.stack([red, green, blue], dim=1)

    cell = torch.exp(uniform(math.log(CELL[0]), math.log(CELL[1])))
    angle = uniform(0, 2 * math.pi)
    # The offset hides where the lattice begins; whole cells of it reach every parity of alternating motifs.
    u = (torch.cos(angle) * x + torch.sin(angle) * y) / cell + uniform(0, 8) + swell(WARP)
    v = (torch.cos(angle) * y - torch.sin(angle) * x) / cell + uniform(0, 8) + swell(WARP)
    # Signed distance in pixels, cut to half a pixel around the edge: antialiased ink in 0..1.
    ink = (motif(u, v) * cell * size + 0.5).clamp(0, 1)

    contrast = uniform(*CONTRAST)
    middle = contrast / 2 + (1 - contrast) * uniform(0, 1)
    sign = torch.where(uniform(0, 1) < 0.5, 1.0, -1.0)
    light = middle + sign * contrast * (ink - 0.5) + swell(SHADE)
    colour = torch.lerp(tint(), tint(), ink[:, None])
    noise = torch.randn(count, 3, size, size, generator=generator) * uniform(0, NOISE)[:, None]
    return ((light[:, None] + colour + noise).clamp(0, 1) * 255).round().to(torch.uint8)
