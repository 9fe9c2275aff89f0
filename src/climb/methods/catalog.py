"""The methods by name: registration, what each declares about its parts, and how a configuration chooses one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

from climb.alignment import Alignment
from climb.augment import POLICIES
from climb.engine import BatchRule
from climb.errors import InputError
from climb.memory import Memory
from climb.methods.factory import substitutes
from climb.methods.objectives import check_entry, find_objective
from climb.objectives import Objective
from climb.registry import Registry, first_line
from climb.settings.config import LearnerConfig, MemoryConfig

Build = Callable[..., Any]
"""A `PartFactory` to `Parts`; for a method with a custom engine, `build_engine`'s arguments to an engine."""
Unknown = Literal["unknown"]
"""A socket about which a method declares nothing."""
SOCKETS = ("memory", "batch", "objective", "alignment")
"""The sockets for which a method picks a part. The network follows from the configuration."""

PART_SETTINGS = frozenset(
    {
        *("temperature", "alignment_weight", "ema_decay", "ema_period", "embed_mode"),
        *("train_aligner", "swapped_refresh", "memory_faults"),
        *(field.name for field in fields(MemoryConfig)),
    }
)
"""Settings on which only some parts depend. Every step depends on the others."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of a table: a function that picks the parts, and what is declared about it."""

    name: str
    build: Build
    summary: str
    """One line that says what it is."""
    paper: str
    """Who proposed it."""
    memory: type[Memory] | Unknown | None = "unknown"
    """Class of its memory; None: it has none."""
    batch: type[BatchRule] | Unknown | None = "unknown"
    """Class of its batch rule; None: its custom engine has none."""
    objective: type[Objective] | Literal["configured"] | Unknown = "unknown"
    """Class of its own objective; "configured": it takes the configured one."""
    alignment: type[Alignment] | Unknown | None = "unknown"
    """Class of its alignment; None: it has none."""
    fixes: Sequence[str] = ()
    """Settings that its parts read elsewhere, but not here."""
    reads: Sequence[str] = ()
    """Settings that its parts do not read elsewhere, but here."""
    lr: float | None = None
    """Learning rate it starts from; None takes the preset's, which is CLIMB's."""
    alignment_weight: float | None = None
    """Weight of its alignment loss; None takes the preset's."""
    views: str | None = None
    """Registered views it is trained on; None takes those of the objective."""
    custom_engine: bool = False
    """Whether ``build`` returns an engine of its own."""

    @property
    def own_loop(self) -> bool:
        """Old name of ``custom_engine``."""
        _warn_own_loop()
        return self.custom_engine

    @property
    def needs_boundaries(self) -> bool:
        """Whether its alignment is declared to need the ends of tasks."""
        return isinstance(self.alignment, type) and self.alignment.needs_boundaries

    @property
    def own_objective(self) -> str | None:
        """The class name of an objective that it brings itself, as declared."""
        return self.objective.__name__ if isinstance(self.objective, type) else None

    def uses(self, socket: str, kind: type) -> bool:
        """Whether a socket is declared to hold a part of the class ``kind``.

        >>> from climb.memory import FifoMemory
        >>> METHODS["cla-r"].uses("memory", FifoMemory)
        True
        """
        declared = getattr(self, socket)
        return isinstance(declared, type) and issubclass(declared, kind)

    def depends_on(self, setting: str, objective: str = LearnerConfig.objective) -> bool:
        """Whether a setting of the learner or of its memory changes anything, with the configured ``objective``.

        True where a part does not declare its settings. A custom engine is not known by its parts: it depends on none
        of `PART_SETTINGS`, nor on ``augment_per_batch``.

        >>> METHODS["climb"].depends_on("prune"), METHODS["climb-selective"].depends_on("prune")
        (True, False)
        """
        if self.custom_engine:
            return setting not in {*PART_SETTINGS, "augment_per_batch"}
        if setting not in PART_SETTINGS:
            return True
        if setting in self.fixes or setting in self.reads:
            return setting in self.reads
        if setting == "alignment_weight":
            return self.alignment is not None
        parts = (self.memory, self.alignment)
        if any(setting in substitutes(part) for part in parts if isinstance(part, type)):
            return True
        learned = find_objective(objective).kind if self.objective == "configured" else self.objective
        return any(_may_read(part, setting) for part in (self.memory, self.batch, learned, self.alignment))


