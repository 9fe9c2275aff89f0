"""One weight's step of SGD as one kernel, small enough to be done beside something else.

Imported only where there is a GPU: Triton is needed.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def descend_kernel(whole, gradient, held, half, count, rate, momentum, decay, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    weight = tl.load(whole + at, inside)
    slope = tl.load(gradient + at, inside).to(tl.float32) + decay * weight
    speed = momentum * tl.load(held + at, inside) + slope
    weight -= rate * speed
    tl.store(held + at, speed, inside)
    tl.store(whole + at, weight, inside)
    tl.store(half + at, weight.to(half.dtype.element_ty), inside)


def descend_one(
    whole: Tensor, gradient: Tensor, held: Tensor, half: Tensor, *, rate: float, momentum: float, decay: float
) -> None:
    """Step ``whole`` and its momentum ``held`` down the gradient, and round it into ``half``."""
    if gradient.stride() != whole.stride():  # the kernel goes through memory, not through indices
        gradient = gradient.new_empty_strided(whole.shape, whole.stride()).copy_(gradient)
    count = whole.numel()
    descend_kernel[(triton.cdiv(count, BLOCK),)](
        whole, gradient, held, half, count, rate, momentum, decay, BLOCK=BLOCK, num_warps=8
    )
