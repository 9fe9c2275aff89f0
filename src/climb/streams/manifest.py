"""The description of a stream, in a small JSON file that can be shared and replayed."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from climb.errors import InputError, first_few, unknown
from climb.files import write_text

KINDS = ("regular", "irregular", "blurred", "iid")
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The classes of each task, the order of the tasks, and the seed of all random choices.

    The same manifest with the same labels gives the same stream on every machine.

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
    """The class ids of each task. Together they contain every class 0 .. C - 1 once. An i.i.d. stream ignores them."""
    seed: int
    validation: float = 0.1
    """Share of each class that is held out for validation."""
    blur: int = 0
    """Images on each side of a task boundary that are mixed. Above 0 if ``kind`` is blurred, else 0."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of stream", str(self.kind), KINDS)
        share = self.validation
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise InputError(f"validation must be a share from 0 up to, not including, 1; not {share!r}")
        # Store plain Python values, so that manifests can be hashed, compared and saved.
        object.__setattr__(self, "tasks", _partition(self.tasks))
        object.__setattr__(self, "seed", check_int(self.seed, "seed"))
        object.__setattr__(self, "validation", float(share))
        object.__setattr__(self, "blur", check_int(self.blur, "blur", least=0))
        if (self.kind == "blurred") != (self.blur > 0):
            needs = "kind 'blurred' needs blur of 1 or more, every other kind blur 0"
            raise InputError(f"kind is '{self.kind}' and blur is {self.blur}; {needs}")

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return sum(map(len, self.tasks))

    def to_json(self) -> str:
        """The manifest as JSON text, with one task a line."""
        head = {"format_version": FORMAT_VERSION, **vars(self)}
        tasks = ",\n".join(f"    {json.dumps(list(task))}" for task in head.pop("tasks"))
        lines = "".join(f'  "{name}": {json.dumps(value)},\n' for name, value in head.items())
        return f'{{\n{lines}  "tasks": [\n{tasks}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest in ``text``. Keys with a default may be missing."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"a manifest must be JSON: {error}") from error
        if not isinstance(data, dict):
            raise InputError(f"a manifest must be a JSON object {{...}}, not a {type(data).__name__}")
        # First: a newer format may have unknown keys and kinds.
        version = check_int(data.pop("format_version", FORMAT_VERSION), "format_version", least=1)
        if version > FORMAT_VERSION:
            reads = f"this climb reads up to {FORMAT_VERSION}; upgrade with: pip install --upgrade climb-ssl"
            raise InputError(f"the manifest has format_version {version}, {reads}")
        allowed = [field.name for field in fields(cls)]
        for key in data:
            if key not in allowed:
                raise unknown("key in the manifest", key, allowed)
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in data]
        if missing:
            raise InputError(f"the manifest lacks {', '.join(missing)}")
        return cls(**data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest to ``path``, atomically."""
        write_text(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """The manifest saved at ``path``."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # an InputError is a ValueError, and so is an error of the encoding
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read the manifest {path}: {reason}") from error


def _partition(tasks: object) -> tuple[tuple[int, ...], ...]:
    """``tasks`` as tuples of ints. They must contain each class 0 .. C - 1 exactly once."""
    if not isinstance(tasks, list | tuple) or not all(isinstance(task, list | tuple) for task in tasks):
        raise InputError("tasks must be a list of lists of class ids, such as [[0, 1], [2, 3]]")
    if not tasks:
        raise InputError("tasks is empty; at least one task is needed")
    empty = [number for number, task in enumerate(tasks) if not task]
    if empty:
        raise InputError(f"every task needs at least one class; tasks without a class: {join_numbers(empty)}")
    partition = tuple(tuple(check_int(c, "a class id", least=0) for c in task) for task in tasks)
    count = Counter(chain(*partition))
    expected = set(range(len(count)))
    repeated = [c for c, times in count.items() if times > 1]
    problems = {"more than once": repeated, "missing": expected - count.keys(), "out of range": count.keys() - expected}
    wrong = [f"{problem}: {join_numbers(numbers)}" for problem, numbers in problems.items() if numbers]
    if wrong:
        raise InputError(f"tasks must list each class 0 to {len(count) - 1} once; {'; '.join(wrong)}")
    return partition


def check_int(value: object, name: str, *, least: int | None = None) -> int:
    """``value`` as a plain int; an `InputError` about ``name`` if it is not an integer, or below ``least``.

    >>> check_int(np.int64(3), "tasks", least=1)
    3
    """
    # bool is a subclass of int, but in a manifest, true is a mistake.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise InputError(f"{name} must be {least} or more, not {value}")
    return int(value)


def join_numbers(numbers: Iterable[int]) -> str:
    """The first ten of ``numbers``, sorted, and the count of the others.

    >>> join_numbers([3, 1, 2]), join_numbers(range(13))
    ('1, 2, 3', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more')
    """
    return first_few(sorted(numbers), limit=10)
