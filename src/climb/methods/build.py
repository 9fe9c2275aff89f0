"""`build_engine`: from a configuration to an engine at its first step, and the network of it that is evaluated."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from climb.augment import POLICIES, Augment, Policy
from climb.engine import Engine, EngineKind, Layout, Precision
from climb.errors import InputError
from climb.methods.catalog import find_method
from climb.methods.factory import PartFactory
from climb.methods.objectives import find_objective
from climb.methods.validate import build_parts, check_config
from climb.nets import Channels, Network
from climb.parallel import SINGLE, Group
from climb.settings.config import LearnerConfig
from climb.settings.presets import NETWORK


def build_engine(
    config: LearnerConfig,
    *,
    mean: Channels,
    std: Channels,
    seed: int,
    device: torch.device,
    precision: Precision,
    kind: EngineKind,
    layout: Layout | None = None,
    group: Group = SINGLE,
    restored: bool = False,
    module: nn.Module | None = None,
) -> Engine:
    """The engine of a configuration, at its first step.

    Args:
        config: the learner.
        mean: by colour channel; images are normalised with it.
        std: see ``mean``.
        seed: seed of everything random.
        device: where everything happens.
        precision: arithmetic of the networks.
        kind: how steps are carried out.
        layout: memory layout of convolutions; None is that of the device: channels last on a GPU, else contiguous.
        group: the processes that train it together; each calls this function.
        restored: True if the caller loads a saved state into the engine: start weights are not read.
        module: the network that a caller passed as an object, which the encoder is a copy of.
    """
    check_config(config)
    method = find_method(config.method)
    if method.custom_engine:
        if group.size > 1:
            raise InputError(f"'{config.method}' has a custom engine, which works in one process only")
        engine: Engine = method.build(
            config, mean=mean, std=std, seed=seed, device=device, precision=precision, kind=kind
        )
        return _laid_out(engine, layout)
    place: dict[str, Any] = {"seed": seed, "device": device, "group": group}
    parts = build_parts(PartFactory(config=config, restored=restored, module=module, **place))
    memory, allowed = parts.memory, config.memory.capacity
    if memory is not None and memory.bounded and memory.capacity > allowed:
        raise InputError(
            f"method '{config.method}' has a memory for {memory.capacity} images where {allowed} are allowed; make it "
            "with the factory's *w.sizes"
        )
    views = find_objective(config.objective).views if config.views == "objective" else POLICIES.find(config.views)
    policy = views(config.image_size)
    if not isinstance(policy, Policy):
        raise InputError(
            f"the views of objective '{config.objective}' are {type(policy).__name__}; its function must give a Policy"
        )
    augment = Augment(policy, mean, std, per_batch=config.augment_per_batch, device=device)
    engine = Engine(parts, augment, config, seed=seed, device=device, precision=precision, kind=kind, group=group)
    return _laid_out(engine, layout)


def _laid_out(engine: Engine, layout: Layout | None) -> Engine:
    if layout is not None and engine.device.type == "cpu":
        engine.parts.lay_out(layout, engine.config.image_size)
    return engine


def chosen_network(engine: Engine) -> tuple[str, Network]:
    """The network that the preset evaluates, with its name: an average with the start, the teacher, or the student."""
    teacher, average = engine.parts.teacher, engine.parts.average
    if average is not None:
        return "average", average.network
    if NETWORK[engine.config.preset] == "teacher" and teacher is not None:
        return "teacher", teacher
    return "student", engine.parts.network
