"""Faults, ways of pruning and settings to tune that would change nothing under a method: refused, not passed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch

from climb.config import LearnerConfig, MemoryConfig
from climb.engine.step import trainable
from climb.errors import InputError
from climb.memory.limits import PRUNING
from climb.methods import METHODS, build_parts, find_method, kind_of_memory, small_parts
from climb.presets import FAULTS
from climb.workshop import Workshop

Config = TypeVar("Config", LearnerConfig, MemoryConfig)


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


def refuse_equal(learner: LearnerConfig, over: Mapping[str, Sequence[Any]]) -> None:
    """Refuse to tune what the method does not look at: equal runs would be ranked.

    >>> refuse_equal(LearnerConfig(method="climb"), {"alignment_weight": (0.5, 2.0)})
    >>> refuse_equal(LearnerConfig(method="er-fifo"), {"alignment_weight": (0.5, 2.0)})
    Traceback (most recent call last):
    climb.errors.InputError: alignment_weight changes nothing in method 'er-fifo'; leave it out. Runs would be equal
    """
    for setting, values in over.items():
        if len(values) > 1 and not _changes_something(learner, setting):
            raise _changes_nothing(setting, learner.method, "Runs would be equal")


IN_PARTS = frozenset({"temperature", "ema_decay", "ema_period", *(field.name for field in fields(MemoryConfig))})
"""Settings that are read when a method's parts are made, or not at all. All others are read by the step."""


def _changes_something(learner: LearnerConfig, setting: str) -> bool:
    if find_method(learner.method).own_loop:
        return True
    if setting == "alignment_weight":
        return small_parts(learner.method).alignment is not None
    fault = next((name for name, changed in FAULTS.items() if setting in changed), None)
    if fault is not None:  # what switches it on is what it is about
        return fault in faults_of(learner.method)
    return setting not in IN_PARTS or setting in _read_by(learner)


def _read_by(learner: LearnerConfig) -> set[str]:
    """Fields of the learner and of its memory that are read while its parts are made."""
    read: set[str] = set()
    memory = _watched(learner.memory, read)
    small = replace(learner, backbone="micro", image_size=16, memory=memory)
    build_parts(Workshop(config=_watched(small, read), seed=0, device=torch.device("cpu")))
    return read


def _watched(config: Config, read: set[str]) -> Config:
    """The same configuration, which writes down the names of what is read from it."""

    class Watched(type(config)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    watched: Config = Watched(**{field.name: getattr(config, field.name) for field in fields(config)})
    return watched


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
