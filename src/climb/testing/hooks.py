"""Hooks on an engine for `check_method`: its losses, its steps, and the forwards of all networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from climb.engine import Engine, Parts
from climb.nets import Encoded
from climb.testing.contract import require
from climb.testing.trial import optimized, same

StepInputs = tuple[torch.Tensor, ...]
"""Arguments of a step: images, stream rows, replay rows, targets."""


# -- forwards without gradient -------------------------------------------------------------------------------------


@dataclass
class Forwards:
    """Rows that networks have seen without gradient, counted in two ways that usually agree."""

    rows: int = 0
    """In outermost calls of networks."""
    most: int = 0
    """In innermost calls with images: one network may contain and call several others."""


@contextmanager
def count_forwards() -> Iterator[Forwards]:
    """Count the rows of every call of a network inside whose output has no gradient.

    A network is a module with parameters or buffers that is called with images (n, 3 or 1, H, W) first and returns
    something other than images; modules that it calls are part of it. So the encoder counts, but a head on its
    features does not, nor does a module that makes views.
    """
    count = Forwards()
    calls: list[list[Any]] = []  # running calls of networks, each with whether it has called another network

    def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and _are_images(inputs[0]) and next(chain(module.parameters(), module.buffers()), None) is not None:
            calls.append([module, False])

    def end(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not calls or calls[-1][0] is not module:
            return
        _, called_another = calls.pop()
        outputs = [tensor for tensor in tree_leaves(output) if isinstance(tensor, torch.Tensor)]
        if not outputs or all(map(_are_images, outputs)) or any(tensor.requires_grad for tensor in outputs):
            return
        if calls:
            calls[-1][1] = True
        else:
            count.rows += len(inputs[0])
        if not called_another:
            count.most += len(inputs[0])

    # Global hooks: a teacher may be kept in a plain list.
    with register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True):
        yield count


def _are_images(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 4 and value.shape[1] in (1, 3)


# -- gradients -----------------------------------------------------------------------------------------------------


def check_leaves(part: str, loss: torch.Tensor, trained: set[int], others: dict[int, torch.Tensor]) -> None:
    """Reject a loss with a gradient for a tensor that is not trained, such as a head in a plain list.

    A tensor that occurs in one loss only, such as the images of a gradient penalty, is no parameter.

    Args:
        part: "objective" or "alignment".
        loss: its loss.
        trained: addresses of the optimiser's parameters.
        others: further tensors of earlier losses by address; those of this loss are added.
    """
    for leaf in _leaves(loss):
        if id(leaf) in trained:
            continue
        require(
            not isinstance(leaf, nn.Parameter) and id(leaf) not in others,
            f"the {part}'s loss has a gradient for a tensor of shape {tuple(leaf.shape)} that the optimiser does "
            "not hold: it is neither trained nor saved. Register it as a parameter, or its module as an attribute "
            "(not in a plain list), in the part's constructor; or freeze it",
        )
        others[id(leaf)] = leaf  # keeps the tensor, so that addresses stay unique


def _leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The leaf tensors that a loss has a gradient for."""
    waiting: list[Any] = [loss.grad_fn]
    visited: set[Any] = {None}
    while waiting:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [function for function, _ in node.next_functions]


def has_gradient(loss: torch.Tensor, network: nn.Module) -> bool:
    """Whether a loss has a gradient other than zero for the network's parameters."""
    if not loss.requires_grad:
        return False
    wanted = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
    return any(gradient is not None and bool(gradient.any()) for gradient in gradients)


# -- losses and steps ----------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Record:
    """What the hooks have recorded so far."""

    trained: int = 0
    """Views that the network has seen with gradient."""
    forwards: Forwards
    """Rows that networks have seen without gradient."""
    calls: dict[str, int] = field(default_factory=lambda: {"objective": 0, "alignment": 0})
    """Calls of objective and alignment."""
    aligned: bool = False
    """Whether a loss of the alignment had a gradient for the network."""
    step: StepInputs | None = None
    """Inputs of the last step, with replay rows if any step had some."""


@contextmanager
def recorded(engine: Engine, *, custom_engine: bool) -> Iterator[Record]:
    """Check every loss and, unless the method has its own engine, every step."""
    network = engine.parts.network
    trained = {id(parameter) for parameter in ([] if custom_engine else optimized(engine))}
    others: dict[int, torch.Tensor] = {}
    with ExitStack() as stack:
        record = Record(forwards=stack.enter_context(count_forwards()))

        def count_rows(_: Any, inputs: tuple[Any, ...], __: Any) -> None:
            if torch.is_grad_enabled():
                record.trained += len(inputs[0])

        def check_loss(part: str, _: Any, inputs: tuple[Any, ...], loss: Any) -> None:
            record.calls[part] += 1
            require(
                isinstance(loss, torch.Tensor) and loss.ndim == 0,
                f"the {part}'s loss must be a scalar tensor; it is {getattr(loss, 'shape', type(loss).__name__)}",
            )
            require(bool(loss.isfinite()), f"the {part}'s loss is {loss.item()} in call number {record.calls[part]}")
            if not custom_engine:  # a custom engine may compute a loss only to report it
                require(
                    loss.requires_grad or part == "alignment" or _aligns(engine.parts, inputs[0]),
                    "the objective's loss has no gradient: it is a constant, or was detached from the embeddings",
                )
                check_leaves(part, loss, trained, others)
            if part == "alignment" and not record.aligned:
                record.aligned = has_gradient(engine.config.alignment_weight * loss, network)

        stack.enter_context(network.register_forward_hook(count_rows))
        stack.enter_context(engine.parts.objective.register_forward_hook(partial(check_loss, "objective")))
        if engine.parts.alignment is not None:
            stack.enter_context(engine.parts.alignment.register_forward_hook(partial(check_loss, "alignment")))
        if not custom_engine:
            stack.enter_context(_checked_steps(engine, record))
        yield record


def _aligns(parts: Parts, encoded: Encoded) -> bool:
    """Whether the alignment contributes to the loss of a batch, so that the objective need not."""
    return parts.alignment is not None and (len(encoded.replay_rows) > 0 or not parts.alignment.needs_replay)


@contextmanager
def _checked_steps(engine: Engine, record: Record) -> Iterator[None]:
    """Record the inputs of steps, and check that nothing changes the student after the optimiser's step."""
    step, network = engine._step, engine.parts.network
    after_optimizer: dict[str, torch.Tensor] = {}

    # Compares values: writing through ``.data`` does not change a tensor's version.
    def copy_network(*_: Any) -> None:
        after_optimizer.update({name: tensor.detach().clone() for name, tensor in _tensors(network)})

    def checked_step(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = step(*inputs)
        for name, tensor in _tensors(network):
            require(
                same(tensor, after_optimizer[name]),
                f"network.{name} changed after the optimiser's step, in after_step of objective or alignment; "
                "after_step must not change the student",
            )
        if record.step is None or len(inputs[2]) >= min(1, len(record.step[2])):
            record.step = inputs
        return outputs

    engine._step = checked_step
    with engine._eager_step.optimizer.register_step_post_hook(copy_network):
        yield
    engine._step = step


def _tensors(network: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return chain(network.named_parameters(), network.named_buffers())
