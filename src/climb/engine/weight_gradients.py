"""For steps of few images: weight gradients beside the chain of backward kernels, not in it.

With ten images a convolution leaves most of a GPU idle, and a step takes as long as its longest chain of kernels.
Nothing waits for a weight gradient but the optimiser, so it is computed on a second stream while the chain goes on.
"""

from __future__ import annotations

import torch
from torch import Tensor

FEW_ROWS = 32
"""Images of a training batch up to which a step counts as small. With 138 the GPU is busy without this."""

_streams: dict[torch.device, torch.cuda.Stream] = {}
_started: set[torch.device] = set()


def wait(device: torch.device) -> None:
    """Let what follows on the current stream see the weight gradients that have been started, if there are any.

    Args:
        device: a tensor's, which names its index: ``cuda`` and ``cuda:0`` are two names.
    """
    # Only if there are: a CUDA graph may not wait for a stream that does nothing in it.
    if device in _started:
        _started.remove(device)
        torch.cuda.current_stream(device).wait_stream(_streams[device])


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
    """Float32: the gradient of a convolution's weight. On a GPU it is there only after `wait`.

    Until then nobody may read it. Torch would, to copy a gradient whose layout is not its parameter's; those of a
    network in channels-last, as `Parts.prepare` leaves it, have the same.
    """
    device, only_weight = outgoing.device, [False, True, False]
    rest = (None, stride, padding, dilation, False, [0, 0], groups, only_weight)
    if device.type != "cuda":
        return _gradient(outgoing, inputs, weight, *rest)
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    main, beside = torch.cuda.current_stream(device), _streams[device]
    beside.wait_stream(main)
    with torch.cuda.stream(beside):
        gradient = _gradient(outgoing, inputs, weight, *rest)
    for read in (outgoing, inputs, weight):
        read.record_stream(beside)  # its memory is not given to another tensor before it has been read
    gradient.record_stream(main)
    _started.add(device)
    return gradient


@weight_gradient.register_fake
def _(outgoing: Tensor, inputs: Tensor, weight: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(weight, dtype=torch.float32)


def _gradient(*arguments: object) -> Tensor:
    gradient: Tensor = torch.ops.aten.convolution_backward(*arguments)[1]
    return gradient.float()
