"""Do a method's parts fit their sockets, and each other? Found before any work, and said in the method's name."""

from __future__ import annotations

from typing import Any, get_args

from climb.alignment import Alignment
from climb.engine.batch import BatchRule
from climb.engine.parts import Parts
from climb.errors import InputError
from climb.memory import Memory
from climb.memory.contract import Space
from climb.nets import Network
from climb.objectives import Objective

MEMBERS = ("capacity", "nbytes", "insert", "sample", "refresh", "state_dict", "load_state_dict", "__len__")
SPACES = (*get_args(Space), None)
TIMES = ("after", "before")


def check_sockets(parts: Parts, *, method: str, objective: str) -> None:
    """Refuse parts that no engine could train with, or that it would pass over in silence.

    Args:
        parts: what fills the sockets.
        method: its name.
        objective: what to call its objective.
    """
    for socket, kind, optional in (
        ("network", Network, False),
        ("batch", BatchRule, False),
        ("objective", Objective, False),
        ("alignment", Alignment, True),
    ):
        part = getattr(parts, socket)
        if not isinstance(part, kind) and not (optional and part is None):
            article = "an" if kind.__name__[0] in "AO" else "a"
            raise InputError(
                f"method '{method}' has {_said(part)} as its {socket}; it must be {article} {kind.__name__}"
            )
    if parts.memory is not None:
        _check_memory(parts.memory, method)
    _check_pair(parts, method, objective)


def _check_memory(memory: Memory, method: str) -> None:
    missing = [name for name in (*MEMBERS, "space", "inserts", "bounded") if not hasattr(memory, name)]
    if isinstance(memory, type) or missing:
        lacking = f" It lacks {', '.join(missing)}" if missing else ""
        raise InputError(f"method '{method}' has {_said(memory)} as its memory; it must be a Memory, or None.{lacking}")
    for name, value, allowed in (("space", memory.space, SPACES), ("inserts", memory.inserts, TIMES)):
        if value not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise InputError(f"{type(memory).__name__}.{name} is {value!r} (method '{method}'). Allowed: {choices}")


def _check_pair(parts: Parts, method: str, objective: str) -> None:
    """Refuse an objective that would get no batch to learn from, or to learn all of itself from."""
    if parts.objective.needs_stream and not parts.batch.has_stream_rows:
        raise InputError(
            f"{objective} learns the present from stream images, method '{method}' trains on its memory alone; "
            "give another --objective or --method"
        )
    # Of a hundred rows, half of them replayed, more than the stream's reach the network: not if each is mixed with one.
    replays = parts.memory is not None and parts.batch.trained(100, 50) > 50
    if parts.objective.needs_replay and not replays:
        raise InputError(
            f"{objective} learns from stored images, method '{method}' trains on no stored image as it is; "
            "give another --objective or --method"
        )
    if parts.alignment is not None and parts.alignment.needs_replay and not replays:
        raise InputError(
            f"{type(parts.alignment).__name__} aligns stored images, method '{method}' trains on no stored image as it "
            "is; give the method a memory and a batch rule that replays, or the alignment needs_replay = False"
        )


def _said(part: Any) -> str:
    return f"the class {part.__name__}, not an instance," if isinstance(part, type) else type(part).__name__
