"""For steps of few images: weight gradients beside the chain of backward kernels, not in it.

With ten images a convolution leaves most of a GPU idle, and a step takes as long as its longest chain of kernels.
Nothing waits for a weight gradient but the optimiser, so it is computed on a second stream while the chain goes on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from climb.engine.second_stream import SecondStream

FEW_ROWS = 32
"""Images of a training batch up to which a step counts as small. With 138 the GPU is busy without this."""

BESIDE = SecondStream()


@torch.library.custom_op("climb::weight_gradient", mutates_args=())
def weight_gradient(
    outgoing: Tensor,
    inputs: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Float32: the gradient of a convolution's weight. On a GPU it is there only after `BESIDE.wait`.

    Until then nobody may read it. Torch would, to copy a gradient whose layout is not its parameter's; those of a
    network in channels-last, as `Parts.prepare` leaves it, have the same.
    """
    rest = (None, stride, padding, dilation, False, [0, 0], groups, [False, True, False])  # the weight's alone
    return BESIDE.start(lambda: _gradient(outgoing, inputs, weight, *rest), outgoing, inputs, weight)


@weight_gradient.register_fake
def _(outgoing: Tensor, inputs: Tensor, weight: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(weight, dtype=torch.float32)


def _gradient(*arguments: object) -> Tensor:
    gradient: Tensor = torch.ops.aten.convolution_backward(*arguments)[1]
    return gradient.float()
