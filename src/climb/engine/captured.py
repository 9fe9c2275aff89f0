"""Thousands of small kernels for the price of one launch: a function replayed from a CUDA graph."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from climb.errors import ClimbError

EAGER_CALLS = 5  # calls of a shape that are carried out as they come: a shape that stays rare is not worth more
WARM_UPS = 3  # further calls before the capture: libraries choose their kernels and allocate meanwhile
MOST_CAPTURES = 6  # shapes held as graphs, each with memory of its own; further shapes stay eager

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Tensors]


class StaticInputs:
    """Tensors that stay at their addresses, and take what they are given: only what has changed since is copied.

    A pass over the same images, or with the same rows, is then spared a copy: four microseconds each, where a small
    step has about a thousand.
    """

    def __init__(self, given: Tensors) -> None:
        self.tensors: Tensors = tuple(tensor.clone() for tensor in given)
        self._taken: list[tuple[weakref.ref[torch.Tensor], int] | None] = [None] * len(given)

    def take(self, given: Tensors) -> None:
        """Hold what ``given`` holds."""
        for place, (static, tensor) in enumerate(zip(self.tensors, given, strict=True)):
            taken = self._taken[place]
            if taken is not None and taken[0]() is tensor and taken[1] == tensor._version:
                continue
            static.copy_(tensor)
            # Tensors of inference mode do not count their changes.
            self._taken[place] = None if tensor.is_inference() else (weakref.ref(tensor), tensor._version)


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    inputs: StaticInputs
    outputs: Tensors


class Captured:
    """Calls ``function`` as it is a few times per input shape, and from then on replays it as one CUDA graph.

    The first calls are real calls, so nothing is computed twice or in vain. ``function`` takes tensors and returns
    tensors; what else it reads or changes (parameters, optimiser state) must stay at the same address. The outputs
    of a replay are overwritten by the next one of that shape.

    Args:
        function: what to capture.
        device: the device it runs on; on any but a CUDA device, nothing is captured.
        generators: random generators that it draws from.
        frequent: what to capture in place of ``function``: the same thing, faster but costly to start, for shapes that
            keep coming.
        before: called before a call of ``frequent`` that follows one of ``function``, and not captured.
        urgent: its kernels go before those of any stream that it has work done beside it.
    """

    def __init__(
        self,
        function: Function,
        *,
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        frequent: Function | None = None,
        before: Callable[[], None] | None = None,
        urgent: bool = False,
    ) -> None:
        self._function = function
        self._before = before
        self._was_rare = True
        self._priority = -1 if urgent else 0
        self._frequent = frequent or function
        self._device = device
        self._side: torch.cuda.Stream | None = None
        self._generators = generators
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._captures: dict[tuple[torch.Size, ...], _Capture] = {}

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        """The function's outputs."""
        shapes = tuple(tensor.shape for tensor in inputs)
        self._calls[shapes] += 1
        capture = self._captures.get(shapes)
        rare = capture is None and (self._calls[shapes] <= EAGER_CALLS or len(self._captures) >= MOST_CAPTURES)
        if self._before is not None and self._was_rare and not rare:
            self._before()
        self._was_rare = rare
        if capture is None:
            function = self._function if rare else self._frequent
            if self._device.type != "cuda":
                return function(*inputs)
            with torch.cuda.device(self._device):
                if rare or self._calls[shapes] <= EAGER_CALLS + WARM_UPS:
                    return self._on_a_side_stream(function, inputs)
                capture = self._captures[shapes] = self._capture(inputs)
        capture.inputs.take(inputs)
        with torch.cuda.device(self._device):
            capture.graph.replay()
        return capture.outputs

    def _on_a_side_stream(self, function: Function, inputs: Tensors) -> Tensors:
        # What autograd allocates on the default stream could not be captured later.
        if self._side is None:
            self._side = torch.cuda.Stream(priority=self._priority)  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            outputs = function(*inputs)
        torch.cuda.current_stream().wait_stream(self._side)
        return outputs

    def _capture(self, inputs: Tensors) -> _Capture:
        static = StaticInputs(inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        # A stream of this device, as in the warm-ups: torch's own for captures belongs to the first device that had
        # one. Thread-local: another thread that copies images meanwhile must not spoil the capture.
        try:
            with torch.cuda.graph(graph, stream=self._side, capture_error_mode="thread_local"):
                outputs = self._frequent(*static.tensors)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if isinstance(error.__context__, torch.OutOfMemoryError):  # the capture broke off for want of memory
                raise error.__context__ from None
            raise ClimbError(
                "the step cannot be captured as a CUDA graph: a part of the method waits for the device in the middle "
                "of it (.item(), .cpu(), a condition on a tensor), or copies from the host. Type --engine eager, or "
                f"keep its numbers on the device. torch says: {str(error).splitlines()[0]}"
            ) from error
        return _Capture(graph=graph, inputs=static, outputs=outputs)
