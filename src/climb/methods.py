"""Named methods: each is a choice of four parts (memory, batch, objective, alignment) and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import torch

from climb.alignment import Alignment
from climb.config import LearnerConfig, MemoryConfig, Views
from climb.engine import BatchRule, IidChunks, MemoryOnly, MixUp, Parts, StreamAndReplay
from climb.engine.pcmc import Pcmc, build_pcmc
from climb.engine.sockets import check_sockets
from climb.errors import ClimbError, InputError
from climb.memory import Memory
from climb.plugins import check_rates, check_words, find_registered, first_line, refuse_taken
from climb.workshop import Workshop, find_objective

Build = Callable[..., Any]
"""A workshop to `Parts`; for a method with a loop of its own, `build_engine`'s arguments to an engine."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of a table."""

    name: str
    build: Build
    summary: str
    """What it is, in one line."""
    paper: str
    """Who proposed it."""
    lr: float | None
    """Learning rate it starts from; None takes the preset's, which is CLIMB's."""
    alignment_weight: float | None
    """Weight of its alignment loss; None takes the preset's."""
    views: Views | None = None
    """Random views it is trained on; None takes those of the objective."""
    own_loop: bool = False
    """Whether ``build`` makes an engine of its own, for a method that four parts cannot say."""


METHODS: dict[str, Method] = {}


def method(
    name: str,
    *,
    paper: str,
    lr: float | None = None,
    alignment_weight: float | None = None,
    views: Views | None = None,
    own_loop: bool = False,
) -> Callable[[Build], Build]:
    """Register a method under a name; the first line of the function's docstring says what it is.

    With ``own_loop`` the function takes what `climb.learner.build_engine` takes and returns an engine of its own,
    for a method that four parts cannot say.
    """

    check_words("method", name, paper=paper)
    check_rates("method", name, lr=lr, alignment_weight=alignment_weight)
    if own_loop and views is not None:
        raise InputError(f"method '{name}' has a loop of its own, which makes its own views; leave views out")
    if views is not None and views not in get_args(Views):
        allowed = ", ".join(get_args(Views))
        raise InputError(f"method '{name}' has views={views!r}. Allowed, by name: {allowed}")

    def register(build: Build) -> Build:
        if name in METHODS:
            refuse_taken("a method", name, METHODS[name].build, build)
        METHODS[name] = Method(
            name=name,
            build=build,
            summary=first_line(build.__doc__) or name,
            paper=paper,
            lr=lr,
            alignment_weight=alignment_weight,
            views=views,
            own_loop=own_loop,
        )
        return build

    return register


def find_method(name: str) -> Method:
    """The method called ``name``: one of ours, or one that an installed package registers.

    A package registers by the entry point group ``climb.methods``, whose modules use the `method` decorator.
    """
    return find_registered("method", name, METHODS)


def choose_method(config: LearnerConfig, name: str) -> LearnerConfig:
    """A configuration as a preset leaves it, with another method, the rates it starts from and its views.

    What a method does not set stays as it is: one that is chosen after another has the other's rates.

    >>> choose_method(LearnerConfig(), "cla-r").lr
    0.1
    """
    found = find_method(name)
    config = replace(config, method=name)
    if found.lr is not None:
        config = replace(config, lr=found.lr)
    if found.alignment_weight is not None:
        config = replace(config, alignment_weight=found.alignment_weight)
    if found.views is not None:
        config = replace(config, views=found.views)
    return config


def choose_objective(config: LearnerConfig, name: str) -> LearnerConfig:
    """A configuration of SimCLR with another objective and the rates it starts from; the method is chosen before.

    Those are for CLIMB and its ablations. A method with rates of its own keeps its alignment weight, and its learning
    rate if that is the lower one.

    >>> choose_objective(LearnerConfig(), "simsiam").lr
    0.2
    >>> choose_objective(choose_method(LearnerConfig(), "cla-r"), "simsiam").lr
    0.1
    """
    chosen, method = find_objective(name), find_method(config.method)
    config = replace(config, objective=name)
    if chosen.lr is not None:
        config = replace(config, lr=chosen.lr if method.lr is None else min(config.lr, chosen.lr))
    if chosen.alignment_weight is not None and method.alignment_weight is None:
        config = replace(config, alignment_weight=chosen.alignment_weight)
    return config


def own_objective(parts: Parts, configured: str) -> str | None:
    """The class of an objective that a method brings, whatever is configured."""
    return None if isinstance(parts.objective, find_objective(configured).kind) else type(parts.objective).__name__


