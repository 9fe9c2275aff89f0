"""Work beside the chain of kernels: on a second stream of the device, until somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class SecondStream:
    """A stream of its own on each device, for one kind of work of one thread: two that train would mix theirs up."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._started: set[torch.device] = set()

    def start(self, function: Callable[[], Result], *read: Tensor) -> Result:
        """``function()``, which reads the tensors ``read``. On a GPU it is begun here, and there only after `wait`."""
        device = read[0].device
        if device.type != "cuda":
            return function()
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        main, beside = torch.cuda.current_stream(device), self._streams[device]
        beside.wait_stream(main)
        try:
            with torch.cuda.stream(beside):
                result = function()
        finally:  # also of what breaks off something may be going on
            for tensor in read:
                tensor.record_stream(beside)  # its memory is not given to another tensor before it has been read
            self._started.add(device)
        if isinstance(result, Tensor):
            result.record_stream(main)
        return result

    def wait(self, device: torch.device) -> None:
        """Let what follows on the current stream see what has been started, if anything has and nobody has waited yet.

        Args:
            device: a tensor's, which names its index: ``cuda`` and ``cuda:0`` are two names.
        """
        # Only if something has: a CUDA graph may not wait for a stream that does nothing in it.
        if device in self._started:
            self._started.remove(device)
            torch.cuda.current_stream(device).wait_stream(self._streams[device])


BESIDE = SecondStream()
"""For what is to be done by the end of a step: gradients of weights, running statistics. The step waits for it."""
