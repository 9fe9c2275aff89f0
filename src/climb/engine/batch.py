"""The batch socket: what do we train on? Stream, stream and replay, memory only, mixed images, i.i.d. chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from climb.errors import ClimbError, InputError
from climb.memory import Memory
from climb.parallel import Share
from climb.registry import Registry
from climb.settings.config import LearnerConfig


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """The images of one gradient step."""

    images: torch.Tensor
    """uint8 (n, 3, H, W), on the device."""
    is_replay: torch.Tensor
    """bool (n,), on the CPU: which rows come from the memory. Nothing depends on their order."""
    ids: torch.Tensor
    """int64 (r,), on the CPU: ids of the replay rows, in the order of those rows."""
    targets: torch.Tensor | None = None
    """float32 (r, d): stored embeddings of the replay rows, if the memory has any."""


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The views that reach the network, with the indices of stream and replay rows."""

    views: torch.Tensor
    """float (2, m, 3, H, W); with several processes, only the rows of this one."""
    stream_rows: torch.Tensor
    """int64 (s,)."""
    replay_rows: torch.Tensor
    """int64 (r,)."""
    share: Share | None = None
    """The rows of this process; None for a single process."""


def stream_alone(stream: torch.Tensor) -> TrainingBatch:
    """A batch without replay."""
    none = torch.zeros(0, dtype=torch.int64)
    return TrainingBatch(images=stream, is_replay=torch.zeros(len(stream), dtype=torch.bool), ids=none)


class BatchRule:
    """Picks the images of each pass over a stream mini-batch; this base class takes the mini-batch alone."""

    has_stream_rows: ClassVar[bool] = True
    """Whether its batches contain stream images. Some objectives need them."""
    replays: ClassVar[bool] = True
    """Whether stored images, if there is a memory, reach the network as they are."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Settings of the learner that it depends on, besides those that every step depends on."""
    replay_started: bool = False
    """Whether a batch had replay rows before. The engine sets it."""

    def rows(self, config: LearnerConfig) -> int:
        """Rows of a full batch that reach the network. Sets the number of passes for an equal budget."""
        return config.stream_batch

    def trained(self, images: int, replayed: int) -> int:
        """Rows of a batch that reach the network; fewer than ``images`` if the rule mixes images."""
        return images

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """The batch of one pass over the stream images (n, 3, H, W)."""
        return stream_alone(stream)

    def draw(self, replayed: int, generator: torch.Generator) -> torch.Tensor | None:
        """Random numbers for `mix`, on the generator's device; None by default. Drawn once for the whole batch."""
        return None

    def mix(
        self,
        views: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        *,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """The network's input from the views (2, n, 3, H, W); all of them by default. ``drawn`` comes from `draw`.

        It must draw nothing itself, so that it can be compiled.
        """
        return Mixed(views=views, stream_rows=stream_rows, replay_rows=replay_rows)


BATCH_RULES = Registry[type[BatchRule]](
    "batch rule",
    builtin=["climb.engine"],
    accepts=lambda part: isinstance(part, type) and issubclass(part, BatchRule),
    expects="a class derived from climb.engine.BatchRule",
)
"""The batch rules by name."""

batch_rule = BATCH_RULES.register
"""Decorator ``@batch_rule("name")`` that registers a class."""

batch_rule("stream")(BatchRule)


@batch_rule("stream-and-replay")
class StreamAndReplay(BatchRule):
    """The stream mini-batch and a fresh draw from the memory, once the memory holds enough images."""

    settings: ClassVar[tuple[str, ...]] = ("replay_when_short",)

    def rows(self, config: LearnerConfig) -> int:
        """Stream and replay."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """Stream rows, then replay rows; only stream rows while the memory holds too few images.

        With ``replay_when_short="fill"``, after replay has started, as many replay rows as there are images.
        """
        size = config.replay_batch
        if memory is not None and config.replay_when_short == "fill" and self.replay_started:
            size = min(size, max(1, len(memory)))
        replay = memory.sample(size) if memory is not None else None
        if replay is None:
            return stream_alone(stream)
        return TrainingBatch(
            images=torch.cat([stream, replay.images]),
            is_replay=torch.arange(len(stream) + len(replay.ids)) >= len(stream),
            ids=replay.ids,
            targets=replay.embeddings,
        )


@batch_rule("memory-only")
class MemoryOnly(BatchRule):
    """Batches from the memory alone (MinRed; Purushwalkam et al., 2022). Stream images are trained on once stored.

    A batch has ``stream_batch + replay_batch`` rows, so that budgets are equal; with fewer images stored, all of them.
    The memory should insert before the passes, as MinRed's does. Otherwise it is empty during the first mini-batch,
    which then trains on its own images.
    """

    has_stream_rows: ClassVar[bool] = False

    def rows(self, config: LearnerConfig) -> int:
        """As many as other rules take from stream and memory together."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """Replay rows only."""
        if memory is None:
            raise ClimbError("MemoryOnly trains on stored images; give the method a memory")
        if memory.inserts == "after" and memory.space is not None and config.embed_mode == "views":
            raise ClimbError(
                "MemoryOnly trains on no stream image, so their views have no embeddings for the memory; use a memory "
                "that inserts before the passes, or embed_mode 'eval'"
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


@batch_rule("mix-up")
class MixUp(BatchRule):
    """Each stream image is blended with a stored one (LUMP; Madaan et al., 2022, after Zhang et al., 2018).

    With one lambda ~ Beta(alpha, alpha) for the whole batch, for both views v of row i::

        x_iv = lambda * stream_iv + (1 - lambda) * replay_iv

    Both images are augmented first, twice each. (The original stores one augmented view of each image and replays it
    as the second view; our memories store unaugmented images.) Only the blends reach the network, one per stream image;
    the budget counts those.

    Args:
        alpha: shape of the Beta distribution; below 1, most blends are nearly one of the two images.
    """

    replays: ClassVar[bool] = False

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
                "MixUp trains on blends, which give the memory no embedding of a single image; use a memory without "
                "embeddings, such as the reservoir"
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
        """Two Gamma(alpha) variables; None without replay."""
        if replayed == 0:
            return None
        # torch.distributions take no generator.
        return torch._standard_gamma(torch.full((2,), self.alpha, device=generator.device), generator=generator)

    def mix(
        self,
        views: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        *,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """The blends (2, s, 3, H, W) of the views (2, 2s, 3, H, W); all count as stream rows."""
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


@batch_rule("iid")
class IidChunks(BatchRule):
    """The i.i.d. bound: each pass trains on its own part of a large mini-batch of shuffled images.

    ``passes * (stream_batch + replay_batch)`` images take as many steps and rows as a method with replay takes for
    ``stream_batch`` images. No image serves twice within an epoch.
    """

    def rows(self, config: LearnerConfig) -> int:
        """As many as other rules take from stream and memory together."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """The part of the mini-batch for this pass."""
        rows = self.rows(config)
        if len(stream) != config.passes * rows:
            raise InputError(
                f"the i.i.d. bound takes mini-batches of passes * (stream_batch + replay_batch) = {config.passes} * "
                f"({config.stream_batch} + {config.replay_batch}) = {config.passes * rows} images; given {len(stream)}"
            )
        return stream_alone(stream[pass_number * rows : (pass_number + 1) * rows])
