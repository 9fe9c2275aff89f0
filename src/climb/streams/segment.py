"""One task, as the evaluator sees it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """The images that belong to one task, as int64 CPU tensors of indices."""

    train: torch.Tensor
    """(n,) into the training split, in the order of arrival. Never empty.

    What a mini-batch size leaves over at the end of a segment is in here all the same: it is training data
    for a probe, and which images these are depends on the size.
    """
    validation: torch.Tensor
    """(m,) into the training split, ascending: held out, never trained on."""
    test: torch.Tensor
    """(k,) into the test split, ascending."""
    classes: tuple[int, ...]
    """The classes of this task; all of them in an i.i.d. stream."""
