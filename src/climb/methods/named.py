"""The methods of the paper. Each picks a memory, a batch rule, an objective and an alignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from climb.alignment import Alignment, EmaTeacher, Relation, Snapshot, StoredTargets
from climb.engine import BatchRule, IidChunks, MemoryOnly, MixUp, Parts, StreamAndReplay
from climb.memory import CentroidMemory, FifoMemory, Memory, MinRedMemory, PartAndSelectMemory, ReservoirMemory
from climb.methods.catalog import Build, method
from climb.methods.factory import PartFactory
from climb.objectives import Osiris, Scale


def replay_method(name: str, memory: type, alignment: type[Alignment] | None, **rest: Any) -> Callable[[Build], Build]:
    """`method` for a function that returns `with_replay` of a memory and an alignment of these classes."""
    return _method(name, memory, StreamAndReplay, alignment, **rest)


def _method(
    name: str, memory: type | None, batch: type[BatchRule], alignment: type[Alignment] | None, **rest: Any
) -> Callable[[Build], Build]:
    """`method` for parts of these classes; with the configured objective unless another one is given."""
    return method(name, memory=memory, batch=batch, alignment=alignment, **{"objective": "configured"} | rest)


def with_replay(w: PartFactory, memory: Memory, alignment: Alignment | None) -> Parts:
    """The parts of most methods: a memory, replay from it, the configured objective, an alignment or none."""
    return _parts(w, memory, StreamAndReplay(), alignment)


def _parts(w: PartFactory, memory: Memory | None, batch: BatchRule, alignment: Alignment | None) -> Parts:
    """Parts with the configured network and objective."""
    return Parts(network=w.network, memory=memory, batch=batch, objective=w.objective(), alignment=alignment)


# -- CLIMB and its ablations ---------------------------------------------------------------------------------------

CLIMB = "Lefebvre et al., 2026"


@replay_method("climb", CentroidMemory, EmaTeacher, paper=CLIMB)
def climb(w: PartFactory) -> Parts:
    """Centroid memory, replay, distillation from an EMA teacher."""
    return with_replay(w, w.centroid(), w.ema_teacher())


@replay_method("climb-selective", CentroidMemory, EmaTeacher, fixes=["prune"], paper=CLIMB)
def climb_selective(w: PartFactory) -> Parts:
    """CLIMB whose pruning removes the newest images of the least recently updated centroid."""
    return with_replay(w, w.centroid(prune="selective"), w.ema_teacher())


@replay_method("climb-memory-only", CentroidMemory, None, paper=CLIMB)
def climb_memory_only(w: PartFactory) -> Parts:
    """CLIMB's memory and replay, no alignment."""
    return with_replay(w, w.centroid(), None)


@replay_method("climb-previous-step", CentroidMemory, EmaTeacher, fixes=["ema_decay", "ema_period"], paper=CLIMB)
def climb_previous_step(w: PartFactory) -> Parts:
    """CLIMB aligned to the network as the previous mini-batch left it: an EMA that keeps nothing."""
    return with_replay(w, w.centroid(), w.ema_teacher(decay=0.0, period="batch"))


@replay_method("climb-fifo", FifoMemory, EmaTeacher, paper=CLIMB)
def climb_fifo(w: PartFactory) -> Parts:
    """CLIMB's learner with the last N images as memory: CLA-E at CLIMB's rates."""
    return with_replay(w, w.fifo(), w.ema_teacher())


@replay_method("climb-minred", MinRedMemory, EmaTeacher, paper=CLIMB)
def climb_minred(w: PartFactory) -> Parts:
    """CLIMB's learner with MinRed's memory, filled after the passes."""
    return with_replay(w, w.minred(inserts="after"), w.ema_teacher())


@replay_method("climb-reservoir", ReservoirMemory, EmaTeacher, paper=CLIMB)
def climb_reservoir(w: PartFactory) -> Parts:
    """CLIMB's learner with a uniform sample of the stream as memory."""
    return with_replay(w, w.reservoir(), w.ema_teacher())


@_method("climb-none", None, BatchRule, EmaTeacher, paper=CLIMB)
def climb_none(w: PartFactory) -> Parts:
    """CLIMB's learner without a memory: alignment on the stream itself, CLA-b at CLIMB's rates."""
    return _parts(w, None, BatchRule(), w.ema_teacher(rows="all"))


