"""The network that a learner started from, rebuilt from its configuration."""

from __future__ import annotations

import torch

from climb.methods import PartFactory, find_method
from climb.methods.build import build_engine
from climb.nets import IMAGENET_MEAN, IMAGENET_STD, Network
from climb.nets.weights import PUBLISHED, RANDOM
from climb.settings.config import LearnerConfig


def start_network(config: LearnerConfig, *, seed: int) -> Network:
    """The network at step 0, on the CPU in eval mode: the random weights of the seed, or those that are configured.

    >>> first, other = (start_network(LearnerConfig(backbone="micro"), seed=seed).encoder for seed in (3, 4))
    >>> torch.equal(next(first.parameters()), next(other.parameters())), first.training
    (False, False)
    """
    if find_method(config.method).custom_engine:  # its network need not be the configured one
        engine = build_engine(
            config, mean=IMAGENET_MEAN, std=IMAGENET_STD, seed=seed, device=torch.device("cpu"), precision="float32",
            kind="eager",
        )  # fmt: skip
        return engine.parts.network.eval()
    return PartFactory(config=config, seed=seed, device=torch.device("cpu")).network.eval()


def start_name(config: LearnerConfig, *, seed: int) -> str:
    """What the network started from, in a few words.

    >>> start_name(LearnerConfig(backbone="micro"), seed=3)
    'micro, random weights of seed 3'
    """
    if config.weights == RANDOM:
        return f"{config.backbone}, random weights of seed {seed}"
    return (
        f"{config.backbone}, {'pretrained weights' if config.weights == PUBLISHED else f'weights of {config.weights}'}"
    )
