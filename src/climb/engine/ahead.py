"""For steps of few images: a reference network's forward beside the student's, not before or after it.

With ten images a forward leaves much of a GPU idle. Two of them side by side take less than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_streams: dict[torch.device, torch.cuda.Stream] = {}
_started: set[torch.device] = set()


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
    _started.add(device)
    return result


def wait(device: torch.device) -> None:
    """Let what follows on the current stream see what has been started, if anything has and nobody waited for it yet.

    Args:
        device: a tensor's, which names its index: ``cuda`` and ``cuda:0`` are two names.
    """
    # Only if something has: a CUDA graph may not wait for a stream that does nothing in it.
    if device in _started:
        _started.remove(device)
        torch.cuda.current_stream(device).wait_stream(_streams[device])


@torch.library.custom_op("climb::arrived", mutates_args=())
def arrived(started: Tensor, after: Tensor) -> Tensor:
    """What was `start`ed, for the current stream to read.

    An operator, so that a compiled function waits here and not where it begins; ``after`` is what it has to do first.
    """
    wait(started.device)
    return started.clone()


@arrived.register_fake
def _(started: Tensor, after: Tensor) -> Tensor:
    return torch.empty_like(started)
