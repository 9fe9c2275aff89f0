"""Thousands of small kernels for the price of one launch: a function replayed from a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS = 5  # eager calls of a shape before it is captured: libraries choose their kernels and allocate meanwhile
MOST_CAPTURES = 6  # shapes held as graphs, each with memory of its own; further shapes stay eager

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., Tensors]


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


class Captured:
    """Calls ``function`` eagerly a few times per input shape, and from then on replays it as one CUDA graph.

    The eager calls are real calls, so nothing is computed twice or in vain. ``function`` takes tensors and returns
    tensors; what else it reads or changes (parameters, optimiser state) must stay at the same address. The outputs
    of a replay are overwritten by the next one of that shape.

    Args:
        function: what to capture.
        device: the CUDA device it runs on.
        generators: random generators that it draws from.
    """

    def __init__(
        self, function: Function, *, device: torch.device, generators: tuple[torch.Generator, ...] = ()
    ) -> None:
        self._function = function
        self._device = device
        self._side: torch.cuda.Stream | None = None
        self._generators = generators
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._captures: dict[tuple[torch.Size, ...], _Capture] = {}

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        """The function's outputs."""
        shapes = tuple(tensor.shape for tensor in inputs)
        self._calls[shapes] += 1
        with torch.cuda.device(self._device):
            if shapes not in self._captures:
                if self._calls[shapes] <= WARM_UPS or len(self._captures) >= MOST_CAPTURES:
                    return self._on_a_side_stream(inputs)
                self._captures[shapes] = self._capture(inputs)
            capture = self._captures[shapes]
            for static, given in zip(capture.inputs, inputs, strict=True):
                static.copy_(given)
            capture.graph.replay()
            return capture.outputs

    def _on_a_side_stream(self, inputs: Tensors) -> Tensors:
        # What autograd allocates on the default stream could not be captured later.
        if self._side is None:
            self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            outputs = self._function(*inputs)
        torch.cuda.current_stream().wait_stream(self._side)
        return outputs

    def _capture(self, inputs: Tensors) -> _Capture:
        static = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize()
        # Thread-local: another thread that copies images meanwhile must not spoil the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self._function(*static)
        return _Capture(graph=graph, inputs=static, outputs=outputs)
