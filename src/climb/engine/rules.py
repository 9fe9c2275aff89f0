"""Batch rules beyond the stream and its replay: from the memory alone, mixed images, chunks of an i.i.d. stream."""

from __future__ import annotations

from typing import ClassVar

import torch

from climb.config import LearnerConfig
from climb.engine.batch import BatchRule, Mixed, TrainingBatch, stream_alone
from climb.errors import ClimbError, InputError
from climb.memory import Memory


class MemoryOnly(BatchRule):
    """Batches from the memory alone (MinRed; Purushwalkam et al., 2022): stream images are learnt once they are stored.

    A batch has as many rows as the stream mini-batch and the replay batch together, so that budgets are equal: with the
    replay batch's alone, as in a port of the method, it would train on 7 % less than others. At the start it has as
    many as are stored. The memory should insert before the passes, as MinRed's does:
    otherwise there is nothing to draw from yet in the first mini-batch, which then trains on its own images.
    """

    has_stream_rows: ClassVar[bool] = False

    def rows(self, config: LearnerConfig) -> int:
        """As many as the stream and the replay have elsewhere."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """Replay rows only."""
        if memory is None:
            raise ClimbError("MemoryOnly trains on what a memory holds; give the method a memory")
        if memory.inserts == "after" and memory.space is not None and config.embed_mode == "views":
            raise ClimbError(
                "MemoryOnly trains on no stream image, so there are no views of them whose embeddings the memory could "
                "be given; use a memory that inserts before the passes, or embed_mode 'eval'"
            )
        replay = memory.sample(min(self.rows(config), len(memory)))
        if replay is None:
            return stream_alone(stream)
        return TrainingBatch(
            images=replay.images,
            is_replay=torch.ones(len(replay.ids), dtype=torch.bool),
            ids=replay.ids,
            targets=replay.embeddings,
        )


class MixUp(BatchRule):
    """Each stream image is blended with a stored one (LUMP; Madaan et al., 2022, after Zhang et al., 2018).

    With one lambda ~ Beta(alpha, alpha) for the whole batch, for both views v of row i::

        x_iv = lambda * stream_iv + (1 - lambda) * replay_iv

    Both images are augmented first, twice each. (The original stores one augmented view of each image and replays
    that as the second view; this memory stores images as they came.) The network sees the blends alone, as many as
    there are stream images: the budget counts those.

    Args:
        alpha: shape of the Beta distribution; below 1, most blends are nearly one of the two images.
    """

    def __init__(self, alpha: float = 0.4) -> None:
        if not alpha > 0:
            raise InputError(f"alpha must be above 0; given {alpha}")
        self.alpha = alpha

    def trained(self, images: int, replayed: int) -> int:
        """One blend for each stream image."""
        return images - replayed

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """Stream rows, then as many replay rows; stream rows alone while the memory holds too little."""
        if memory is not None and memory.space is not None:
            raise ClimbError(
                "MixUp trains on blends of two images, which have no embedding of either for the memory to keep; "
                "use a memory without embeddings, such as the reservoir"
            )
        replay = memory.sample(len(stream)) if memory is not None else None
        if replay is None:
            return stream_alone(stream)
        return TrainingBatch(
            images=torch.cat([stream, replay.images]),
            is_replay=torch.arange(2 * len(stream)) >= len(stream),
            ids=replay.ids,
        )

    def draw(self, replayed: int, generator: torch.Generator) -> torch.Tensor | None:
        """Two Gamma(alpha) variables, once there is replay. torch.distributions take no generator."""
        if replayed == 0:
            return None
        return torch._standard_gamma(torch.full((2,), self.alpha, device=generator.device), generator=generator)

    def mix(
        self,
        views: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        *,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """The blends (2, s, 3, H, W) of the views (2, 2s, 3, H, W), all of them rows of the stream."""
        if drawn is None:
            return super().mix(views, stream_rows, replay_rows, drawn=drawn)
        # X / (X + Y) of two Gamma(alpha) variables is Beta(alpha, alpha).
        share = (drawn[0] / drawn.sum()).to(views.dtype)
        blends = torch.lerp(views.index_select(1, replay_rows), views.index_select(1, stream_rows), share)
        return Mixed(
            views=blends,
            stream_rows=torch.arange(len(stream_rows), device=stream_rows.device),
            replay_rows=replay_rows[:0],
        )


class IidChunks(BatchRule):
    """The passes over a large mini-batch each train on their own part of it: the i.i.d. bound.

    A mini-batch of ``passes * (stream_batch + replay_batch)`` shuffled images then takes the steps, and the rows of
    each step, that a method with replay takes for one of ``stream_batch``, and no image serves twice within an epoch.
    """

    def rows(self, config: LearnerConfig) -> int:
        """As many as the stream and the replay have elsewhere."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """The chunk of that pass."""
        rows = self.rows(config)
        if len(stream) != config.passes * rows:
            raise InputError(
                f"the i.i.d. bound takes mini-batches of passes * (stream_batch + replay_batch) = {config.passes} * "
                f"({config.stream_batch} + {config.replay_batch}) = {config.passes * rows} images; given {len(stream)}"
            )
        return stream_alone(stream[pass_number * rows : (pass_number + 1) * rows])
