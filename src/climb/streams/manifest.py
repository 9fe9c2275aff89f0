"""The description of a stream, in a JSON file that can be shared and replayed.

A stream has *segments*, after each of which the features are evaluated, and *groups* of images, on which they are
evaluated. A segment shows one group or several. In a stream of tasks, segment t shows group t alone: the images of the
classes of task t. Other streams name the images of their groups and segments.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from climb.errors import InputError, first_few, unknown
from climb.files import write_text

KINDS = ("regular", "irregular", "blurred", "iid")
"""The kinds of stream that the classes of their tasks describe. All other kinds list their images."""
FORMAT_VERSION = 2
"""Format 2 added groups and segments. Manifests without them are written in format 1."""
Indices = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ListedGroup:
    """The images of an evaluation group, by index."""

    name: str
    train: Indices
    """Training images on which probes are trained."""
    validation: Indices = ()
    """Held-out images of the training split: no learner sees them."""
    test: Indices
    """Images of the test split."""


@dataclass(frozen=True, kw_only=True)
class ListedSegment:
    """The images of a segment, by index into the training split, in order of arrival."""

    groups: Indices
    """Numbers of the groups that it shows."""
    images: Indices


Listed = TypeVar("Listed", ListedGroup, ListedSegment)


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
    """One of `KINDS`, or the name of a scenario that lists its images."""
    tasks: tuple[Indices, ...]
    """The class ids of each task. Together they contain every class 0 .. C - 1 once. An i.i.d. stream ignores them.
    Empty if images are listed."""
    seed: int
    validation: float = 0.1
    """Share of each class that is held out for validation."""
    blur: int = 0
    """Images on each side of a task boundary that are mixed. Above 0 if ``kind`` is blurred, else 0."""
    groups: tuple[ListedGroup, ...] = ()
    """The evaluation groups, in the order in which segments show them first."""
    segments: tuple[ListedSegment, ...] = ()
    """The segments of the stream, in order."""

    def __post_init__(self) -> None:
        listed = bool(self.groups or self.segments)
        if self.kind not in KINDS and not listed:
            raise unknown("kind of stream", str(self.kind), KINDS)
        share = self.validation
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise InputError(f"validation must be a share from 0 up to, not including, 1; not {share!r}")
        # Store plain Python values, so that manifests can be hashed, compared and saved.
        object.__setattr__(self, "tasks", () if listed and self.tasks in ((), []) else _partition(self.tasks))
        object.__setattr__(self, "seed", check_int(self.seed, "seed"))
        object.__setattr__(self, "validation", float(share))
        object.__setattr__(self, "blur", check_int(self.blur, "blur", least=0))
        if (self.kind == "blurred") != (self.blur > 0):
            needs = "kind 'blurred' needs blur of 1 or more, every other kind blur 0"
            raise InputError(f"kind is '{self.kind}' and blur is {self.blur}; {needs}")
        if listed:
            if self.kind in KINDS or self.tasks:
                raise InputError(f"a stream of kind '{self.kind}' has tasks, or groups and segments; not both")
            object.__setattr__(self, "groups", tuple(_listed(ListedGroup, each, "group") for each in self.groups))
            segments = tuple(_listed(ListedSegment, each, "segment") for each in self.segments)
            object.__setattr__(self, "segments", segments)
            _check_listed(self.groups, self.segments)

    @property
    def classes(self) -> int:
        """The number of classes of all tasks."""
        return sum(map(len, self.tasks))

    @property
    def is_listed(self) -> bool:
        """Whether the manifest lists images, instead of the classes of tasks."""
        return bool(self.segments)

    def to_json(self) -> str:
        """The manifest as JSON text, with one task, group or segment a line."""
        head: dict[str, Any] = {"format_version": FORMAT_VERSION if self.is_listed else 1, "kind": self.kind}
        head |= {"seed": self.seed, "validation": self.validation}
        if self.is_listed:
            lists: dict[str, list[Any]] = {"groups": [*map(asdict, self.groups)]}
            lists["segments"] = [*map(asdict, self.segments)]
        else:
            head["blur"], lists = self.blur, {"tasks": [*self.tasks]}
        lines = [f'  "{name}": {json.dumps(value)}' for name, value in head.items()]
        for name, entries in lists.items():
            rows = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
            lines.append(f'  "{name}": [\n{rows}\n  ]')
        return "{\n" + ",\n".join(lines) + "\n}\n"

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
        if data.get("segments"):
            data.setdefault("tasks", ())
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


def _listed(kind: type[Listed], entry: object, name: str) -> Listed:
    """One group or segment, from itself or from JSON data."""
    if isinstance(entry, kind):
        return entry
    if not isinstance(entry, dict):
        raise InputError(f"a {name} of a stream must be a JSON object {{...}}, not {entry!r}")
    allowed = [field.name for field in fields(kind)]
    for key in entry:
        if key not in allowed:
            raise unknown(f"key of a {name}", key, allowed)
    if missing := [field.name for field in fields(kind) if field.default is MISSING and field.name not in entry]:
        raise InputError(f"a {name} of the stream lacks {', '.join(missing)}")
    values: dict[str, Any] = dict(entry)
    for key in values.keys() - {"name"}:
        values[key] = _indices(values[key], f"{key} of a {name}")
    return kind(**values)


def _indices(values: object, name: str) -> Indices:
    if not isinstance(values, list | tuple):
        raise InputError(f"{name} must be a list of indices, not {type(values).__name__}")
    return tuple(check_int(value, f"an index in {name}", least=0) for value in values)


def _check_listed(groups: Sequence[ListedGroup], segments: Sequence[ListedSegment]) -> None:
    """Reject groups without images, images that arrive twice or are held out, and groups out of order."""
    for group in groups:
        if not isinstance(group.name, str) or not group.name:
            raise InputError(f"a group needs a name; given {group.name!r}")
        if empty := [part for part in ("train", "test") if not getattr(group, part)]:
            raise InputError(f"group '{group.name}' has no {' and no '.join(empty)} images; every group needs both")
    count = Counter(chain.from_iterable(segment.images for segment in segments))
    if repeated := [image for image, times in count.items() if times > 1]:
        raise InputError(f"a training image arrives once; more than once: {join_numbers(repeated)}")
    if held_out := count.keys() & set(chain.from_iterable(group.validation for group in groups)):
        raise InputError(f"held-out images must not arrive; in a segment: {join_numbers(held_out)}")
    for number, segment in enumerate(segments):
        if not segment.images or not segment.groups:
            raise InputError(f"segment {number} shows {len(segment.images)} images of {len(segment.groups)} groups")
    shown = list(dict.fromkeys(chain.from_iterable(segment.groups for segment in segments)))
    if shown != list(range(len(groups))):
        rule = "segments must show every group, first group 0, then group 1, and so on"
        raise InputError(f"{rule}; there are {len(groups)} groups, shown first in the order {join_numbers(shown)}")


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
