"""The engine: one stream mini-batch in, some gradient steps taken, the memory brought up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from climb.augment import Augment
from climb.config import LearnerConfig
from climb.engine.batch import TrainingBatch
from climb.engine.budget import Budget
from climb.engine.numerics import Precision, numerics
from climb.engine.parts import Parts
from climb.engine.step import StepOutput, TrainStep
from climb.memory import InsertReport
from climb.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What observing one mini-batch did. Losses are tensors on the device: reading one waits for it."""

    objective: torch.Tensor
    """Scalar loss of the objective in the last pass."""
    alignment: torch.Tensor | None
    """Scalar loss of the alignment in the last pass; None before replay starts."""
    report: InsertReport
    """What became of the images in the memory."""


class Engine:
    """Runs the passes of a method over a stream. Sees images only: no label, no task number.

    Args:
        parts: the method's four parts and its network; moved to ``device``.
        augment: makes the two views.
        config: passes, batch sizes, optimiser, embedding modes.
        seed: the run's seed; the engine draws only its augmentation generator from it.
        device: where everything happens.
        precision: arithmetic of the networks.
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
    ) -> None:
        self.parts = parts
        self.config = config
        self.device = device
        self.precision = precision
        self.augment = augment
        self.budget = Budget()
        for module in (parts.network, parts.objective, parts.alignment):
            if module is not None:
                module.to(device)
                if device.type == "cuda":  # the layout that bf16 convolutions are fast in
                    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                module.train()
        self._generator = torch_generator(seed, "augmentation", device)
        self._step = TrainStep(parts, augment, config, generator=self._generator, precision=precision, device=device)

    # -- learning ------------------------------------------------------------------------------------------------

    def observe(self, images: torch.Tensor) -> Observation:
        """Learn from one stream mini-batch of uint8 images (n, 3, H, W)."""
        parts, memory = self.parts, self.parts.memory
        stream = images.to(self.device)
        report = InsertReport()
        if memory is not None and memory.inserts == "before":
            report = memory.insert(stream, self.embed(stream) if memory.space else None, embed=self.embed)
        for _ in range(self.config.passes):
            batch = parts.batch(stream, memory, self.config.replay_batch)
            stream_rows = (~batch.is_replay).nonzero().flatten().to(self.device, non_blocking=True)
            replay_rows = batch.is_replay.nonzero().flatten().to(self.device, non_blocking=True)
            output = self._step(batch.images, stream_rows, replay_rows)
            self._count(batch)
            self._refresh(batch, output, replay_rows)
        if parts.alignment is not None:
            parts.alignment.after_batch(parts.network)
        if memory is not None and memory.inserts == "after":
            embeddings = self._stream_embeddings(stream, output, stream_rows) if memory.space else None
            report = memory.insert(stream, embeddings, embed=self.embed)
        self.budget.images += len(images)
        self.budget.batches += 1
        return Observation(objective=output.objective, alignment=output.alignment, report=report)

    def _count(self, batch: TrainingBatch) -> None:
        self.budget.steps += 1
        self.budget.cbp += 2 * len(batch.images)
        if self.parts.alignment is not None and self.parts.alignment.teacher is not None:
            self.budget.forward_only += 2 * len(batch.ids)

    def _refresh(self, batch: TrainingBatch, output: StepOutput, replay_rows: torch.Tensor) -> None:
        memory = self.parts.memory
        if memory is None or memory.space is None or len(batch.ids) == 0:
            return
        if self.config.refresh_mode == "views":
            embeddings = output.embeddings.index_select(0, replay_rows)
        else:
            views = output.views.index_select(1, replay_rows)
            embeddings = self._forward(views.flatten(0, 1), memory.space).view(2, len(batch.ids), -1).mean(0)
        memory.refresh(batch.ids, embeddings)

    def _stream_embeddings(self, stream: torch.Tensor, output: StepOutput, stream_rows: torch.Tensor) -> torch.Tensor:
        if self.config.embed_mode == "views":
            return output.embeddings.index_select(0, stream_rows)
        return self.embed(stream)

    # -- embedding -----------------------------------------------------------------------------------------------

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, d) of plain uint8 images, without gradient, in the space the memory asks for; counted."""
        space = (self.parts.memory.space if self.parts.memory is not None else None) or "projector"
        return self._forward(self.augment.plain(images.to(self.device)), space, self.config.embed_mode == "train")

    @torch.no_grad()
    def _forward(self, inputs: torch.Tensor, space: str, train_mode: bool = False) -> torch.Tensor:
        self.budget.forward_only += len(inputs)
        network = self.parts.network
        with numerics(self.device, self.precision):
            if train_mode:
                features, embeddings = network(inputs)
            else:
                with frozen_statistics(network):
                    features, embeddings = network(inputs)
        output: torch.Tensor = embeddings if space == "projector" else features
        return output.float()

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        parts = self.parts
        return {
            "network": parts.network.state_dict(),
            "objective": parts.objective.state_dict(),
            "alignment": parts.alignment.state_dict() if parts.alignment is not None else {},
            "optimizer": self._step.state_dict(),
            "memory": parts.memory.state_dict() if parts.memory is not None else {},
            "augmentation": self._generator.get_state(),
            "budget": self.budget.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        parts = self.parts
        parts.network.load_state_dict(state["network"])
        parts.objective.load_state_dict(state["objective"])
        if parts.alignment is not None:
            parts.alignment.load_state_dict(state["alignment"])
        self._step.load_state_dict(state["optimizer"])
        if parts.memory is not None:
            parts.memory.load_state_dict(state["memory"])
        self._generator.set_state(state["augmentation"].cpu())
        self.budget.load_state_dict(state["budget"])


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Batch norms use their running statistics and leave them alone; the network's mode is restored after."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    modes = [norm.training for norm in norms]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm, mode in zip(norms, modes, strict=True):
            norm.training = mode
