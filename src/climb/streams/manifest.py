"""A scenario written down: small enough to share, complete enough to replay."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from climb.errors import InputError, unknown
from climb.files import write_text
from climb.streams.listing import listing
from climb.streams.whole_number import whole_number

KINDS = ("regular", "irregular", "blurred", "iid")
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Which classes arrive together, in which order, and the seed of everything drawn later.

    The same manifest over the same labels is the same stream, on every machine.

    >>> manifest = Manifest(kind="regular", tasks=((2, 0), (1, 3)), seed=7)
    >>> print(manifest.to_json(), end="")
    {
      "format_version": 1,
      "kind": "regular",
      "seed": 7,
      "validation": 0.1,
      "blur": 0,
      "tasks": [
        [2, 0],
        [1, 3]
      ]
    }
    >>> Manifest.from_json(manifest.to_json()) == manifest
    True
    """

    kind: str
    """One of `KINDS`."""
    tasks: tuple[tuple[int, ...], ...]
    """The class ids of each task; together every class 0 .. C - 1 once. Only nominal when ``kind`` is iid."""
    seed: int
    validation: float = 0.1
    """Share of each class that is held out and never trained on."""
    blur: int = 0
    """Images on each side of a task boundary that are mixed; above 0 exactly when ``kind`` is blurred."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        _check_version(self.format_version)
        if not isinstance(self.kind, str):
            raise InputError(f"kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.kind not in KINDS:
            raise unknown("kind of stream", self.kind, KINDS)
        # What is stored is plain Python, however it was given: so it can be hashed, compared and saved.
        object.__setattr__(self, "tasks", _partition(self.tasks))
        object.__setattr__(self, "seed", whole_number(self.seed, "seed"))
        object.__setattr__(self, "validation", _share(self.validation))
        object.__setattr__(self, "blur", whole_number(self.blur, "blur", least=0))
        if self.kind == "blurred" and self.blur == 0:
            raise InputError("a blurred stream needs blur of 1 or more; kind 'regular' is the one without")
        if self.kind != "blurred" and self.blur > 0:
            raise InputError(f"blur is {self.blur} but kind is '{self.kind}'; use kind 'blurred', or blur 0")

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return sum(map(len, self.tasks))

    def to_json(self) -> str:
        """The manifest as JSON text, one task a line."""
        head = ("format_version", "kind", "seed", "validation", "blur")
        lines = [f'  "{name}": {json.dumps(getattr(self, name))},' for name in head]
        tasks = ",\n".join(f"    {json.dumps(list(task))}" for task in self.tasks)
        return "\n".join(["{", *lines, '  "tasks": [', tasks, "  ]", "}"]) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest that ``text`` describes. What has a default may be left out."""
        try:
            given: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"a manifest must be JSON: {error}") from error
        if not isinstance(given, dict):
            raise InputError(f"a manifest must be a JSON object {{...}}, not a {type(given).__name__}")
        # First of all: a newer format may well have keys and kinds that are unknown here.
        _check_version(given.get("format_version", FORMAT_VERSION))
        allowed = [field.name for field in fields(cls)]
        for key in given:
            if key not in allowed:
                raise unknown("key in the manifest", key, allowed)
        needed = [field.name for field in fields(cls) if field.default is MISSING]
        missing = [key for key in needed if key not in given]
        if missing:
            raise InputError(f"the manifest lacks {', '.join(missing)}")
        return cls(**given)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest to ``path``, wholly or not at all."""
        write_text(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """The manifest saved at ``path``."""
        try:
            text = Path(path).read_bytes().decode()
        except OSError as error:
            raise InputError(f"cannot read the manifest {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"the manifest {path} is not UTF-8 text") from error
        try:
            return cls.from_json(text)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _check_version(version: object) -> None:
    number = whole_number(version, "format_version", least=1)
    if number > FORMAT_VERSION:
        raise InputError(
            f"the manifest has format_version {number}, and this version of climb reads up to"
            f" {FORMAT_VERSION}; upgrade with: pip install --upgrade climb-ssl"
        )


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError(f"validation must be a share from 0 up to, not including, 1; not {value!r}")
    return float(value)


def _partition(tasks: object) -> tuple[tuple[int, ...], ...]:
    """``tasks`` as tuples of ints, when they hold each class 0 .. C - 1 exactly once."""
    if not isinstance(tasks, list | tuple) or not all(isinstance(task, list | tuple) for task in tasks):
        raise InputError("tasks must be a list of lists of class ids, such as [[0, 1], [2, 3]]")
    if not tasks:
        raise InputError("tasks is empty; at least one task is needed")
    empty = [number for number, task in enumerate(tasks) if not task]
    if empty:
        raise InputError(f"every task needs at least one class; without any: task {listing(empty)}")
    partition = tuple(tuple(whole_number(c, "a class id", least=0) for c in task) for task in tasks)
    count = Counter(c for task in partition for c in task)
    repeated = [c for c, times in count.items() if times > 1]
    if repeated:
        raise InputError(f"every class belongs to one task, once; given more than once: {listing(repeated)}")
    missing = set(range(len(count))) - count.keys()
    if missing:
        raise InputError(
            f"{len(count)} classes must be numbered 0 to {len(count) - 1}; missing: {listing(missing)};"
            f" out of range: {listing(count.keys() - set(range(len(count))))}"
        )
    return partition
