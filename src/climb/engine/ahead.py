"""For steps of few images: a reference network's forward beside the student's, not before or after it.

With ten images a forward leaves much of a GPU idle. Two of them side by side take less than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_streams: dict[torch.device, torch.cuda.Stream] = {}


def start(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """``function`` of ``inputs``. On a GPU it is begun on a second stream and there only after `arrived`."""
    device = inputs.device
    if device.type != "cuda":
        return function(inputs)
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    main, beside = torch.cuda.current_stream(device), _streams[device]
    beside.wait_stream(main)
    with torch.cuda.stream(beside):
        result = function(inputs)
    inputs.record_stream(beside)  # its memory is not given to another tensor before it has been read
    result.record_stream(main)
    return result


@torch.library.custom_op("climb::arrived", mutates_args=())
def arrived(started: Tensor, after: Tensor) -> Tensor:
    """What was `start`ed, for the current stream to read.

    An operator, so that a compiled function waits here and not where it begins; ``after`` is what it has to do first.
    """
    if started.device.type == "cuda":
        torch.cuda.current_stream(started.device).wait_stream(_streams[started.device])
    return started.clone()


@arrived.register_fake
def _(started: Tensor, after: Tensor) -> Tensor:
    return torch.empty_like(started)
