"""A training batch after the network: what objectives and alignments are given."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Two views of a training batch of n images, after the network. Nothing depends on the order of the rows."""

    views: torch.Tensor
    """float (2, n, 3, H, W): the augmented images."""
    features: torch.Tensor
    """(2, n, f): the encoder's output, float32."""
    embeddings: torch.Tensor
    """(2, n, d): the projector's output, float32."""
    stream_rows: torch.Tensor
    """int64 (s,): rows that come from the stream."""
    replay_rows: torch.Tensor
    """int64 (r,): rows that come from the memory; empty before replay starts."""
    targets: torch.Tensor | None = None
    """float32 (r, d): what the memory stores of the replay rows, if it does."""
