"""Faults and ways of pruning that would change nothing under the chosen method: refused, not passed over."""

from __future__ import annotations

from collections.abc import Iterable

from climb.config import MemoryConfig
from climb.engine.step import trainable
from climb.errors import InputError
from climb.memory.limits import PRUNING
from climb.methods import METHODS, find_method, kind_of_memory, small_parts
from climb.presets import FAULTS


def refuse_unused(method: str, *, faults: Iterable[str] = (), prune: str | None = None) -> None:
    """Refuse faults of the released code, or a way of pruning, that the method has no use for.

    >>> refuse_unused("climb", faults=["frozen-aligner"], prune="selective")
    >>> refuse_unused("lump", faults=["frozen-aligner"])
    Traceback (most recent call last):
    climb.errors.InputError: fault 'frozen-aligner' changes nothing in method 'lump'; leave it out. Allowed: batch-views
    """
    allowed = faults_of(method) if faults else ()
    for fault in faults:
        if fault not in allowed:
            raise _changes_nothing(f"fault '{fault}'", method, f"Allowed: {', '.join(allowed) or 'none'}")
    if prune is not None and not prunes_as_told(method):
        others = sorted(name for name in METHODS if prunes_as_told(name))
        raise _changes_nothing(f"prune '{prune}'", method, f"It is for the methods {', '.join(others)}")


def faults_of(method: str) -> tuple[str, ...]:
    """The faults that change something in a method.

    >>> faults_of("climb-reservoir")
    ('batch-views', 'frozen-aligner')
    """
    if find_method(method).own_loop:  # it makes its views and embeds its images itself
        return ()
    sound = small_parts(method)
    faulty = small_parts(method, **{field: value for fields in FAULTS.values() for field, value in fields.items()})
    changes = {
        "batch-views": True,
        "frozen-aligner": trainable(faulty).keys() != trainable(sound).keys(),
        "swapped-refresh": type(faulty.memory) is not type(sound.memory),
        "train-embedding": sound.memory is not None and sound.memory.space is not None,
    }
    return tuple(fault for fault in FAULTS if changes[fault])


def prunes_as_told(method: str) -> bool:
    """Whether the configuration decides how a method's memory is pruned.

    >>> prunes_as_told("climb"), prunes_as_told("climb-selective"), prunes_as_told("er-fifo")
    (True, False, False)
    """
    if kind_of_memory(find_method(method)) is type(None):
        return False
    made = {prune: small_parts(method, memory=MemoryConfig(capacity=60, prune=prune)).memory for prune in PRUNING}
    return all(getattr(memory, "pruning", None) == prune for prune, memory in made.items())


def _changes_nothing(given: str, method: str, allowed: str) -> InputError:
    return InputError(f"{given} changes nothing in method '{method}'; leave it out. {allowed}")
