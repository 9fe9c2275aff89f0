"""Images that encode their number, and streams of embeddings."""

from __future__ import annotations

import numpy as np
import torch

IMAGE_SHAPE = (3, 4, 4)


def numbered_images(first: int, count: int) -> torch.Tensor:
    """uint8 (count, 3, 4, 4): image ``first + i`` spells its own number in base 256, with noise around it."""
    numbers = torch.arange(first, first + count)
    images = ((numbers[:, None] * 37 + torch.arange(48) * 11) % 251).to(torch.uint8)
    for place in range(4):
        images[:, place] = (numbers >> (8 * place)).to(torch.uint8)
    return images.reshape(count, *IMAGE_SHAPE)


def numbers_of(images: torch.Tensor) -> list[int]:
    """The numbers that `numbered_images` wrote into the images."""
    digits = images.reshape(len(images), -1)[:, :4].to(torch.int64)
    return [int(number) for number in (digits * torch.tensor([1, 256, 65536, 16777216])).sum(1)]


def drifting_clusters(
    count: int, dim: int, *, clusters: int = 12, spread: float = 0.5, task: int = 100, seed: int = 0
) -> np.ndarray:
    """float32 (count, dim): unit-ish clusters that all drift; every ``task`` images a third of them is new."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, dim))
    rows = np.empty((count, dim), dtype=np.float32)
    for i in range(count):
        if i % task == 0:
            renewed = rng.choice(clusters, size=max(1, clusters // 3), replace=False)
            centres[renewed] = rng.standard_normal((len(renewed), dim))
        centres += 0.01 * rng.standard_normal(centres.shape)
        # Squaring a uniform draw makes some clusters common and some rare.
        cluster = int(clusters * rng.random() ** 2)
        rows[i] = centres[cluster] + spread * rng.standard_normal(dim)
    return rows
