"""The images that `check_memory` sends: clustered as a stream is, each one different from all others."""

from __future__ import annotations

import math
from typing import Any

import torch

from climb.memory.contract import Memory
from climb.seeds import numpy_generator

CLUSTERS = 10
CAPACITY_WITHOUT_BOUND = 30  # what `capacity` says where there is no bound is nobody's promise, and may be anything


class Traffic:
    """Mini-batches for one check, and the record of every image sent."""

    def __init__(self, memory: Memory, seed: int) -> None:
        described: Any = memory  # the shapes are not part of the protocol, but every memory says them
        self.image_shape: tuple[int, ...] = tuple(described.image_shape)
        self.embedding_dim = int(described.embedding_dim)
        self.image_bytes = math.prod(self.image_shape)
        self.embedding_bytes = 4 * self.embedding_dim
        # Read once: traffic that is so many capacities long must come to an end whatever the memory says later.
        self.capacity = int(memory.capacity) if memory.bounded else CAPACITY_WITHOUT_BOUND
        self.generator = numpy_generator(seed, "check")
        self.made = 0
        self.sent: set[bytes] = set()
        self._wants_embeddings = memory.space is not None
        self._prototypes = self.generator.integers(40, 216, size=(CLUSTERS, self.image_bytes))
        weights = self.generator.standard_normal((self.image_bytes, self.embedding_dim))
        self._weights = torch.from_numpy(weights).float() / self.image_bytes**0.5

    def batch(self, n: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``n`` new uint8 images (n, 3, H, W), and float32 embeddings (n, d) if the memory is to be given any."""
        cluster = self.generator.integers(CLUSTERS, size=n)
        noise = self.generator.integers(-40, 40, size=(n, self.image_bytes))
        pixels = torch.from_numpy(self._prototypes[cluster] + noise).to(torch.uint8)
        # The first three bytes count the images, so that no two are the same.
        numbers = torch.arange(self.made, self.made + n)
        for place in range(min(3, self.image_bytes)):
            pixels[:, place] = ((numbers >> (8 * place)) & 255).to(torch.uint8)
        self.made += n
        images = pixels.reshape(n, *self.image_shape)
        self.sent.update(pixels_of(images))
        return images, self.embed(images) if self._wants_embeddings else None

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """A fixed linear encoder: uint8 images (n, 3, H, W) to float32 embeddings (n, d)."""
        pixels = images.cpu().reshape(len(images), -1).float() / 128.0 - 1.0
        return torch.matmul(pixels, self._weights)

    def views(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, d) of the same images a little later in training: near `embed`, not equal to it."""
        embeddings = self.embed(images)
        noise = self.generator.standard_normal(tuple(embeddings.shape))
        return embeddings + 0.05 * torch.from_numpy(noise).float()


def pixels_of(images: torch.Tensor) -> list[bytes]:
    """Each of the images (n, 3, H, W) as bytes, by which it is known again."""
    return [image.tobytes() for image in images.cpu().numpy()]
