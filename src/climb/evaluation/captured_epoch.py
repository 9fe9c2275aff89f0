"""A whole epoch as one CUDA graph: thousands of small kernels for the price of one launch."""

from __future__ import annotations

from collections.abc import Callable

import torch


def captured_epoch(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """``run`` as something that replays it from a CUDA graph; on other devices, ``run`` itself.

    ``run`` must read and write tensors whose addresses stay put, and nothing on the host. It is executed once
    for real, as the warm-up that capture needs, so the tensors it writes must be set afterwards.

    >>> counter = torch.zeros(())
    >>> def count():
    ...     counter.add_(1)
    >>> replay = captured_epoch(count, counter.device)
    >>> replay()
    >>> counter.item()
    1.0
    """
    if device.type != "cuda":
        return run
    with torch.cuda.device(device):
        # The warm-up (which makes cuBLAS allocate its workspace) has to be off the default stream.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # A stream of this device: torch's own for captures belongs to the first device that had one.
        # Thread-local: another thread that copies images meanwhile must not spoil the capture.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            run()
    return graph.replay