def _may_read(part: type | Unknown | None, setting: str) -> bool:
    declared = None if part == "unknown" else () if part is None else getattr(part, "settings", None)
    return declared is None or setting in declared


METHODS = Registry[Method]("method", builtin=["climb.methods.named", "climb.contrib.pcmc"])


def method(name: str, *, own_loop: bool | None = None, **declared: Any) -> Callable[[Build], Build]:
    """Register a function from a `PartFactory` to `Parts`. The first line of its docstring becomes the summary.

    Declared parts are checked against those that the function returns. With ``custom_engine`` the function takes the
    arguments of `climb.learner.build_engine` and returns an engine.

    Args:
        name: name of the method.
        own_loop: old name of ``custom_engine``.
        declared: fields of `Method`; ``paper`` is required.
    """
    if own_loop is not None:
        _warn_own_loop()
        declared["custom_engine"] = own_loop
    check_entry("method", name, declared)
    views = declared.get("views")
    if views is not None and declared.get("custom_engine"):
        raise InputError(f"method '{name}' has a custom engine, which makes its own views; leave views out")
    if views not in (None, "objective", *POLICIES):
        raise InputError(f"method '{name}' has views={views!r}. Allowed, by name: objective, {', '.join(POLICIES)}")
    for socket in SOCKETS:
        part, word = declared.get(socket, "unknown"), "configured" if socket == "objective" else None
        if not isinstance(part, type) and part not in ("unknown", word):
            raise InputError(f"method '{name}' declares {socket}={part!r}; it must be a class or {word!r}")

    def entry(build: Build) -> Method:
        return Method(name=name, build=build, summary=first_line(build.__doc__) or name, **declared)

    return METHODS.register(name, entry)


def _warn_own_loop() -> None:
    warnings.warn(
        "own_loop of a method is now custom_engine; the next release removes the old name", DeprecationWarning, 3
    )


def find_method(name: str) -> Method:
    """The method ``name``, built in or of an installed package."""
    return METHODS.find(name)


def choose_method(config: LearnerConfig, name: str) -> LearnerConfig:
    """The configuration with a method, its rates and its views. What the method does not set stays as it is.

    >>> choose_method(LearnerConfig(), "cla-r").lr
    0.1
    """
    method = find_method(name)
    if method.custom_engine:  # it makes its own views, whatever the preset's are
        config = replace(config, views=LearnerConfig.views)
    rates = {field: getattr(method, field) for field in ("lr", "alignment_weight", "views")}
    return replace(config, method=name, **{field: value for field, value in rates.items() if value is not None})


def choose_objective(config: LearnerConfig, name: str) -> LearnerConfig:
    """The configuration with an objective and its rates; choose the method first.

    The rates are for CLIMB and its ablations. A method with rates of its own keeps its alignment weight, and its
    learning rate if that is the lower one.

    >>> choose_objective(LearnerConfig(), "simsiam").lr
    0.2
    >>> choose_objective(choose_method(LearnerConfig(), "cla-r"), "simsiam").lr
    0.1
    """
    spec, method = find_objective(name), find_method(config.method)
    config = replace(config, objective=name)
    if spec.lr is not None:
        config = replace(config, lr=spec.lr if method.lr is None else min(config.lr, spec.lr))
    if spec.alignment_weight is not None and method.alignment_weight is None:
        config = replace(config, alignment_weight=spec.alignment_weight)
    return config


@cache  # a table asks for each of its runs
def takes_objective(name: str) -> bool:
    """Whether a method learns by the configured objective; True of a method that is not installed.

    >>> takes_objective("climb"), takes_objective("osiris-r")
    (True, False)
    """
    try:
        return find_method(name).own_objective is None
    except InputError:
        return True


def parts_of(name: str) -> dict[str, str]:
    """The classes in the four sockets of a method, with the default objective.

    >>> parts_of("cla-r")
    {'memory': 'FifoMemory', 'batch': 'StreamAndReplay', 'objective': 'SimCLR', 'alignment': 'StoredTargets'}
    """
    method = find_method(name)
    parts = {socket: getattr(method, socket) for socket in SOCKETS}
    if method.objective == "configured":
        parts["objective"] = find_objective(LearnerConfig.objective).kind
    if method.custom_engine:
        parts["batch"] = "custom engine"
    return {socket: getattr(part, "__name__", part or "none") for socket, part in parts.items()}
