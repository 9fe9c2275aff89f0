"""CUDA graphs: a function is captured once per input shape and replayed with a single launch."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from climb.errors import ClimbError

EAGER_CALLS = 5  # eager calls of a shape before its warm-up: rare shapes are not worth a capture
WARM_UPS = 3  # further calls before the capture, in which libraries choose kernels and allocate
MOST_CAPTURES = 6  # shapes held as graphs, each with its own memory; further shapes stay eager

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Tensors]


class StaticInputs:
    """Input tensors at fixed addresses. `take` copies only the inputs that changed since the last call."""

    # A copy takes four microseconds, a small step about a thousand; passes share images and rows.

    def __init__(self, given: Tensors) -> None:
        self.tensors: Tensors = tuple(tensor.clone() for tensor in given)
        self._taken: list[tuple[weakref.ref[torch.Tensor], int] | None] = [None] * len(given)

    def take(self, given: Tensors) -> None:
        """Copy the values of ``given``."""
        for place, (static, tensor) in enumerate(zip(self.tensors, given, strict=True)):
            taken = self._taken[place]
            if taken is not None and taken[0]() is tensor and taken[1] == tensor._version:
                continue
            static.copy_(tensor)
            # Inference tensors have no version counter.
            self._taken[place] = None if tensor.is_inference() else (weakref.ref(tensor), tensor._version)


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    inputs: StaticInputs
    outputs: Tensors


class Captured:
    """A function that runs eagerly a few times per input shape, and then is replayed as a CUDA graph.

    ``function`` takes and returns tensors. All other tensors that it reads or changes, such as parameters and optimiser
    state, must stay at the same address. A replay overwrites the outputs of the last replay of that shape.

    Args:
        function: the function to capture.
        device: a CUDA device.
        generators: random generators that it draws from.
        frequent: an equivalent function to capture instead, faster but slow to start, such as a compiled one.
    """

    def __init__(
        self,
        function: Function,
        *,
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        frequent: Function | None = None,
    ) -> None:
        self._function = function
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
        if capture is None:
            function = self._function if rare else self._frequent
            with torch.cuda.device(self._device):
                if rare or self._calls[shapes] <= EAGER_CALLS + WARM_UPS:
                    return self._on_a_side_stream(function, inputs)
                capture = self._captures[shapes] = self._capture(inputs)
        capture.inputs.take(inputs)
        with torch.cuda.device(self._device):
            capture.graph.replay()
        return capture.outputs

    def _on_a_side_stream(self, function: Function, inputs: Tensors) -> Tensors:
        # Tensors that autograd allocates on the default stream cannot be captured later.
        if self._side is None:
            self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
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
        # The stream of the warm-ups: torch's own capture stream belongs to the first device that captured.
        # Thread-local: another thread may copy images meanwhile.
        try:
            with torch.cuda.graph(graph, stream=self._side, capture_error_mode="thread_local"):
                outputs = self._frequent(*static.tensors)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if isinstance(error.__context__, torch.OutOfMemoryError):  # the capture ran out of memory
                raise error.__context__ from None
            raise ClimbError(
                "the step cannot be captured as a CUDA graph: a part of the method waits for the device (.item(), "
                ".cpu(), a condition on a tensor) or copies from the host. Type --engine eager, or keep its numbers on "
                f"the device. torch says: {str(error).splitlines()[0]}"
            ) from error
        return _Capture(graph=graph, inputs=static, outputs=outputs)
