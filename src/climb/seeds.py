"""Independent named generators from one seed.

Every source of randomness (class order, split, stream order, initialisation, augmentation, replay, memory, probe) has
its own generator, so that, for example, the frequency of probing cannot change training.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, name: str) -> int:
    """A 63-bit seed for the generator ``name``, equal on all machines and versions.

    >>> derive(0, "replay") == derive(0, "replay"), derive(0, "replay") == derive(0, "memory")
    (True, False)
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_generator(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for ``name`` on ``device``."""
    return torch.Generator(device=device).manual_seed(derive(seed, name))


def restore(generator: torch.Generator, state: torch.Tensor) -> None:
    """Restore the state of a generator. A state from another kind of device becomes a new seed.

    CPU and GPU generators draw different numbers from one seed, so an exact continuation is impossible.

    >>> generator = torch.Generator().manual_seed(1)
    >>> restore(generator, torch.arange(16, dtype=torch.uint8))  # the state of a GPU generator
    >>> generator.initial_seed() == 1
    False
    """
    state = state.cpu()
    if state.numel() == generator.get_state().numel():
        generator.set_state(state)
    else:
        digest = hashlib.sha256(state.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def numpy_generator(seed: int, name: str) -> np.random.Generator:
    """A numpy generator for ``name``. Its state consists of integers, so JSON can store it."""
    return np.random.Generator(np.random.PCG64(derive(seed, name)))


def frozen_generator(seed: int, name: str) -> np.random.RandomState:
    """A generator whose numbers numpy guarantees for all versions. Manifests of streams depend on it."""
    return np.random.RandomState(derive(seed, name) % 2**32)
