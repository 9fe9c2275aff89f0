"""One seed in, independent named generators out.

Every source of randomness (class order, split, stream order, init, augmentation, replay, memory, probe) has a
generator of its own, so that, for example, probing more often cannot change training.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, name: str) -> int:
    """A 63-bit seed for the generator called ``name``; the same on every machine and version.

    >>> derive(0, "replay") == derive(0, "replay"), derive(0, "replay") == derive(0, "memory")
    (True, False)
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_generator(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for ``name`` that lives on ``device``."""
    return torch.Generator(device=device).manual_seed(derive(seed, name))


def restore(generator: torch.Generator, state: torch.Tensor) -> None:
    """Continue a generator where ``state`` was taken of it; one of another kind of device starts anew from it.

    Kinds of devices draw different numbers from one seed, so there is nothing there to continue exactly.

    >>> generator = torch.Generator().manual_seed(1)
    >>> restore(generator, torch.arange(16, dtype=torch.uint8))  # a state as GPUs have it
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
    """A numpy generator for ``name``; its state is plain integers, so it travels in JSON."""
    return np.random.Generator(np.random.PCG64(derive(seed, name)))


def frozen_generator(seed: int, name: str) -> np.random.RandomState:
    """A generator whose stream numpy guarantees forever: for what a shared manifest must replay exactly."""
    return np.random.RandomState(derive(seed, name) % 2**32)
