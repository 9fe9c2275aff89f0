"""One mini-batch of a stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The images that arrive together, by index."""

    number: int
    """Position in the stream, from 0."""
    indices: torch.Tensor
    """int64 (size,), on the CPU, into the training split."""
    ends_segment: int | None
    """The segment that is complete after this mini-batch, if one is: the moment to evaluate."""
