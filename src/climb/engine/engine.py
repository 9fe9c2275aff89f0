"""The engine: observes a stream mini-batch, takes gradient steps, and updates the memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from zlib import crc32

import torch

from climb.augment import Augment
from climb.engine.batch import TrainingBatch
from climb.engine.captured import Captured, Function
from climb.engine.guard import Guard
from climb.engine.numerics import EngineKind, Precision
from climb.engine.parts import Parts, fetching, prepare_across
from climb.engine.step import CompiledIfFull, TrainStep
from climb.errors import ClimbError, InputError
from climb.memory import InsertReport, Memory
from climb.nets import frozen
from climb.parallel import SINGLE, Group
from climb.precision import reuse_memory
from climb.seeds import restore, torch_generator
from climb.settings.config import LearnerConfig


@dataclass(kw_only=True)
class Budget:
    """Counters of what was executed. An image in two views counts twice."""

    images: int = 0
    """Stream images observed."""
    batches: int = 0
    """Stream mini-batches observed."""
    steps: int = 0
    """Gradient steps."""
    cbp: int = 0
    """Cumulative backward passes: views with forward and backward."""
    forward_only: int = 0
    """Views or images with a forward only: teacher, memory, refresh."""

    def state_dict(self) -> dict[str, int]:
        """The counters."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue counting."""
        for name, value in state.items():
            if name not in vars(self) or not isinstance(value, int):
                raise TypeError(f"{name} is no counter with value {value!r}")
            setattr(self, name, value)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The outcome of one mini-batch. Losses are tensors on the device: reading one waits for it."""

    objective: torch.Tensor
    """Scalar loss of the objective in the last pass."""
    alignment: torch.Tensor
    """Scalar loss of the alignment in the last pass; nan before replay starts."""
    embeddings: torch.Tensor
    """float32 (n, d): rows of the last pass, mean over the two views, in the memory's space, by default the
    projector's."""
    report: InsertReport
    """What the memory did with the images."""


