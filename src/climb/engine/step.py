"""One gradient step: two views, both losses, backward, optimiser, teacher, and the embeddings the memory needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from climb.alignment import EmaTeacher
from climb.augment import Augment
from climb.config import LearnerConfig
from climb.engine import ahead
from climb.engine.batch import BatchRule, Mixed
from climb.engine.compiled import compiled
from climb.engine.descent import CompiledDescent
from climb.engine.groups import can_go_by_groups
from climb.engine.halves import Halves, is_known
from climb.engine.in_advance import InAdvance
from climb.engine.numerics import Precision, autocast, numerics
from climb.engine.parts import Parts
from climb.engine.second_stream import BESIDE
from climb.engine.weight_gradients import FEW_ROWS
from climb.errors import ClimbError
from climb.nets import Beforehand, Encoded, frozen
from climb.parallel import Share, current, share_gradients, spread


class TrainStep:
    """Holds what a step needs; calling it takes one. Eager, and the truth for anything faster.

    It takes and returns tensors on the device and waits for nothing, so that a CUDA graph can hold it.
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
    ) -> None:
        self.parts = parts
        self.augment = augment
        self.config = config
        self.generator = generator
        self.precision = precision
        self.device = device
        self._tuned = tuned
        self.group = current()
        self.parameters = trainable(parts)
        self.optimizer = torch.optim.SGD(
            self.parameters.values(),
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=device.type == "cuda",
        )
        if device.type == "cuda":
            # The fused optimiser wants every momentum to exist, also of parts whose first gradient comes late.
            self._start_momenta()
        self.embedded = torch.cuda.Event(external=True) if announced else None  # type: ignore[no-untyped-call]
        """Recorded in the middle of each step: what it embeds is there, though its backward is still to come."""
        self._views = self._eager_views
        self._losses = self._eager_losses
        self._encode = self._eager_encode
        self._ask_teacher: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._descend: Callable[[], None] = self.optimizer.step
        self._halves: Halves | None = None
        self._teachers_halves: Halves | None = None

    def __call__(
        self, images: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Train once on uint8 images (n, 3, H, W); the two row indices tell stream from replay.

        ``targets`` is what the memory stores of the replay rows, (r, d), or an empty tensor where it stores nothing.

        Returns:
            The objective's scalar loss; the alignment's, before its weight (nan where no row is replayed); float32
            (s, d) the mean over the two views of each stream row, in the memory's space, from before the step; and
            float32 (r, d) that of the replay rows, from before or, if so configured, after it.
        """
        numbers = self.augment.numbers(images, self.generator)
        drawn = self.parts.batch.draw(len(replay_rows), self.generator)
        views = self._views if self.group.size == 1 else self._own_views
        return self._train(views(images, numbers, stream_rows, replay_rows, drawn), targets)

    def on_views(
        self, views: torch.Tensor, said: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Likewise on views (2, n, 3, H, W) at hand, of which the teacher has ``said`` (2, n, d): see `in_advance`."""
        mixed = Mixed(views=views, stream_rows=stream_rows, replay_rows=replay_rows)
        return self._train(mixed, said.new_zeros(0), said)

    def _train(
        self, mixed: Mixed, targets: torch.Tensor, said: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = self.parts
        with numerics(self.device, self.precision, tuned=self._tuned):
            try:
                try:
                    started = said
                    if said is None and self._ask_teacher is not None:
                        started = ahead.start(self._ask_teacher, mixed.views)
                    loss, objective, align, streamed, replayed = self._losses(mixed, targets, started)
                finally:
                    ahead.STREAM.wait(mixed.views.device)
                if self.embedded is not None:
                    # The device's own stream: the current device of the process may be another one.
                    self.embedded.record(torch.cuda.current_stream(self.device))
                self._forget_gradients()
                loss.backward()  # type: ignore[no-untyped-call]
            finally:
                BESIDE.wait(mixed.views.device)  # whatever became of what was started, nothing goes on beside it
            self._share_gradients()
            self._descend()
        parts.objective.after_step(parts.network)
        if parts.alignment is not None:
            parts.alignment.after_step(parts.network)
            if self._teachers_halves is not None and parts.alignment.moves_each_step:
                self._teachers_halves.refresh()
        if len(mixed.replay_rows) > 0 and self.refreshes_after_step:
            replayed = self._replayed_again(mixed)
        return objective.detach(), align.detach(), streamed, replayed

    def _eager_views(
        self,
        images: torch.Tensor,
        numbers: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """The views to train on, given all that is random about them."""
        return self.parts.batch.mix(self.augment.views(images, numbers), stream_rows, replay_rows, drawn=drawn)

    def _own_views(
        self,
        images: torch.Tensor,
        numbers: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """This process's part of the views that all processes train on together; the rows are those of all."""
        rule = self.parts.batch
        given = Share(group=self.group, stream_rows=stream_rows, replay_rows=replay_rows)
        views = self.augment.views(images.index_select(0, given.own), self.augment.numbers_of(given.own, numbers))
        # Which rows there are after mixing is a matter of the whole batch: images of one pixel tell.
        whole = rule.mix(views.new_zeros((2, len(images), 1, 1, 1)), stream_rows, replay_rows, drawn=drawn)
        own = rule.mix(views, given.own_stream, given.own_replay, drawn=drawn)
        share = Share(group=self.group, stream_rows=whole.stream_rows, replay_rows=whole.replay_rows)
        ordered = own.views.index_select(1, torch.cat([own.stream_rows, own.replay_rows]))
        return Mixed(views=ordered, stream_rows=whole.stream_rows, replay_rows=whole.replay_rows, share=share)

    def _forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if isinstance(self._descend, CompiledDescent):
            self._descend.forget()

    def refresh_halves(self) -> None:
        """Let others have changed the networks' weights: a compiled step may hold them in bf16."""
        for halves in (self._halves, self._teachers_halves):
            if halves is not None:
                halves.refresh()

    def _share_gradients(self) -> None:
        named = self.parameters.items()
        split = [parameter for name, parameter in named if name.startswith("network.")]
        whole = [parameter for name, parameter in named if not name.startswith("network.")]
        share_gradients(split, whole, self.group)

    def _replayed_again(self, mixed: Mixed) -> torch.Tensor:
        """Float32 (r, d): the replayed views by the network as it is now, mean over the two views."""
        rows = mixed.replay_rows if mixed.share is None else mixed.share.own_replay
        with frozen(self.parts.network):
            flat = self._forward_own(mixed.views.index_select(1, rows).flatten(0, 1))
        again = flat.view(2, len(rows), flat.shape[1])
        return (again if mixed.share is None else mixed.share.of_replay(again)).mean(0)

    def _eager_losses(
        self, mixed: Mixed, targets: torch.Tensor, started: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The loss to descend; its two parts; the mean over the views of stream and of replay rows, in memory space."""
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
            beforehand=self._arrived(started, views, embeddings),
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
        network: nn.Module = self.parts.network if self._halves is None else self._halves.network
        with autocast(self.device, self.precision):
            features, embeddings = network(inputs)
        return features, embeddings

    def _arrived(
        self, started: torch.Tensor | None, views: torch.Tensor, embeddings: torch.Tensor
    ) -> Beforehand | None:
        """What the teacher said of these views, if it was asked; not waited for before somebody needs it."""
        if started is None or self.parts.teacher is None:
            return None

        def answer() -> torch.Tensor:
            said: torch.Tensor = ahead.arrived(started, embeddings.detach())
            return said

        return Beforehand(network=self.parts.teacher, views=views, answer=answer)

    def _eager_ask(self, views: torch.Tensor) -> torch.Tensor:
        """(2, n, d): what the teacher says of all views (2, n, 3, H, W)."""
        teacher: nn.Module | None = self.parts.teacher
        if self._teachers_halves is not None:
            teacher = self._teachers_halves.network
        assert teacher is not None
        with torch.no_grad(), autocast(self.device, self.precision):
            _, flat = teacher(views.flatten(0, 1))
        said: torch.Tensor = flat.view(*views.shape[:2], flat.shape[1])
        return said

    def compiled(self) -> TrainStep:
        """The same step, with the same parameters, optimiser and generator, by torch.compile.

        A step of few images takes as long as its longest chain of kernels. There, what can be done beside the chain is,
        and the optimiser, which is in it, is compiled too.
        """
        twin = copy.copy(self)
        twin._views = compiled(self._views)
        twin._encode = compiled(self._encode)
        if not self.is_small or any(map(_is_listened_to, self.parameters.values())):
            twin._losses = compiled(self._losses)
            return twin
        teacher, alignment = self.parts.teacher, self.parts.alignment
        always = alignment is not None and alignment.asks_of_all and not alignment.needs_replay
        asked = teacher is not None and always and not self.knows_in_advance
        if self.precision == "bf16" and self.config.momentum > 0 and is_known(self.parts.network):
            self._start_momenta()
            twin._halves = Halves(self.parts.network)
            if asked and teacher is not None and is_known(teacher):
                twin._teachers_halves = Halves(teacher)
        if asked:
            twin._ask_teacher = compiled(twin._eager_ask, _options_of_few(backward=False))
        twin._losses = compiled(twin._eager_losses, _options_of_few(backward=True))
        twin._descend = CompiledDescent(self.optimizer, twin._halves)
        return twin

    def _start_momenta(self) -> None:
        """Let every parameter have one. Starting from zero is the same as starting from the first gradient."""
        for parameter in self.parameters.values():
            self.optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))

    @property
    def is_small(self) -> bool:
        """Whether it trains on so few images that most of a GPU waits for its longest chain of kernels."""
        return self.parts.batch.rows(self.config) <= FEW_ROWS

    @property
    def knows_in_advance(self) -> bool:
        """Whether all views of a mini-batch's small steps, and what the teacher says of them, can be had before them.

        So it is where every step has the same images, and the teacher stands still between them.
        """
        alignment, teacher = self.parts.alignment, self.parts.teacher
        # By their types: somebody's own may do more than it says.
        stands_still = type(alignment) is EmaTeacher and alignment.asks_of_all and not alignment.moves_each_step
        same_images = type(self.parts.batch) is BatchRule and self.group.size == 1 and not self.augment.per_batch
        return self.is_small and stands_still and same_images and teacher is not None and can_go_by_groups(teacher)

    def in_advance(self) -> InAdvance:
        """What makes the views and asks the teacher, for `on_views`."""
        assert self.parts.teacher is not None
        return InAdvance(
            self.augment,
            self.parts.teacher,
            generator=self.generator,
            precision=self.precision,
            device=self.device,
            tuned=self._tuned,
        )

    @property
    def refreshes_after_step(self) -> bool:
        """Whether a step ends with a second forward of the replayed views."""
        memory = self.parts.memory
        return memory is not None and memory.space is not None and self.config.refresh_mode == "updated"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalised images (n, 3, H, W) to float32 (n, d) in the space that the memory asks for, or the backbone's."""
        return spread(self._forward_own, inputs, self.group)

    def _forward_own(self, inputs: torch.Tensor) -> torch.Tensor:
        with numerics(self.device, self.precision, tuned=self._tuned):
            features, embeddings = self._encode(inputs)
        memory = self.parts.memory  # one that names no space and embeds by itself (SCALE's) wants features
        return (embeddings if memory is not None and memory.space == "projector" else features).float()

    def _in_memory_space(self, features: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """What a step embeds for the memory; where no memory asks, the embeddings, whose health is looked at."""
        memory = self.parts.memory
        return features if memory is not None and memory.space == "backbone" else embeddings

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Momentum by parameter name, for the parameters that have one yet."""
        buffers = {name: self.optimizer.state[p].get("momentum_buffer") for name, p in self.parameters.items()}
        return {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue with the saved momentum."""
        for name, parameter in self.parameters.items():
            held = self.optimizer.state[parameter]
            if held.get("momentum_buffer") is not None:  # in place: a captured step knows its address
                held["momentum_buffer"].copy_(state.get(name, torch.zeros(())))
            elif name in state:
                # empty_like keeps the parameter's memory format.
                held["momentum_buffer"] = torch.empty_like(parameter).copy_(state[name])


def _is_listened_to(parameter: nn.Parameter) -> bool:
    """Whether somebody has a hook on its gradient, who would look at it before it is there."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def _options_of_few(*, backward: bool) -> Mapping[str, Any]:
    from climb.engine import norm_pass, weight_gradient_pass

    return {**norm_pass.OPTIONS, **(weight_gradient_pass.OPTIONS if backward else {"combo_kernels": True})}


def trainable(parts: Parts) -> dict[str, nn.Parameter]:
    """Every parameter with a gradient, by name. One that two parts share would be stepped twice, so it is refused."""
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
