"""SGD's step by the compiler: all parameters in a few kernels that keep the whole device busy.

Torch's own takes them by the fifty, in blocks too few for a large device: in a step of few images that shows. What can
be stepped while the backward goes on, is: see `weight_gradients`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from climb.engine.compiled import compiled
from climb.engine.halves import Halves
from climb.engine.weight_gradients import MANY_WEIGHTS, Taker, hand_over
from climb.errors import ClimbError

Tensors = tuple[Tensor, ...]


class CompiledDescent:
    """What ``optimizer.step()`` does, with the rate, momentum and weight decay that it has now, and nothing else.

    Weights that have ``halves`` take the gradients of those, and bring them up to date. They need a momentum. The
    largest are stepped while the backward goes on: a step that breaks off there has moved them.
    """

    def __init__(self, optimizer: torch.optim.SGD, halves: Halves | None = None) -> None:
        (group,) = optimizer.param_groups
        assert not any(group[other] for other in ("nesterov", "dampening", "maximize"))
        rate, momentum, decay = self._rates = (group["lr"], group["momentum"], group["weight_decay"])
        self._optimizer = optimizer
        self._parameters: list[nn.Parameter] = group["params"]
        self._pairs = {} if halves is None else {one: half for one, half in halves.pairs.values() if one.requires_grad}
        large = [whole for whole, half in self._pairs.items() if half.numel() >= MANY_WEIGHTS]
        self._takers = [Taker(self._pairs[whole], partial(self._take, whole)) for whole in large]
        self._handed_over = False
        self._taken: set[nn.Parameter] = set()

        def descend(wholes: Tensors, gradients: Tensors, momenta: Tensors, halved: Tensors) -> None:
            downhill = torch._foreach_add(gradients, wholes, alpha=decay)
            torch._foreach_mul_(momenta, momentum)
            torch._foreach_add_(momenta, downhill)
            torch._foreach_add_(wholes, momenta, alpha=-rate)
            if halved:
                torch._foreach_copy_(halved, wholes[: len(halved)])

        self._quick = compiled(descend)

    def forget(self) -> None:
        """Forget the gradients of halves, before others come."""
        for half in self._pairs.values():
            half.grad = None
        for taker in self._takers:
            taker.gradient = None
        self._taken.clear()

    @torch.no_grad()
    def __call__(self) -> None:
        """Step what has a gradient and has not been stepped yet."""
        if not self._handed_over:
            # Not before a step has shown that the network's own weights are used by nobody beside it.
            self._handed_over = all(whole.grad is None for whole in self._pairs)
            if self._handed_over:
                hand_over(self._takers)
        elif any(whole.grad is not None for whole in self._taken):
            raise ClimbError(
                "a part of the method computes with the network's own weights in some steps and not in others, which "
                "the compiled step of few images does not expect. Type --engine captured"
            )
        gradients = {whole: _sum(half.grad, whole.grad) for whole, half in self._pairs.items()}  # these come first
        gradients |= {each: each.grad for each in self._parameters if each not in self._pairs}
        moved = {each: grad for each, grad in gradients.items() if grad is not None and each not in self._taken}
        momenta = [self._optimizer.state[parameter].get("momentum_buffer") for parameter in moved]
        _, momentum, _ = self._rates
        if momentum == 0 or any(held is None for held in momenta):  # torch makes them with the first gradient
            assert not self._pairs
            self._optimizer.step()
            return
        halved = tuple(self._pairs[each] for each in moved if each in self._pairs)
        self._quick(tuple(moved), tuple(moved.values()), tuple(momenta), halved)

    def _take(self, whole: nn.Parameter, gradient: Tensor) -> None:
        held = self._optimizer.state[whole]["momentum_buffer"]
        _step_one(whole, gradient, held, self._pairs[whole], *self._rates)
        self._taken.add(whole)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one + other


def _step_one(
    whole: Tensor, gradient: Tensor, held: Tensor, half: Tensor, rate: float, momentum: float, decay: float
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
