"""For steps of few images: weight gradients beside the chain of backward kernels, not in it.

With ten images a convolution leaves most of a GPU idle, and a step takes as long as its longest chain of kernels.
Nothing waits for a weight gradient but the optimiser, so it is computed on a second stream while the chain goes on.
The largest weights are stepped there too, right after: an optimiser is busy with memory alone, the chain with waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from climb.engine.second_stream import BESIDE

FEW_ROWS = 32
"""Images of a training batch up to which a step counts as small. With 138 the GPU is busy without this."""

MANY_WEIGHTS = 2**18
"""Numbers in a weight from which on the optimiser takes its gradient while the backward goes on.

The chain is through with such a layer early; of the others it has the gradients at its end, and all at once.
"""


class Taker:
    """Who takes a weight's gradient once the chain is through with the weight, in the stream it was computed in."""

    def __init__(self, weight: Tensor, take: Callable[[Tensor], None]) -> None:
        self.address = weight.data_ptr()
        self.take = take
        self.gradient: Tensor | None = None
        """What is there and not yet taken."""


_takers: WeakValueDictionary[int, Taker] = WeakValueDictionary()


def hand_over(takers: Iterable[Taker]) -> None:
    """Let each have its weight's gradients from now on, for as long as somebody holds it."""
    _takers.update({taker.address: taker for taker in takers})


@torch.library.custom_op("climb::weight_gradient", mutates_args=())
def weight_gradient(
    outgoing: Tensor,
    inputs: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    dtype: torch.dtype,
    left: Tensor | None,
    behind: Tensor | None,
) -> Tensor:
    """The gradient of a convolution's weight. On a GPU it is there only after `BESIDE.wait`.

    Until then nobody may read it. Torch would, to copy a gradient whose layout is not its parameter's; those of a
    network in channels-last, as `Parts.prepare` leaves it, have the same.

    ``left`` is a weight that the chain is through with: it has come to ``behind``, the gradient of the input of that
    weight's convolution. Whoever takes that weight's gradients may change it now, which torch is not told: nothing else
    in a backward reads a weight or what it is rounded from.
    """
    rest = (None, stride, padding, dilation, False, [0, 0], groups, [False, True, False])  # the weight's alone

    def compute() -> Tensor:
        gradient = _gradient(dtype, outgoing, inputs, weight, *rest)
        if (taker := _takers.get(weight.data_ptr())) is not None:
            # Not the tensor itself: torch copies, at once, a gradient that somebody else holds.
            taker.gradient = gradient.detach()
        if left is not None and (taker := _takers.get(left.data_ptr())) is not None and taker.gradient is not None:
            taker.take(taker.gradient)
            taker.gradient = None
        return gradient

    return BESIDE.start(compute, outgoing, inputs, weight)


@weight_gradient.register_fake
def _(outgoing: Tensor, inputs: Tensor, weight: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(weight, dtype=rest[-3])  # type: ignore[arg-type]


@torch.library.custom_op("climb::linear_gradient", mutates_args=())
def linear_gradient(outgoing: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a linear layer's weight, from (out, n) and (n, in). It too is there only after `BESIDE.wait`."""
    return BESIDE.start(lambda: torch.mm(outgoing, inputs).to(dtype), outgoing, inputs)


@linear_gradient.register_fake
def _(outgoing: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return outgoing.new_empty((outgoing.shape[0], inputs.shape[1]), dtype=dtype)


def _gradient(dtype: torch.dtype, *arguments: object) -> Tensor:
    gradient: Tensor = torch.ops.aten.convolution_backward(*arguments)[1]
    return gradient.to(dtype)
