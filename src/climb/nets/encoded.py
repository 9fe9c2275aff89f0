"""A training batch after the network: what objectives and alignments are given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from climb.parallel import Share


@dataclass(frozen=True, kw_only=True)
class Beforehand:
    """What a reference network has been asked of a batch."""

    network: nn.Module
    views: torch.Tensor
    """(2, n, 3, H, W): what it was asked about."""
    answer: Callable[[], torch.Tensor]
    """(2, n, d): what it said. Called where that is needed, and not before: it may have to be waited for."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Two views of a training batch of n images, after the network. Nothing depends on the order of the rows."""

    views: torch.Tensor
    """float (2, n, 3, H, W): the augmented images. Where processes share the batch, those of this process's rows."""
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
    share: Share | None = None
    """Which rows ``views`` has, where processes share the batch; everything else is of all rows in each of them."""
    bf16: bool = False
    """Whether networks compute in bf16; losses are float32 all the same."""
    beforehand: Beforehand | None = None
    """What a reference network has been asked beforehand, if one has."""

    def embedded_by(
        self, network: nn.Module, rows: Literal["all", "replay"] = "all", *, views: int = 2
    ) -> torch.Tensor:
        """(views, m, d): what another network says of the first ``views`` views of these rows; has no gradient.

        The way for a reference network to see images: where processes share the batch, each sends its own rows.
        """
        known = self.beforehand
        if known is not None and known.network is network and known.views is self.views and (rows, views) == ("all", 2):
            return known.answer()
        replay = self.replay_rows if self.share is None else self.share.own_replay
        seen = self.views[:views] if rows == "all" else self.views[:views].index_select(1, replay)
        # Here, not around whoever calls: an objective's own arithmetic is to stay float32.
        lower = torch.autocast(seen.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext()
        with torch.no_grad(), lower:
            _, flat = network(seen.flatten(0, 1))
        embeddings: torch.Tensor = flat.view(*seen.shape[:2], flat.shape[1])  # not -1: there may be no row
        if self.share is None:
            return embeddings
        return self.share.of_all(embeddings) if rows == "all" else self.share.of_replay(embeddings)
