"""Thousands of small kernels for the price of one launch: a function replayed from a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS = 5  # eager calls of a shape before it is captured: libraries choose their kernels and allocate meanwhile

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
        generators: random generators that it draws from.
    """

    def __init__(self, function: Function, *, generators: tuple[torch.Generator, ...] = ()) -> None:
        self._function = function
        self._generators = generators
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._captures: dict[tuple[torch.Size, ...], _Capture] = {}

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        """The function's outputs."""
        shapes = tuple(tensor.shape for tensor in inputs)
        self._calls[shapes] += 1
        if self._calls[shapes] <= WARM_UPS:
            return self._on_a_side_stream(inputs)
        if shapes not in self._captures:
            self._captures[shapes] = self._capture(inputs)
        capture = self._captures[shapes]
        for static, given in zip(capture.inputs, inputs, strict=True):
            static.copy_(given)
        capture.graph.replay()
        return capture.outputs

    def _on_a_side_stream(self, inputs: Tensors) -> Tensors:
        # What autograd allocates on the default stream could not be captured later.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            outputs = self._function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
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
