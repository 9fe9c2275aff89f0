"""SGD's step by the compiler: all parameters in a few kernels that keep the whole device busy.

Torch's own takes them by the fifty, in blocks too few for a large device: in a step of few images that shows. What can
be stepped while the backward goes on, is: see `weight_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from climb.engine.compiled import compiled
from climb.engine.halves import Halves
from climb.engine.weight_gradients import MANY_WEIGHTS, Taker, hand_over
from climb.errors import ClimbError

Tensors = tuple[Tensor, ...]


def compiled_descent(optimizer: torch.optim.SGD, halves: Halves | None = None) -> Callable[[], None]:
    """What ``optimizer.step()`` does, with the rate, momentum and weight decay that it has now, and nothing else.

    Weights that have ``halves`` take the gradients of those, and bring them up to date. They need a momentum.
    """
    (group,) = optimizer.param_groups
    assert not any(group[other] for other in ("nesterov", "dampening", "maximize"))
    rate, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
    if momentum == 0 and halves is None:
        return optimizer.step
    pairs = {} if halves is None else {whole: half for whole, half in halves.pairs.values() if whole.requires_grad}
    taken: set[Tensor] = set()

    def take(whole: nn.Parameter, gradient: Tensor) -> None:
        held = optimizer.state[whole]["momentum_buffer"]
        _step_one(whole, gradient, held, pairs[whole], rate=rate, momentum=momentum, decay=decay)
        taken.add(whole)

    takers = [Taker(half, partial(take, whole)) for whole, half in pairs.items() if half.numel() >= MANY_WEIGHTS]
    hand_over(takers)

    def descend(wholes: Tensors, gradients: Tensors, momenta: Tensors, halved: Tensors) -> None:
        downhill = torch._foreach_add(gradients, wholes, alpha=decay)
        torch._foreach_mul_(momenta, momentum)
        torch._foreach_add_(momenta, downhill)
        torch._foreach_add_(wholes, momenta, alpha=-rate)
        if halved:
            torch._foreach_copy_(halved, wholes[: len(halved)])

    quick = compiled(descend)

    @torch.no_grad()
    def step() -> None:
        gradients = {whole: half.grad for whole, half in pairs.items()}  # those with halves come first
        if any(whole.grad is not None for whole in pairs):
            raise ClimbError(
                "a part of the method computes with the network's own weights, beside the network, which the compiled "
                "step of few images does not expect. Type --engine captured"
            )
        gradients |= {parameter: parameter.grad for parameter in group["params"] if parameter not in pairs}
        moved = {each: grad for each, grad in gradients.items() if grad is not None and each not in taken}
        taken.clear()
        for taker in takers:
            taker.gradient = None
        momenta = [optimizer.state[parameter].get("momentum_buffer") for parameter in moved]
        if any(held is None for held in momenta):  # it makes them with the first gradient
            optimizer.step()
        else:
            halved = tuple(pairs[each] for each in moved if each in pairs)
            quick(tuple(moved), tuple(moved.values()), tuple(momenta), halved)

    step.takers = takers  # type: ignore[attr-defined]  # they live as long as the step does
    return step


def _step_one(
    whole: Tensor, gradient: Tensor, held: Tensor, half: Tensor, *, rate: float, momentum: float, decay: float
) -> None:
    """One weight's step, on the current stream."""
    if whole.device.type == "cuda":
        from climb.engine.descent_kernel import descend_one

        descend_one(whole, gradient, held, half, rate=rate, momentum=momentum, decay=decay)
        return
    with torch.no_grad():
        held.mul_(momentum).add_(gradient + decay * whole)
        whole.sub_(rate * held)
        half.copy_(whole)
