"""SGD's step by the compiler: all parameters in a few kernels that keep the whole device busy.

Torch's own takes them by the fifty, in blocks too few for a large device: in a step of few images that shows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from climb.engine.compiled import compiled


def compiled_descent(optimizer: torch.optim.SGD) -> Callable[[], None]:
    """What ``optimizer.step()`` does, with the rate, momentum and weight decay that it has now, and nothing else."""
    (group,) = optimizer.param_groups
    assert not any(group[other] for other in ("nesterov", "dampening", "maximize"))
    rate, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
    if momentum == 0:
        return optimizer.step

    def descend(parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> None:
        downhill = torch._foreach_add(gradients, parameters, alpha=decay)
        torch._foreach_mul_(momenta, momentum)
        torch._foreach_add_(momenta, downhill)
        torch._foreach_add_(parameters, momenta, alpha=-rate)

    quick = compiled(descend)

    @torch.no_grad()
    def step() -> None:
        moved = [parameter for parameter in group["params"] if parameter.grad is not None]
        momenta = [optimizer.state[parameter].get("momentum_buffer") for parameter in moved]
        if any(held is None for held in momenta):  # it makes them with the first gradient
            optimizer.step()
        else:
            quick(moved, [parameter.grad for parameter in moved], momenta)

    return step