class Engine:
    """Runs the passes of a method over a stream. Sees images only: no labels, no task numbers.

    In a group of several processes, each has an engine and observes the same mini-batches. All get the same memory,
    network and numbers as a single process.

    Args:
        parts: the method's four parts and its network; moved to ``device``.
        augment: makes the two views.
        config: passes, batch sizes, optimiser, embedding modes.
        seed: the run's seed, for the augmentation generator.
        device: where everything happens.
        precision: arithmetic of the networks.
        kind: "eager"; "captured": the step is replayed as a CUDA graph; "compiled": it is compiled, and on a GPU then
            captured.
        group: the processes that train together.
    """

    def __init__(
        self,
        parts: Parts,
        augment: Augment,
        config: LearnerConfig,
        *,
        seed: int,
        device: torch.device,
        precision: Precision,
        kind: EngineKind = "eager",
        group: Group = SINGLE,
    ) -> None:
        self.parts = parts
        self.config = config
        self.device = device
        self.precision = precision
        self.kind = kind
        self.augment = augment
        self.budget = Budget()
        self.group = group
        prepare_across(parts, self.group)
        parts.prepare(device)
        if device.type == "cpu":
            reuse_memory()
        self._generator = torch_generator(seed, "augmentation", device)
        self._no_targets = torch.zeros(0, device=device)
        self._replayed = False
        self._owed = 0  # rows that the memory was short of, made up for if `replay_when_short` is "fill"
        self._rows_of_mask: dict[bytes, tuple[torch.Tensor, torch.Tensor]] = {}
        # If the memory's embeddings come from the step's forward, the memory update overlaps the backward.
        views = config.embed_mode == config.refresh_mode == "views"
        overlaps = device.type == "cuda" and parts.memory is not None and parts.memory.space is not None and views
        self._side = torch.cuda.Stream(device) if overlaps else None  # type: ignore[no-untyped-call]
        self._stepping: torch.cuda.Stream | None = None
        """The stream of the last step, during a memory update on the side stream."""
        self._eager_step = TrainStep(
            parts,
            augment,
            config,
            generator=self._generator,
            precision=precision,
            device=device,
            tuned=kind != "eager",
            announced=overlaps,
            group=group,
        )
        self._step, self._embed = self._by_kind()
        self.guard = Guard(self) if config.guard else None
        """Restores a healthy encoder; None without the setting."""

    def _by_kind(self) -> tuple[Function, Function]:
        """The functions that take a step and that embed plain images, as the kind of engine executes them."""
        step: Function = self._eager_step
        embed: Function = partial(self._embed_by, self._eager_step)
        if self.kind == "eager":
            return step, embed
        if self.kind == "compiled" and self.device.type != "cuda":
            return CompiledIfFull(self._eager_step), embed
        frequent = self._eager_step.compiled() if self.kind == "compiled" else self._eager_step
        return (
            Captured(step, device=self.device, generators=(self._generator,), frequent=frequent),
            Captured(embed, device=self.device, frequent=partial(self._embed_by, frequent)),
        )

    # -- learning ------------------------------------------------------------------------------------------------

    def observe(self, images: torch.Tensor) -> Observation:
        """Learn from one stream mini-batch of uint8 images (n, 3, H, W)."""
        if len(images) == 0:
            raise InputError("a stream mini-batch needs at least one image; none was given")
        side = self.config.image_size
        if images.dtype != torch.uint8 or images.shape[1:] != (3, side, side):
            raise InputError(
                f"this engine learns from uint8 images of shape (n, 3, {side}, {side}); "
                f"given {images.dtype} of shape {tuple(images.shape)}"
            )
        parts, memory = self.parts, self.parts.memory
        # Copy even on-device input: the caller may overwrite it during the passes.
        stream = images.to(self.device, copy=True)
        if self.guard is not None:
            self.guard.before_batch(stream)
        report = InsertReport()
        if memory is not None and memory.inserts == "before":
            report = memory.insert(stream, self._embed_stream(stream) if memory.space else None, embed=self.embed)
        if parts.alignment is not None:
            parts.alignment.before_batch(parts.network)
        passes = self.passes()
        self._owed %= parts.batch.rows(self.config)
        for pass_number in range(passes):
            with fetching(parts.batch, self.group):
                batch = parts.batch(stream, memory, self.config, pass_number)
            stream_rows, replay_rows = self._rows(batch.is_replay)
            if len(batch.ids) > 0 and not self._replayed:
                self._replayed = parts.batch.replay_started = True
                parts.objective.on_first_replay(parts.network)
            targets = self._no_targets if batch.targets is None else batch.targets
            step = self._head_step if self._encoder_is_held else self._step
            objective, alignment, streamed, replayed = step(batch.images, stream_rows, replay_rows, targets)
            self._count(batch, streamed=len(stream))
            if self.guard is not None and self.guard.takes_back(self, objective):
                # The step's embeddings are not finite. The restored network embeds the images anew.
                objective, streamed = torch.zeros_like(objective), self._embed_stream(stream)
                replayed = streamed[:0]
                break
            if memory is not None and memory.space is not None and len(batch.ids) > 0:
                with self._overlapping_the_step():
                    memory.refresh(batch.ids, replayed)
        embeddings = torch.cat([streamed, replayed])
        if parts.alignment is not None:
            parts.alignment.after_batch(parts.network)
        if parts.average is not None:
            parts.average.update(parts.network)
        if memory is not None and memory.inserts == "after":
            if memory.space is not None and self.config.embed_mode != "views":
                streamed = self._embed_stream(stream)
            with self._overlapping_the_step():
                report = memory.insert(stream, streamed if memory.space else None, embed=self.embed)
        self.budget.images += len(images)
        self.budget.batches += 1
        _check_kept(memory, report, self.config.memory.capacity)
        if self.guard is not None:
            self.guard.after_batch(self, objective, len(batch.images))
        if self.group.size > 1:
            stored = 0 if memory is None else len(memory)
            self.group.check_agreement(stored, crc32(repr(report).encode()), crc32(batch.ids.numpy().tobytes()))
        # Copies: the next captured step overwrites its losses.
        return Observation(
            objective=objective.clone(), alignment=alignment.clone(), embeddings=embeddings, report=report
        )

    @property
    def _encoder_is_held(self) -> bool:
        """Whether steps train the heads alone."""
        given_up = self.guard is not None and self.guard.has_given_up
        return given_up or self.budget.steps < self.config.head_warmup

    def _head_step(self, *batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A step that leaves the encoder as it is. Such steps are few, and eager with every kind of engine."""
        encoder = self.parts.network.encoder
        trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.requires_grad_(False)
        try:
            return self._eager_step(*batch)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)

    def scale_rates(self, factor: float) -> None:
        """Multiply all learning rates."""
        self._eager_step.scale_rates(factor)
        if self.kind != "eager":  # compiled and captured steps hold the former rates
            self._step, self._embed = self._by_kind()

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Momentum by parameter name."""
        return self._eager_step.state_dict()

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        """Continue with the momentum that `optimizer_state` returned."""
        self._eager_step.load_state_dict(state)

    @contextmanager
    def _overlapping_the_step(self) -> Iterator[None]:
        """On a GPU, run the body on a side stream that waits only for the forward of the last step."""
        # An insertion makes the host wait for embeddings. On the side stream that wait ends while the backward still
        # runs, so that the next step is queued in time.
        if self._side is None:
            yield
            return
        main = torch.cuda.current_stream(self.device)
        assert self._eager_step.embedded is not None
        self._side.wait_event(self._eager_step.embedded)
        self._stepping = main
        try:
            with torch.cuda.stream(self._side):
                yield
        finally:
            self._stepping = None
            main.wait_stream(self._side)

    def _rows(self, is_replay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices of the stream and the replay rows, on the device; cached, since masks repeat."""
        key = is_replay.numpy().tobytes()
        if key not in self._rows_of_mask:
            if len(self._rows_of_mask) >= 64:
                self._rows_of_mask.clear()
            rows = ((~is_replay).nonzero().flatten(), is_replay.nonzero().flatten())
            self._rows_of_mask[key] = (rows[0].to(self.device), rows[1].to(self.device))
        return self._rows_of_mask[key]

    def passes(self) -> int:
        """Gradient steps of the next mini-batch.

        A mini-batch earns ``passes * (stream_batch + replay_batch)`` rows of backward passes. A method with smaller
        batches takes more steps, as many as the budget so far allows. So does one that owes rows.
        """
        earned = self.config.passes * (self.config.stream_batch + self.config.replay_batch)
        rows = self.parts.batch.rows(self.config)
        if rows > earned:
            raise InputError(
                f"{type(self.parts.batch).__name__} makes batches of {rows} rows; one mini-batch earns {earned}: "
                "passes * (stream_batch + replay_batch)"
            )
        usual = (self.budget.batches + 1) * earned // rows - self.budget.batches * earned // rows
        return usual + self._owed // rows

    def on_boundary(self) -> None:
        """Tell the alignment that a task has ended, if it declares ``needs_boundaries``."""
        if self.parts.alignment is not None and self.parts.alignment.needs_boundaries:
            self.parts.alignment.on_boundary(self.parts.network)

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, d) of plain uint8 images in eval mode, of the projector if that is the memory's space, else
        of the backbone. The budget counts them."""
        self.budget.forward_only += len(images)
        if self._stepping is not None:  # stored images are re-encoded by the updated network
            torch.cuda.current_stream(self.device).wait_stream(self._stepping)
        return self._embed(images.to(self.device))[0].clone()  # the next captured forward overwrites its output

    def _embed_by(self, step: TrainStep, images: torch.Tensor) -> tuple[torch.Tensor]:
        with frozen(self.parts.network):
            return (step.forward(self.augment.plain(images)),)

    @torch.no_grad()
    def _embed_stream(self, stream: torch.Tensor) -> torch.Tensor:
        """Embeddings of a stream mini-batch by a separate forward in the configured mode."""
        if self.config.embed_mode != "train" or len(stream) == 1:  # one image has no batch statistics
            return self.embed(stream)
        self.budget.forward_only += len(stream)
        return self._eager_step.forward(self.augment.plain(stream))

    def _count(self, batch: TrainingBatch, *, streamed: int) -> None:
        self.budget.steps += 1
        rule = self.parts.batch
        rows = rule.trained(len(batch.images), len(batch.ids))
        self.budget.cbp += 2 * rows
        if self.config.replay_when_short == "fill" and self._replayed:
            short_mini_batch = self.config.stream_batch - streamed  # the last of a segment; repaid by no method
            self._owed += max(0, rule.rows(self.config) - rows - short_mini_batch)
        self.budget.forward_only += self.parts.objective.forwards(rows)
        if self.parts.alignment is not None:
            self.budget.forward_only += self.parts.alignment.forwards(rows, len(batch.ids))
        if self._eager_step.refreshes_after_step:
            self.budget.forward_only += 2 * len(batch.ids)

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        parts = self.parts
        return {
            # Copies: torch's state dicts alias the live tensors.
            "network": deepcopy(parts.network.state_dict()),
            "objective": deepcopy(parts.objective.state_dict()),
            "alignment": deepcopy(parts.alignment.state_dict()) if parts.alignment is not None else {},
            **({"average": deepcopy(parts.average.state_dict())} if parts.average is not None else {}),
            "optimizer": self.optimizer_state(),
            "memory": parts.memory.state_dict() if parts.memory is not None else {},
            "augmentation": self._generator.get_state(),
            "budget": self.budget.state_dict(),
            "replayed": self._replayed,
            **({"guard": self.guard.state_dict()} if self.guard is not None else {}),
            "owed": self._owed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        parts = self.parts
        parts.network.load_state_dict(state["network"])
        parts.objective.load_state_dict(state["objective"])
        if parts.alignment is not None:
            parts.alignment.load_state_dict(state["alignment"])
        self.load_optimizer_state(state["optimizer"])
        if parts.average is not None:
            parts.average.load_state_dict(state["average"])
        if parts.memory is not None:
            parts.memory.load_state_dict(state["memory"])
        restore(self._generator, state["augmentation"])
        self.budget.load_state_dict(state["budget"])
        self._replayed = parts.batch.replay_started = state["replayed"]
        self._owed = state.get("owed", 0)  # absent in older states
        if self.guard is not None:
            self.guard.load_state_dict(state["guard"], self)


def _check_kept(memory: Memory | None, report: InsertReport, allowed: int) -> None:
    """Check a third-party memory: the type of its report, and its bound."""
    if not isinstance(report, InsertReport):
        raise ClimbError(f"{type(memory).__name__}.insert gave {type(report).__name__}; it must return an InsertReport")
    if memory is not None and memory.bounded and len(memory) > min(memory.capacity, allowed):
        raise ClimbError(
            f"{len(memory)} images stored, the capacity is {min(memory.capacity, allowed)}: {type(memory).__name__} "
            "declares to be bounded and is not; climb.testing.check_memory finds where"
        )
