"""Does the objective's loss fall when steps are taken on the same views again and again?"""

from __future__ import annotations

from dataclasses import replace

import torch

from climb.checks.trial import built
from climb.checks.watch import Given
from climb.config import LearnerConfig
from climb.engine import Engine
from climb.promise import promise, promised

STEPS = 20
# A loss falls if of all 190 pairs of steps so many have the lower loss later: a slow start and a bump may be among the
# others. Noise of any distribution is that much in order in 4 of 10 000 cases.
IN_ORDER = 145
# Or if the very first stands out by so many standard deviations of the last ones: a margin on views this few is kept
# after a step or two. Normal noise does in 5 of 10 000 cases, noise with heavy tails in more.
LAST, STANDS_OUT = 10, 5.0
# A rate that suits a long stream may overshoot here, where momentum meets the same views each time. So the rate is this
# at most, and if the loss does not fall, a tenth of that. Two tries: normal noise has less than two chances in 1000.
GENTLE_LR = 0.03


def check_descent(config: LearnerConfig, given: Given, seed: int) -> None:
    """From a fresh start, on a batch as a trained engine has it: with the usual share of stored images.

    The alignment, which holds the network back, has no weight here.
    """
    gentle = min(config.lr, GENTLE_LR)
    tried = {}
    for lr in (gentle, gentle / 10):
        tried[lr] = _descend(built(replace(config, lr=lr, alignment_weight=0.0), seed), given, seed)
        if _falls(tried[lr]):
            return
    constant = all(loss == tried[gentle][0] for losses in tried.values() for loss in losses)
    went = [", ".join(f"{loss:.4g}" for loss in losses) + f" at rate {lr:g}" for lr, losses in tried.items()]
    promise(
        False,
        f"the objective's loss does not fall: {STEPS} steps on the same views "
        + (f"left it at {tried[gentle][0]:.4g}, a constant" if constant else f"went {' and '.join(went)}")
        + ". Where it need not fall, the objective says so by falls = False",
    )


def _descend(engine: Engine, given: Given, seed: int) -> list[float]:
    """The losses of the method's own steps on the same images in the same views each time."""
    parts, step = engine.parts, engine._eager_step
    losses = []
    with promised("a step cannot be taken again on the same views"):
        if len(given[2]) > 0:
            parts.objective.on_first_replay(parts.network)
        if parts.alignment is not None:
            parts.alignment.before_batch(parts.network)
        for _ in range(STEPS):
            step.generator.manual_seed(seed)
            losses.append(step(*given)[0].item())
    return losses


def _falls(losses: list[float]) -> bool:
    loss = torch.tensor(losses, dtype=torch.float64)
    lower_later = (loss[None, :] < loss[:, None]).triu(1).sum()
    last = loss[-LAST:]
    return bool(lower_later >= IN_ORDER) or bool(loss[0] > last.mean() + STANDS_OUT * last.std())