# -- the methods it is compared to ---------------------------------------------------------------------------------

CLA = "Cignoni et al., 2025"


# At CLIMB's learning rate, which the search chose.
@replay_method("cla-e", FifoMemory, EmaTeacher, fixes=["train_aligner"], paper=CLA, alignment_weight=1.0)
def cla_e(w: PartFactory) -> Parts:
    """The last N images, replay, distillation from an EMA teacher."""
    return with_replay(w, w.fifo(), w.ema_teacher(always_trained=True))


@replay_method("cla-r", FifoMemory, StoredTargets, reads=["embed_mode"], paper=CLA, lr=0.1, alignment_weight=1.0)
def cla_r(w: PartFactory) -> Parts:
    """The last N images with their embeddings, replay, distillation from those embeddings."""
    return with_replay(w, w.fifo(embedding_rate=0.5), w.stored_targets())


@_method("cla-b", None, BatchRule, EmaTeacher, fixes=["train_aligner"], paper=CLA, lr=0.03, alignment_weight=1.0)
def cla_b(w: PartFactory) -> Parts:
    """No memory; distillation from an EMA teacher on the stream itself."""
    return _parts(w, None, BatchRule(), w.ema_teacher(rows="all", always_trained=True))


@_method("minred", MinRedMemory, MemoryOnly, None, paper="Purushwalkam et al., 2022", lr=0.1)
def minred(w: PartFactory) -> Parts:
    """The least redundant images; trains on the memory alone."""
    return _parts(w, w.minred(), MemoryOnly(), None)


@replay_method("osiris-r", ReservoirMemory, None, objective=Osiris, paper="Zhang et al., 2024", lr=0.03, views="common")
def osiris_r(w: PartFactory) -> Parts:
    """A uniform sample; one head learns the present, a second one holds past and present apart."""
    return Parts(network=w.network, memory=w.reservoir(), batch=StreamAndReplay(), objective=w.osiris(), alignment=None)


@replay_method(
    "scale", PartAndSelectMemory, Relation, objective=Scale, paper="Yu et al., 2023", lr=0.03, alignment_weight=1.0
)
def scale(w: PartFactory) -> Parts:
    """The widest spread of features; pseudo-supervised contrast, distillation of similarities."""
    network, memory = w.scale_network(), w.part_and_select()
    alignment = w.relation(network)
    return Parts(network=network, memory=memory, batch=StreamAndReplay(), objective=w.scale(), alignment=alignment)


# At CLIMB's learning rate, which the search chose.
@replay_method("cassle-r", ReservoirMemory, Snapshot, paper="Fini et al., 2022", alignment_weight=1.0)
def cassle_r(w: PartFactory) -> Parts:
    """A uniform sample, replay, distillation from the last task's network; must be told where tasks end."""
    return with_replay(w, w.reservoir(), w.snapshot())


@_method("lump", ReservoirMemory, MixUp, None, paper="Madaan et al., 2022", lr=0.03)
def lump(w: PartFactory) -> Parts:
    """A uniform sample; stream images are blended with stored ones."""
    return _parts(w, w.reservoir(), MixUp(), None)


@replay_method("er-fifo", FifoMemory, None, paper="experience replay", lr=0.1)
def er_fifo(w: PartFactory) -> Parts:
    """The last N images, replay, no alignment."""
    return with_replay(w, w.fifo(), None)


@replay_method("er-reservoir", ReservoirMemory, None, paper="experience replay; Vitter, 1985", lr=0.1)
def er_reservoir(w: PartFactory) -> Parts:
    """A uniform sample of the stream, replay, no alignment."""
    return with_replay(w, w.reservoir(), None)


@_method("finetune", None, BatchRule, None, paper="the lower bound", lr=0.03)
def finetune(w: PartFactory) -> Parts:
    """The stream alone: no memory, no alignment."""
    return _parts(w, None, BatchRule(), None)


@_method("iid", None, IidChunks, None, paper="the upper bound", lr=0.1)
def iid(w: PartFactory) -> Parts:
    """Batches drawn from all training images at all times."""
    return _parts(w, None, IidChunks(), None)
