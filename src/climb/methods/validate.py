"""Checks before any work: does a configuration fit what its method declares, and do parts fit their sockets?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from climb.alignment import Alignment
from climb.augment import POLICIES
from climb.engine import BatchRule, Parts
from climb.errors import ClimbError, InputError
from climb.memory import Memory
from climb.memory.contract import Space
from climb.memory.validate import check_sizes
from climb.methods.catalog import METHODS, SOCKETS, Method, find_method
from climb.methods.factory import PartFactory, substitute
from climb.methods.objectives import find_objective
from climb.nets import Network, check_backbone
from climb.objectives import Objective
from climb.settings.config import LearnerConfig, MemoryConfig, check_learner
from climb.settings.presets import FAULTS

MEMBERS = ("capacity", "nbytes", "insert", "sample", "refresh", "state_dict", "load_state_dict", "__len__")
DECLARED = {"space": (*get_args(Space), None), "inserts": ("after", "before")}
"""Allowed values of the attributes that a memory declares."""

# -- configurations ----------------------------------------------------------------------------------------------------


def check_config(config: LearnerConfig) -> None:
    """Refuse a configuration that no engine can be built from."""
    check_learner(config)
    method = find_method(config.method)
    spec = find_objective(config.objective)
    if config.views != LearnerConfig.views:
        if method.custom_engine:
            raise InputError(f"method '{config.method}' makes its own views; leave --views out")
        POLICIES.find(config.views, also=[LearnerConfig.views])
    if config.objective != LearnerConfig.objective and method.own_objective is not None:
        raise _own_objective(config.method, method.own_objective)
    if method.objective == "configured":  # an alignment may differ from its class, and is checked when it is built
        _check_pair(method.name, method.memory, method.batch, spec.kind, None, f"objective '{spec.name}'")
    check_backbone(config.backbone, config.image_size)
    if config.weights != LearnerConfig.weights and method.custom_engine:
        raise InputError(f"method '{config.method}' builds its own network; leave --weights out")
    if isinstance(method.memory, type) and method.depends_on("ltm_centroids"):
        _check_centroids(config.memory)


def _check_centroids(memory: MemoryConfig) -> None:
    scaled = memory.stm_centroids is None and memory.ltm_centroids is None
    if scaled and min(memory.short_term, memory.long_term) < 1:
        least = _least_capacity(memory)
        raise InputError(
            f"capacity {memory.capacity} is too small for centroids of {memory.images_per_centroid} images; "
            + ("give stm_centroids and ltm_centroids, too" if least is None else f"give at least {least}")
        )
    check_sizes(memory.capacity, memory.short_term, memory.long_term, memory.images_per_centroid)


def _least_capacity(memory: MemoryConfig) -> int | None:
    """The smallest capacity with a centroid of either kind, where both scale with the capacity.

    >>> _least_capacity(MemoryConfig()), _least_capacity(MemoryConfig(images_per_centroid=5))
    (31, 21)
    """
    for capacity in range(1, 100):  # from 100 on there are several long-term centroids
        scaled = replace(memory, capacity=capacity)
        short, long = scaled.short_term, scaled.long_term
        if min(short, long) >= 1 and long * memory.images_per_centroid + short <= capacity:
            return capacity
    return None


# -- settings without effect -------------------------------------------------------------------------------------------


def refuse_unused(method: str, *, faults: Iterable[str] = (), prune: str | None = None) -> None:
    """Refuse faults of the released code, or a way of pruning, that change nothing in a method.

    >>> refuse_unused("climb", faults=["frozen-aligner"], prune="selective")
    >>> refuse_unused("lump", faults=["frozen-aligner"])
    Traceback (most recent call last):
    climb.errors.InputError: fault 'frozen-aligner' changes nothing in method 'lump'; leave it out. Allowed: batch-views
    """
    allowed = faults_of(method)
    for fault in faults:
        if fault not in allowed:
            raise _changes_nothing(f"fault '{fault}'", method, f"Allowed: {', '.join(allowed) or 'none'}")
    if prune is not None and not find_method(method).depends_on("prune"):
        others = sorted(name for name, other in METHODS.items() if other.depends_on("prune"))
        raise _changes_nothing(f"prune '{prune}'", method, f"It is for the methods {', '.join(others)}")


def refuse_equal(learner: LearnerConfig, over: Mapping[str, Sequence[Any]]) -> None:
    """Refuse to tune a setting that changes nothing in the learner's method: the runs would be equal.

    >>> refuse_equal(LearnerConfig(method="climb"), {"alignment_weight": (0.5, 2.0)})
    >>> refuse_equal(LearnerConfig(method="er-fifo"), {"alignment_weight": (0.5, 2.0)})
    Traceback (most recent call last):
    climb.errors.InputError: alignment_weight changes nothing in method 'er-fifo'; leave it out. Runs would be equal
    """
    method = find_method(learner.method)
    for setting, values in over.items():
        if len(values) > 1 and not method.custom_engine and not method.depends_on(setting, learner.objective):
            raise _changes_nothing(setting, learner.method, "Runs would be equal")


def faults_of(method: str) -> tuple[str, ...]:
    """The faults of the released code that change something in a method.

    >>> faults_of("climb-reservoir")
    ('batch-views', 'frozen-aligner')
    """
    found = find_method(method)
    return tuple(fault for fault, changed in FAULTS.items() if all(found.depends_on(setting) for setting in changed))


def _changes_nothing(setting: str, method: str, allowed: str) -> InputError:
    return InputError(f"{setting} changes nothing in method '{method}'; leave it out. {allowed}")


# -- parts -------------------------------------------------------------------------------------------------------------


def build_parts(factory: PartFactory) -> Parts:
    """Build the parts of the configured method, and check them against their sockets and its declaration."""
    config = factory.config
    method = find_method(config.method)
    parts = method.build(factory)
    if not isinstance(parts, Parts):
        raise ClimbError(
            f"the function behind method '{method.name}' gave {type(parts).__name__}; it must return its Parts"
        )
    _check_sockets(parts, method.name)
    _check_declared(parts, method, config)
    own = None if isinstance(parts.objective, find_objective(config.objective).kind) else _name(parts.objective)
    if own is not None and config.objective != LearnerConfig.objective:
        raise _own_objective(method.name, own)
    label = own or f"objective '{config.objective}'"
    _check_pair(method.name, parts.memory, parts.batch, parts.objective, parts.alignment, label)
    return parts


def _check_sockets(parts: Parts, method: str) -> None:
    """Refuse a part of the wrong kind."""
    kinds = {"network": Network, "batch": BatchRule, "objective": Objective, "alignment": Alignment}
    for socket, kind in kinds.items():
        part = getattr(parts, socket)
        if not isinstance(part, kind) and (part is not None or socket != "alignment"):
            article = "an" if kind.__name__[0] in "AO" else "a"
            raise _unfit(method, part, socket, f"{article} {kind.__name__}")
    if parts.memory is not None:
        _check_memory(parts.memory, method)


def _check_memory(memory: Memory, method: str) -> None:
    missing = [name for name in (*MEMBERS, *DECLARED, "bounded") if not hasattr(memory, name)]
    if isinstance(memory, type) or missing:
        lacking = f" It lacks {', '.join(missing)}" if missing else ""
        raise _unfit(method, memory, "memory", f"a Memory, or None.{lacking}")
    for name, allowed in DECLARED.items():
        if (value := getattr(memory, name)) not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise InputError(f"{_name(memory)}.{name} is {value!r} (method '{method}'). Allowed: {choices}")


def _check_declared(parts: Parts, method: Method, config: LearnerConfig) -> None:
    """Refuse a part of another class than the method declares."""
    for socket in SOCKETS:
        part, declared = getattr(parts, socket), getattr(method, socket)
        if declared == "configured":
            declared = find_objective(config.objective).kind
        kinds = (type(None),) if declared is None else (declared, substitute(declared, config))
        if declared != "unknown" and not isinstance(part, kinds):
            words = "None" if declared is None else declared.__name__
            raise InputError(
                f"method '{method.name}' declares {socket}={words}, but its function makes {_described(part)}; "
                "declare what it makes"
            )


def _check_pair(method: str, memory: Any, batch: Any, objective: Any, alignment: Any, label: str) -> None:
    """Refuse an objective or an alignment without the rows that it learns from.

    Args:
        method: name of the method.
        memory: the part in this socket, or its class, "unknown" or None. The next three likewise.
        batch: see ``memory``.
        objective: see ``memory``.
        alignment: see ``memory``.
        label: the objective in messages.
    """
    if getattr(objective, "needs_stream", False) and not getattr(batch, "has_stream_rows", True):
        raise InputError(
            f"{label} learns the present from stream images, method '{method}' trains on its memory alone; "
            "give another --objective or --method"
        )
    if memory is not None and getattr(batch, "replays", True):
        return
    never = f"method '{method}' trains on no stored image as it is"
    if getattr(objective, "needs_replay", False):
        raise InputError(f"{label} learns from stored images, {never}; give another --objective or --method")
    if getattr(alignment, "needs_replay", False):
        raise InputError(
            f"{_name(alignment)} aligns stored images, {never}; give the method a memory and a batch rule that "
            "replays, or the alignment needs_replay = False"
        )


def _own_objective(method: str, objective: str) -> InputError:
    return InputError(f"method '{method}' brings its own objective ({objective}); leave --objective out")


def _unfit(method: str, part: Any, socket: str, kind: str) -> InputError:
    return InputError(f"method '{method}' has {_described(part)} as its {socket}; it must be {kind}")


def _name(part: Any) -> str:
    return part.__name__ if isinstance(part, type) else type(part).__name__


def _described(part: Any) -> str:
    return f"the class {part.__name__}, not an instance," if isinstance(part, type) else type(part).__name__