@cache  # a table asks once for each of its runs
def takes_objective(name: str) -> bool:
    """Whether a method learns by the objective that is configured, and brings none of its own.

    True of one that cannot be built, too.

    >>> takes_objective("climb"), takes_objective("osiris-r")
    (True, False)
    """
    try:
        return own_objective(small_parts(name), LearnerConfig.objective) is None
    except (Exception, SystemExit):  # a third party's, which may not be here any more; its runs are
        return True


def parts_of(name: str) -> dict[str, str]:
    """What fills the four sockets of a method, by class, with the default objective.

    >>> parts_of("cla-r")
    {'memory': 'FifoMemory', 'batch': 'StreamAndReplay', 'objective': 'SimCLR', 'alignment': 'StoredTargets'}
    """
    parts = small_parts(name)
    sockets = {socket: getattr(parts, socket) for socket in ("memory", "batch", "objective", "alignment")}
    found = {socket: "none" if part is None else type(part).__name__ for socket, part in sockets.items()}
    # A loop of its own asks no batch rule, whatever the engine was built with.
    return {**found, "batch": "own loop"} if find_method(name).own_loop else found


@cache  # a grid asks once for each of its runs
def kind_of_memory(method: Method) -> type:
    """The class of what a method has in the memory socket.

    None's, where that is nothing, where the method has a loop of its own in place of sockets, and where it cannot be
    built.

    >>> kind_of_memory(find_method("minred")).__name__
    'MinRedMemory'
    """
    if method.own_loop:
        return type(None)
    try:
        return type(small_parts(method.name).memory)
    except Exception:  # a third party's; what is wrong with it shows in its own run, not in a plan for many
        return type(None)


def small_parts(name: str, **changes: Any) -> Parts:
    """A method's parts at the smallest sizes, to see what it is made of, or what other fields of the learner change."""
    found = find_method(name)
    sizes = MemoryConfig(capacity=60, images_per_centroid=4)
    config = LearnerConfig(method=name, backbone="micro", image_size=16, replay_batch=8, memory=sizes)
    config = replace(config, **changes)
    device = torch.device("cpu")
    if found.own_loop:
        unit = (1.0, 1.0, 1.0)
        place = {"seed": 0, "device": device, "precision": "float32", "kind": "eager"}
        parts: Parts = found.build(config, mean=unit, std=unit, **place).parts
        return parts
    return build_parts(Workshop(config=config, seed=0, device=device))


def build_parts(workshop: Workshop) -> Parts:
    """The parts of the method that the configuration names."""
    method = find_method(workshop.config.method)
    parts = method.build(workshop)
    if not isinstance(parts, Parts):
        raise ClimbError(
            f"the function behind method '{method.name}' gave {type(parts).__name__}; it must return its Parts"
        )
    configured = workshop.config.objective
    named = own_objective(parts, configured) or f"objective '{configured}'"
    check_sockets(parts, method=method.name, objective=named)
    return parts


# -- CLIMB and its ablations ---------------------------------------------------------------------------------------

CLIMB = "Lefebvre et al., 2026"


@method("climb", paper=CLIMB)
def climb(w: Workshop) -> Parts:
    """Centroid memory, replay, distillation from an EMA teacher."""
    return with_replay(w, w.centroid(), w.ema_teacher())


@method("climb-selective", paper=CLIMB)
def climb_selective(w: Workshop) -> Parts:
    """CLIMB whose pruning removes the newest images of the least recently updated centroid."""
    return with_replay(w, w.centroid(prune="selective"), w.ema_teacher())


@method("climb-memory-only", paper=CLIMB)
def climb_memory_only(w: Workshop) -> Parts:
    """CLIMB's memory and replay, no alignment."""
    return with_replay(w, w.centroid(), None)


@method("climb-previous-step", paper=CLIMB)
def climb_previous_step(w: Workshop) -> Parts:
    """CLIMB aligned to the network as the previous mini-batch left it: an EMA that keeps nothing."""
    return with_replay(w, w.centroid(), w.ema_teacher(decay=0.0, period="batch"))


@method("climb-fifo", paper=CLIMB)
def climb_fifo(w: Workshop) -> Parts:
    """CLIMB's learner with the last N images as memory: CLA-E at CLIMB's rates."""
    return with_replay(w, w.fifo(), w.ema_teacher())


@method("climb-minred", paper=CLIMB)
def climb_minred(w: Workshop) -> Parts:
    """CLIMB's learner with MinRed's memory, filled after the passes."""
    return with_replay(w, w.minred(inserts="after"), w.ema_teacher())


