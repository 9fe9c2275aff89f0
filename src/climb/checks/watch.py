"""An engine at work, looked at from outside: its losses, its steps, and what its networks see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import nn

from climb.checks.forwards import Forwards, counted
from climb.checks.gradients import Leaves, reaches
from climb.checks.trial import modules, same
from climb.engine import Engine, Parts
from climb.nets import Encoded
from climb.promise import promise

Given = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""What a step is called with: images, stream rows, replay rows, targets."""


@dataclass(kw_only=True)
class Seen:
    """What has been seen so far."""

    trained: int = 0
    """Views that the network saw with a gradient."""
    forwards: Forwards
    """Views and images that networks saw without one."""
    asked: dict[str, int] = field(default_factory=lambda: {"objective": 0, "alignment": 0})
    """How often each of them was asked for its loss."""
    held: bool = False
    """Whether an alignment's loss had a gradient for the network."""
    step: Given | None = None
    """The last step with replay rows, or the last one, if none has any."""


@contextmanager
def watched(engine: Engine, *, own_loop: bool) -> Iterator[Seen]:
    """Look at every loss as it is made and, where steps are known, at every step."""
    network, rooms = engine.parts.network, modules(engine)
    leaves = None if own_loop else Leaves(_stepped(engine))
    with ExitStack() as stack:
        seen = Seen(forwards=stack.enter_context(counted()))

        def count_rows(_: Any, inputs: tuple[Any, ...], __: Any) -> None:
            if torch.is_grad_enabled():
                seen.trained += len(inputs[0])

        def look_at_loss(room: str, given: tuple[Any, ...], loss: Any) -> None:
            seen.asked[room] += 1
            _check_loss(room, loss, seen.asked[room])
            if leaves is not None:  # a loop of its own may ask for a loss just to know it
                promise(
                    loss.requires_grad or room == "alignment" or _is_aligned(engine.parts, given[0]),
                    "the objective's loss has no gradient: it is a constant, or was detached from the embeddings",
                )
                leaves.check(room, loss)
            if room == "alignment" and not seen.held:
                seen.held = reaches(engine.config.alignment_weight * loss, given[0] if given else None, network)

        stack.enter_context(network.register_forward_hook(count_rows))
        for room in seen.asked.keys() & rooms.keys():

            def look(_: Any, given: tuple[Any, ...], loss: Any, room: str = room) -> None:
                look_at_loss(room, given, loss)

            stack.enter_context(rooms[room].register_forward_hook(look))
        if not own_loop:
            stack.enter_context(_steps_watched(engine, seen))
        yield seen


def _is_aligned(parts: Parts, encoded: Encoded) -> bool:
    """Whether an alignment will have its say of a batch, and the objective may have none."""
    return parts.alignment is not None and (len(encoded.replay_rows) > 0 or not parts.alignment.needs_replay)


def _check_loss(room: str, loss: Any, call: int) -> None:
    promise(
        isinstance(loss, torch.Tensor) and loss.ndim == 0,
        f"the {room}'s loss must be a scalar tensor; it is {getattr(loss, 'shape', type(loss).__name__)}",
    )
    promise(bool(loss.isfinite()), f"the {room}'s loss is {loss.item()} in its call number {call}")


def _stepped(engine: Engine) -> Iterator[Any]:
    return chain.from_iterable(group["params"] for group in engine._eager_step.optimizer.param_groups)


@contextmanager
def _steps_watched(engine: Engine, seen: Seen) -> Iterator[None]:
    """Keep what steps are given, and hold the student to what the optimiser made of it.

    By value: what is written through ``.data`` leaves no trace in a tensor's version.
    """
    step, network = engine._step, engine.parts.network
    left: dict[str, torch.Tensor] = {}

    def keep(*_: Any) -> None:
        left.update({name: tensor.detach().clone() for name, tensor in _state(network)})

    def taken(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = step(*given)
        for name, tensor in _state(network):
            promise(
                same(tensor, left[name]),
                f"network.{name} changed after the optimiser's step, in after_step of objective or alignment: it is "
                "handed the student to follow it, not to change it",
            )
        images, stream_rows, replay_rows, targets = given
        if seen.step is None or len(replay_rows) >= min(1, len(seen.step[2])):
            seen.step = images, stream_rows, replay_rows, targets
        return outputs

    engine._step = taken
    handle = engine._eager_step.optimizer.register_step_post_hook(keep)
    try:
        yield
    finally:
        engine._step = step
        handle.remove()


def _state(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return chain(network.named_parameters(), network.named_buffers())
