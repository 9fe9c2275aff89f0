"""Images drawn on the fly: the texture shows the class, everything else is random.

Each image repeats the texture of its class with its own orientation, scale, position, warp, colours, contrast,
shading and noise. Ink may be darker or lighter than the ground, so mean colours say almost nothing about the class,
and any crop with a few cells shows it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from climb.arguments import check_room, checked
from climb.datasets.dataset import Dataset, Split, channel_statistics, check_dataset, register
from climb.datasets.textures import Texture, textures
from climb.errors import InputError
from climb.seeds import torch_generator

CELL = (0.25, 0.42)
"""Range of scales: side of a cell relative to the side of the image."""
WARP = 0.10
"""Largest distortion of the lattice, in cells."""
CONTRAST = (0.3, 0.75)
"""Range of the difference in brightness between ink and ground, on the 0..1 scale."""
SHADE = 0.1
"""Largest change of brightness across the image."""
TINT = 0.25
"""Largest shift of red and blue."""
NOISE = 0.05
"""Largest standard deviation of the pixel noise."""

RED, GREEN, BLUE = 0.299, 0.587, 0.114
_CHUNK_PIXELS = 1 << 20


@register("synthetic", image_size=32)
@checked()
def synthetic(
    *, classes: int = 10, train_per_class: int = 200, test_per_class: int = 50, image_size: int = 32, seed: int = 0
) -> Dataset:
    """Textures made on the fly, any number of classes; no files.

    The same arguments give the same bytes. The images of a class do not depend on the number of classes.

    >>> data = synthetic(classes=4, train_per_class=6, test_per_class=2, image_size=16)
    >>> tuple(data.train.images.shape), len(data.test), data.classes
    ((24, 3, 16, 16), 8, ('crosses', 'stripes', 'rings', 'checks'))
    """
    given = {"train_per_class": train_per_class, "test_per_class": test_per_class, "image_size": image_size}
    for (name, value), least in zip(given.items(), (1, 0, 8), strict=True):
        if value < least:
            raise InputError(f"{name}={value} is impossible for synthetic images; allowed: {least} or more")
    chosen = textures(classes)
    count = classes * (train_per_class + test_per_class)
    check_room(3 * count * image_size**2, f"{count} images of {image_size} px")
    train = _split(chosen, train_per_class, image_size, seed, "train")
    mean, std = channel_statistics(train.images)
    test = _split(chosen, test_per_class, image_size, seed, "test")
    return check_dataset(Dataset(name="synthetic", train=train, test=test, classes=tuple(chosen), mean=mean, std=std))


def _split(chosen: dict[str, Texture], per_class: int, size: int, seed: int, part: str) -> Split:
    images = torch.empty(len(chosen) * per_class, 3, size, size, dtype=torch.uint8)
    step = max(1, _CHUNK_PIXELS // (size * size))
    for label, (name, texture) in enumerate(chosen.items()):
        generator = torch_generator(seed, f"synthetic/{part}/{name}")
        end = (label + 1) * per_class
        for start in range(label * per_class, end, step):
            count = min(step, end - start)
            images[start : start + count] = _render(texture, count, size, generator)
    return Split(images=images, labels=torch.arange(len(chosen)).repeat_interleave(per_class))


def _render(texture: Texture, count: int, size: int, generator: torch.Generator) -> Tensor:
    """``count`` images of one texture, uint8 (count, 3, size, size)."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    axis = (torch.arange(size) + 0.5) / size
    y, x = axis.view(size, 1), axis.view(1, size)

    def wave(height: float) -> Tensor:
        """A sine wave about as long as the image, (count, size, size) in -height .. height."""
        slant, length, phase = uniform(0, 2 * math.pi), uniform(3, 7), uniform(0, 2 * math.pi)
        along = torch.cos(slant) * x + torch.sin(slant) * y
        return height * torch.sin(length * along + phase)

    def tint() -> Tensor:
        """A colour shift that keeps the brightness, (count, 3, 1, 1), so that a grey copy keeps the contrast."""
        hue, strength = uniform(0, 2 * math.pi), uniform(0, TINT)
        red, blue = strength * torch.cos(hue), strength * torch.sin(hue)
        green = -(RED * red + BLUE * blue) / GREEN
        return torch.stack([red, green, blue], dim=1)

    cell = torch.exp(uniform(math.log(CELL[0]), math.log(CELL[1])))
    angle = uniform(0, 2 * math.pi)
    # The offset hides the origin of the lattice. Its whole cells reach every parity of alternating textures.
    u = (torch.cos(angle) * x + torch.sin(angle) * y) / cell + uniform(0, 8) + wave(WARP)
    v = (torch.cos(angle) * y - torch.sin(angle) * x) / cell + uniform(0, 8) + wave(WARP)
    # Signed distance in pixels, clamped to half a pixel around the edge: antialiased ink in 0..1.
    ink = (texture(u, v) * cell * size + 0.5).clamp(0, 1)

    contrast = uniform(*CONTRAST)
    middle = contrast / 2 + (1 - contrast) * uniform(0, 1)
    sign = torch.where(uniform(0, 1) < 0.5, 1.0, -1.0)
    light = middle + sign * contrast * (ink - 0.5) + wave(SHADE)
    colour = torch.lerp(tint(), tint(), ink[:, None])
    noise = torch.randn(count, 3, size, size, generator=generator) * uniform(0, NOISE)[:, None]
    return ((light[:, None] + colour + noise).clamp(0, 1) * 255).round().to(torch.uint8)