@method("climb-reservoir", paper=CLIMB)
def climb_reservoir(w: Workshop) -> Parts:
    """CLIMB's learner with a uniform sample of the stream as memory."""
    return with_replay(w, w.reservoir(), w.ema_teacher())


# -- the methods it is compared to ---------------------------------------------------------------------------------


@method("cla-e", paper="Cignoni et al., 2025", alignment_weight=1.0)  # at CLIMB's rate, by the search
def cla_e(w: Workshop) -> Parts:
    """The last N images, replay, distillation from an EMA teacher."""
    return with_replay(w, w.fifo(), w.ema_teacher(always_trained=True))


@method("cla-r", paper="Cignoni et al., 2025", lr=0.1, alignment_weight=1.0)
def cla_r(w: Workshop) -> Parts:
    """The last N images with their embeddings, replay, distillation from those embeddings."""
    return with_replay(w, w.fifo(embedding_rate=0.5), w.stored_targets())


@method("cla-b", paper="Cignoni et al., 2025", lr=0.03, alignment_weight=1.0)
def cla_b(w: Workshop) -> Parts:
    """No memory; distillation from an EMA teacher on the stream itself."""
    return Parts(
        network=w.network,
        memory=None,
        batch=BatchRule(),
        objective=w.objective(),
        alignment=w.ema_teacher(rows="all", always_trained=True),
    )


@method("minred", paper="Purushwalkam et al., 2022", lr=0.1)
def minred(w: Workshop) -> Parts:
    """The least redundant images; trains on the memory alone."""
    return Parts(network=w.network, memory=w.minred(), batch=MemoryOnly(), objective=w.objective(), alignment=None)


@method("osiris-r", paper="Zhang et al., 2024", lr=0.03, views="common")
def osiris_r(w: Workshop) -> Parts:
    """A uniform sample; one head learns the present, a second one holds past and present apart."""
    return Parts(network=w.network, memory=w.reservoir(), batch=StreamAndReplay(), objective=w.osiris(), alignment=None)


@method("scale", paper="Yu et al., 2023", lr=0.03, alignment_weight=1.0)
def scale(w: Workshop) -> Parts:
    """The widest spread of features; pseudo-supervised contrast, distillation of similarities."""
    network = w.scale_network()
    return Parts(
        network=network,
        memory=w.part_and_select(),
        batch=StreamAndReplay(),
        objective=w.scale(),
        alignment=w.relation(network),
    )


@method("cassle-r", paper="Fini et al., 2022", alignment_weight=1.0)  # at CLIMB's rate, by the search
def cassle_r(w: Workshop) -> Parts:
    """A uniform sample, replay, distillation from the last task's network; must be told where tasks end."""
    return with_replay(w, w.reservoir(), w.snapshot())


@method("lump", paper="Madaan et al., 2022", lr=0.03)
def lump(w: Workshop) -> Parts:
    """A uniform sample; stream images are blended with stored ones."""
    return Parts(network=w.network, memory=w.reservoir(), batch=MixUp(), objective=w.objective(), alignment=None)


@method("er-fifo", paper="experience replay", lr=0.1)
def er_fifo(w: Workshop) -> Parts:
    """The last N images, replay, no alignment."""
    return with_replay(w, w.fifo(), None)


@method("er-reservoir", paper="experience replay; Vitter, 1985", lr=0.1)
def er_reservoir(w: Workshop) -> Parts:
    """A uniform sample of the stream, replay, no alignment."""
    return with_replay(w, w.reservoir(), None)


@method("finetune", paper="the lower bound", lr=0.03)
def finetune(w: Workshop) -> Parts:
    """The stream alone: no memory, no alignment."""
    return Parts(network=w.network, memory=None, batch=BatchRule(), objective=w.objective(), alignment=None)


@method("iid", paper="the upper bound", lr=0.1)
def iid(w: Workshop) -> Parts:
    """Batches drawn from all training images at all times."""
    return Parts(network=w.network, memory=None, batch=IidChunks(), objective=w.objective(), alignment=None)


@method("pcmc", paper="Taylor et al., 2024", lr=0.6, own_loop=True)
def pcmc(config: LearnerConfig, **place: Any) -> Pcmc:
    """Patches in a short-term and an unbounded long-term memory; learns while asleep, outside the common budget."""
    return build_pcmc(config, **place)


def with_replay(w: Workshop, memory: Memory, alignment: Alignment | None) -> Parts:
    """What most methods are: a memory, replay from it, the configured objective, perhaps an alignment."""
    return Parts(
        network=w.network,
        memory=memory,
        batch=StreamAndReplay(),
        objective=w.objective(),
        alignment=alignment,
    )
