"""One gradient step: two views, both losses, backward, optimiser, teacher, and the embeddings the memory needs."""

from __future__ import annotations

import copy
import logging
import time
from typing import Any

import torch
from torch import nn

from climb.augment import Augment
from climb.engine.batch import Mixed
from climb.engine.compiled import compiled
from climb.engine.numerics import Precision, autocast, numerics
from climb.engine.parts import Parts
from climb.errors import ClimbError
from climb.nets import Encoded, frozen
from climb.parallel import SINGLE, Group, Share, share_gradients, spread
from climb.settings.config import LearnerConfig

log = logging.getLogger(__name__)


class TrainStep:
    """Takes one gradient step per call. The eager step is the reference for the captured and the compiled one.

    It takes and returns tensors on the device and never waits for the device, so that a CUDA graph can hold it.
    """

    def __init__(
        self,
        parts: Parts,
        augment: Augment,
        config: LearnerConfig,
        *,
        generator: torch.Generator,
        precision: Precision,
        device: torch.device,
        tuned: bool = False,
        announced: bool = False,
        group: Group = SINGLE,
    ) -> None:
        self.parts = parts
        self.augment = augment
        self.config = config
        self.generator = generator
        self.precision = precision
        self.device = device
        self._tuned = tuned
        self.group = group
        self.parameters = trainable(parts)
        self.optimizer = torch.optim.SGD(
            self._rates(),
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=device.type == "cuda",
        )
        if device.type == "cuda":
            # The fused optimiser needs every momentum buffer, also for parts whose first gradient comes late. Zeros are
            # equivalent to no buffer.
            for parameter in self.parameters.values():
                self.optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
        self.embedded = torch.cuda.Event(external=True) if announced else None  # type: ignore[no-untyped-call]
        """Recorded between forward and backward of each step, when the embeddings are ready."""
        self._views = self._eager_views
        self._losses = self._eager_losses
        self._encode = self._eager_encode

    def __call__(
        self, images: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Train once on uint8 images (n, 3, H, W). The two index tensors select stream and replay rows.

        ``targets`` holds the stored embeddings of the replay rows (r, d), or is empty.

        Returns:
            The objective's scalar loss; the alignment's, without its weight (nan without replay rows); embeddings
            float32 (s, d) of the stream rows, mean over their two views, in the memory's space, from before the step;
            embeddings float32 (r, d) of the replay rows, from before or (refresh_mode "updated") after the step.
        """
        numbers = self.augment.numbers(images, self.generator)
        drawn = self.parts.batch.draw(len(replay_rows), self.generator)
        views = self._views if self.group.size == 1 else self._own_views
        mixed = views(images, numbers, stream_rows, replay_rows, drawn)
        parts = self.parts
        with numerics(self.device, self.precision, tuned=self._tuned):
            loss, objective, align, streamed, replayed = self._losses(mixed, targets)
            if self.embedded is not None:
                # Explicitly this device's stream: the current device of the process may be another one.
                self.embedded.record(torch.cuda.current_stream(self.device))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self._share_gradients()
            self.optimizer.step()
        parts.objective.after_step(parts.network)
        if parts.alignment is not None:
            parts.alignment.after_step(parts.network)
        if len(mixed.replay_rows) > 0 and self.refreshes_after_step:
            replayed = self._replayed_again(mixed)
        return objective.detach(), align.detach(), streamed, replayed

    def _rates(self) -> list[dict[str, Any]]:
        """Groups of parameters by learning rate."""
        if self.config.head_lr is None:
            return [{"params": list(self.parameters.values())}]
        encoder = {name for name in self.parameters if name.startswith("network.encoder.")}
        return [
            {"params": [self.parameters[name] for name in self.parameters if name in encoder]},
            {
                "params": [self.parameters[name] for name in self.parameters if name not in encoder],
                "lr": self.config.head_lr,
            },
        ]

    def scale_rates(self, factor: float) -> None:
        """Multiply the learning rates. Captured steps hold the former ones."""
        for group in self.optimizer.param_groups:
            group["lr"] *= factor

    def _eager_views(
        self,
        images: torch.Tensor,
        numbers: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """The views to train on, from the given random numbers."""
        return self.parts.batch.mix(self.augment.views(images, numbers), stream_rows, replay_rows, drawn=drawn)

    def _own_views(
        self,
        images: torch.Tensor,
        numbers: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """This process's part of the views, with the row indices of the whole batch."""
        rule = self.parts.batch
        given = Share(group=self.group, stream_rows=stream_rows, replay_rows=replay_rows)
        views = self.augment.views(images.index_select(0, given.own), self.augment.numbers_of(given.own, numbers))
        # The rows after mixing depend on the whole batch; images of one pixel suffice to get them.
        whole = rule.mix(views.new_zeros((2, len(images), 1, 1, 1)), stream_rows, replay_rows, drawn=drawn)
        own = rule.mix(views, given.own_stream, given.own_replay, drawn=drawn)
        share = Share(group=self.group, stream_rows=whole.stream_rows, replay_rows=whole.replay_rows)
        ordered = own.views.index_select(1, torch.cat([own.stream_rows, own.replay_rows]))
        return Mixed(views=ordered, stream_rows=whole.stream_rows, replay_rows=whole.replay_rows, share=share)

    def _share_gradients(self) -> None:
        named = self.parameters.items()
        split = [parameter for name, parameter in named if name.startswith("network.")]
        whole = [parameter for name, parameter in named if not name.startswith("network.")]
        share_gradients(split, whole, self.group)

    def _replayed_again(self, mixed: Mixed) -> torch.Tensor:
        """float32 (r, d): embeddings of the replayed views by the updated network, mean over the two views."""
        rows = mixed.replay_rows if mixed.share is None else mixed.share.own_replay
        with frozen(self.parts.network):
            flat = self._forward_own(mixed.views.index_select(1, rows).flatten(0, 1))
        again = flat.view(2, len(rows), flat.shape[1])
        return (again if mixed.share is None else mixed.share.of_replay(again)).mean(0)

    def _eager_losses(self, mixed: Mixed, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The total loss; its two parts; embeddings of stream and of replay rows, mean over views."""
        parts, views = self.parts, mixed.views
        features, embeddings = (
            output.float().view(2, views.shape[1], output.shape[1])
            for output in self._eager_encode(views.flatten(0, 1))
        )
        if mixed.share is not None:
            lengths = [features.shape[-1], embeddings.shape[-1]]
            gathered = mixed.share.of_all(torch.cat([features, embeddings], dim=2))
            features, embeddings = torch.split(gathered, lengths, dim=2)
        encoded = Encoded(
            views=views,
            features=features,
            embeddings=embeddings,
            stream_rows=mixed.stream_rows,
            replay_rows=mixed.replay_rows,
            targets=targets if targets.numel() else None,
            share=mixed.share,
            bf16=self.precision == "bf16",
        )
        loss = objective = parts.objective(encoded)
        align = torch.full_like(objective, float("nan"), requires_grad=False)
        if parts.alignment is not None and (len(mixed.replay_rows) > 0 or not parts.alignment.needs_replay):
            with autocast(self.device, self.precision):
                align = parts.alignment(encoded, objective.detach())
            loss = objective + self.config.alignment_weight * align
        embedded = self._in_memory_space(encoded.features, encoded.embeddings).detach().mean(0)
        streamed, replayed = (embedded.index_select(0, rows) for rows in (mixed.stream_rows, mixed.replay_rows))
        return loss, objective, align, streamed, replayed

    def _eager_encode(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with autocast(self.device, self.precision):
            features, embeddings = self.parts.network(inputs)
        return features, embeddings

    def compiled(self) -> TrainStep:
        """The same step compiled by torch, with the same parameters, optimiser and generator."""
        twin = copy.copy(self)
        if self.device.type == "cuda":  # C++ code for the views is slower than torch's own
            twin._views = compiled(self._views)
        twin._losses = compiled(self._losses)
        twin._encode = compiled(self._encode)
        return twin

    @property
    def refreshes_after_step(self) -> bool:
        """Whether a step ends with a second forward of the replayed views."""
        memory = self.parts.memory
        return memory is not None and memory.space is not None and self.config.refresh_mode == "updated"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalised images (n, 3, H, W) to float32 (n, d) in the memory's space, by default the backbone's."""
        return spread(self._forward_own, inputs, self.group)

    def _forward_own(self, inputs: torch.Tensor) -> torch.Tensor:
        with numerics(self.device, self.precision, tuned=self._tuned):
            features, embeddings = self._encode(inputs)
        memory = self.parts.memory  # SCALE's memory has no space, embeds by itself and takes features
        return (embeddings if memory is not None and memory.space == "projector" else features).float()

    def _in_memory_space(self, features: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Embeddings in the memory's space; without a memory the projector's, for the health check."""
        memory = self.parts.memory
        return features if memory is not None and memory.space == "backbone" else embeddings

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Momentum by parameter name, for parameters that have one."""
        buffers = {name: self.optimizer.state[p].get("momentum_buffer") for name, p in self.parameters.items()}
        return {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue with the saved momentum."""
        for name, parameter in self.parameters.items():
            held = self.optimizer.state[parameter]
            if held.get("momentum_buffer") is not None:  # in place: captured steps hold its address
                held["momentum_buffer"].copy_(state.get(name, torch.zeros(())))
            elif name in state:
                # empty_like keeps the parameter's memory format.
                held["momentum_buffer"] = torch.empty_like(parameter).copy_(state[name])


class CompiledIfFull:
    """The compiled step for batches of full size, the eager step for the others: those before replay, and the last.

    Batches that are rare are not worth compiling. The sizes alone decide, so a resumed run takes the same steps.
    """

    def __init__(self, step: TrainStep) -> None:
        self._eager, self._compiled = step, step.compiled()
        self._has_run = False

    def __call__(
        self, images: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The step's results."""
        rule = self._eager.parts.batch
        if rule.trained(len(images), len(replay_rows)) < rule.rows(self._eager.config):
            return self._eager(images, stream_rows, replay_rows, targets)
        began = time.perf_counter()
        results = self._compiled(images, stream_rows, replay_rows, targets)
        if not self._has_run:
            self._has_run = True
            log.info("the first compiled step took %.0f s", time.perf_counter() - began)
        return results


def trainable(parts: Parts) -> dict[str, nn.Parameter]:
    """Trainable parameters by name. A parameter of two parts would be stepped twice, and is refused."""
    named: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for room, module in (("network", parts.network), ("objective", parts.objective), ("alignment", parts.alignment)):
        if module is None:
            continue
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if id(parameter) in seen:
                raise ClimbError(f"parameter {room}.{name} belongs to two parts; each must be trained once")
            seen.add(id(parameter))
            named[f"{room}.{name}"] = parameter
    return named
