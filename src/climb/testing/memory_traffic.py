"""Random traffic for `check_memory`: clustered, distinct images, and checks of the images that a memory returns."""

from __future__ import annotations

import math
from typing import Any

import torch

from climb.memory.contract import Memory, ReplayBatch
from climb.seeds import numpy_generator
from climb.testing.contract import ContractViolation, require

CLUSTERS = 10
CAPACITY_WITHOUT_BOUND = 30  # an unbounded memory may report any capacity


class Traffic:
    """The mini-batches of one check, and a record of all sent images and returned ids."""

    def __init__(self, memory: Memory, seed: int) -> None:
        described: Any = memory  # the shapes are not part of the protocol, but `check_memory` requires them
        self.image_shape: tuple[int, ...] = tuple(described.image_shape)
        self.embedding_dim = int(described.embedding_dim)
        self.image_bytes = math.prod(self.image_shape)
        # Read once: the traffic must end even if the memory later reports another capacity.
        self.capacity = int(memory.capacity) if memory.bounded else CAPACITY_WITHOUT_BOUND
        self.generator = numpy_generator(seed, "check")
        self.made = 0
        self._sent: set[bytes] = set()
        self._image_of_id: dict[int, bytes] = {}
        self._wants_embeddings = memory.space is not None
        self._prototypes = self.generator.integers(40, 216, size=(CLUSTERS, self.image_bytes))
        weights = self.generator.standard_normal((self.image_bytes, self.embedding_dim))
        self._weights = torch.from_numpy(weights).float() / self.image_bytes**0.5

    def batch(self, n: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``n`` new uint8 images (n, 3, H, W), and float32 embeddings (n, d) if the memory uses any."""
        cluster = self.generator.integers(CLUSTERS, size=n)
        noise = self.generator.integers(-40, 40, size=(n, self.image_bytes))
        pixels = torch.from_numpy(self._prototypes[cluster] + noise).to(torch.uint8)
        # The first three bytes are the number of the image, so that all images differ.
        numbers = torch.arange(self.made, self.made + n)
        for place in range(min(3, self.image_bytes)):
            pixels[:, place] = ((numbers >> (8 * place)) & 255).to(torch.uint8)
        self.made += n
        images = pixels.reshape(n, *self.image_shape)
        self._sent.update(pixels_of(images))
        return images, self.embed(images) if self._wants_embeddings else None

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """A fixed linear encoder: uint8 images (n, 3, H, W) to float32 embeddings (n, d)."""
        pixels = images.cpu().reshape(len(images), -1).float() / 128.0 - 1.0
        return torch.matmul(pixels, self._weights)

    def views(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, d) of the same images a little later in training: close to `embed`."""
        embeddings = self.embed(images)
        noise = self.generator.standard_normal(tuple(embeddings.shape))
        return embeddings + 0.05 * torch.from_numpy(noise).float()

    def check_batch(self, batch: ReplayBatch, n: int) -> list[bytes]:
        """Check a result of ``sample(n)``; returns the pixels of its images."""
        require(isinstance(batch, ReplayBatch), f"sample returned {type(batch).__name__}, not ReplayBatch or None")
        expected = {
            "images": (torch.uint8, (n, *self.image_shape)),
            "ids": (torch.int64, (n,)),
            "embeddings": (torch.float32, (n, self.embedding_dim)),
        }
        for name, (dtype, shape) in expected.items():
            tensor = getattr(batch, name)
            if name == "embeddings" and tensor is None:
                continue
            require(isinstance(tensor, torch.Tensor), f"sampled {name} are {type(tensor).__name__}, not a tensor")
            require(tensor.dtype == dtype, f"sampled {name} are {tensor.dtype}, not {dtype}")
            require(tensor.shape == shape, f"sampled {name} have shape {tuple(tensor.shape)}, not {shape}")
            require(not tensor.requires_grad, f"sampled {name} require a gradient; stored ones must be detached")
            place = torch.device("cpu") if name == "ids" else batch.images.device
            require(tensor.device == place, f"sampled {name} are on {tensor.device}, not on {place}")
        ids = batch.ids.tolist()
        require(len(set(ids)) == n, f"sample({n}) returned an id twice: {sorted(ids)}")
        images = pixels_of(batch.images)
        require(len(set(images)) == n, f"sample({n}) returned an image under two ids: it is stored twice")
        for image_id, image in zip(ids, images, strict=True):
            require(image in self._sent, f"the image with id {image_id} was never inserted")
            first = self._image_of_id.setdefault(image_id, image)
            require(first == image, f"id {image_id} now identifies another image than before")
        return images

    def check_all(self, memory: Memory) -> tuple[ReplayBatch | None, list[bytes]]:
        """Sample and check all stored images; the batch, and the pixels of its images."""
        stored = len(memory)
        if not stored:
            return None, []
        batch = memory.sample(stored)
        if batch is None:
            raise ContractViolation(f"sample({stored}) returned None with {stored} images stored")
        return batch, self.check_batch(batch, stored)


def copied(images: torch.Tensor, embeddings: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Copies of a mini-batch of `Traffic.batch`."""
    return images.clone(), None if embeddings is None else embeddings.clone()


def pixels_of(images: torch.Tensor) -> list[bytes]:
    """The pixels of each of the images (n, 3, H, W), as bytes."""
    return [image.tobytes() for image in images.cpu().numpy()]
