"""Matrix products in full float32 where rounding decides: distances, centroid averages, probes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def widest(device: torch.device) -> torch.dtype:
    """The most exact type of floating point that a device has.

    >>> widest(torch.device("cpu")), widest(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def full_float32() -> Iterator[None]:
    """Switch TF32 and bfloat16 shortcuts of float32 matrix products off inside, and back as they were after.

    An image is novel or not, a probe better or not, by differences that ten-bit mantissas would blur.

    >>> torch.set_float32_matmul_precision("high")
    >>> with full_float32():
    ...     torch.get_float32_matmul_precision()
    'highest'
    >>> torch.get_float32_matmul_precision()
    'high'
    >>> torch.set_float32_matmul_precision("highest")
    """
    cuda = torch.backends.cuda.matmul
    cpu = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # made when torch is imported
    saved = cuda.fp32_precision, cpu.fp32_precision
    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:
        # torch keeps two generations of switches and refuses to read the older one in exactly one case: it
        # still says "highest" while a backend switch asks for less.
        general = "highest"
    # The older switch sets both generations; setting the newer alone could leave a mixture torch refuses to use.
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(general)
        cuda.fp32_precision, cpu.fp32_precision = saved
