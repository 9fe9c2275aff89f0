"""Do images stay different to the network?"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from climb.checks.trial import images
from climb.engine import Engine
from climb.engine.health import COLLAPSED, ONE_DIRECTION, Health, feature_health, health
from climb.nets import frozen
from climb.promise import promise, promised

# Where a norm's running statistics lag behind weights as young as these, all embeddings share an offset, and their
# spread is small though nothing has collapsed. There, less is asked; healthy networks are above it.
LEAST_BEHIND_RUNNING = 0.05


@dataclass(frozen=True)
class Look:
    """The health of some output of the network, and the spread it must be above."""

    health: Health
    least: float = COLLAPSED


def look(engine: Engine, seed: int) -> dict[str, Look]:
    """What the network makes of the first images, plain.

    As runs look at it: at features as they are evaluated, and at embeddings as they are trained, normalised by their
    own batch. A norm scales up what is left of a collapse then, so embeddings are looked at as evaluated, too.
    """
    network = engine.parts.network
    inputs = engine.augment.plain(torch.cat([images(engine, seed, number) for number in range(5)]))
    with promised("images cannot be embedded"):
        with frozen(network):
            features, evaluated = network(inputs)
        with torch.no_grad():
            _, trained = copy.deepcopy(network)(inputs)  # its running statistics must not see these images
        of_features = feature_health(features, inputs)
        assert of_features is not None  # so many images, and all different
        return {
            "features": Look(of_features),
            "embeddings": Look(health(trained)),
            "embeddings, as evaluated,": Look(health(evaluated), LEAST_BEHIND_RUNNING),
        }


def check_collapse(before: dict[str, Look], after: dict[str, Look]) -> None:
    """By the judgement of `Health.collapsed`, of a network that may have been trained for too short a time.

    Images may lie close together at the start, as they often do to a projector without a norm behind it. It has not
    collapsed if they have moved apart since.
    """
    for kind, now in after.items():
        then, spread, rank = before[kind].health, now.health.spread, now.health.effective_rank
        moved_apart = then.spread < spread and then.spread < now.least
        promise(
            (spread >= now.least or moved_apart) and rank >= ONE_DIRECTION,
            f"the {kind} have collapsed: their spread, which is 1 for random directions and 0 for one point, went from "
            f"{then.spread:.4f} to {spread:.4f}, and must be {now.least} or more; their effective rank, which is how "
            f"many dimensions are used, from {then.effective_rank:.2f} to {rank:.2f}, and must be {ONE_DIRECTION} or "
            "more",
        )
