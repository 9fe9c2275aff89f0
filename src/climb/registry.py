"""Parts by name. One class serves methods, objectives, networks, memories, batch rules, alignments and views.

Built-in parts are imported at the first look-up. A package adds its own by the entry point group ``climb.methods``,
a single file by `load_file` (``--import FILE``).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from climb.arguments import checked
from climb.errors import InputError, unknown

GROUP = "climb.methods"
HOW = f"and parts of your own: by --import FILE, or by an installed package under the entry point group {GROUP}"
NAME = re.compile(r"\w[\w.+-]*")

Entry = TypeVar("Entry")
Part = TypeVar("Part")


@dataclass(eq=False)
class Registry(Mapping[str, Entry]):
    """Entries of one kind by name.

    >>> shapes = Registry[type]("shape", accepts=lambda part: isinstance(part, type), expects="a class")
    >>> @shapes.register("square")
    ... class Square: ...
    >>> shapes["square"].__name__, list(shapes)
    ('Square', ['square'])
    """

    kind: str
    """What an entry is called in messages."""
    builtin: Sequence[str] = ()
    """Modules that register the entries of this package; ``package.*`` stands for all modules in it."""
    accepts: Callable[[Any], bool] = callable
    """Whether `register` takes an object."""
    expects: str = "a function"
    """What `register` takes, in words."""
    _entries: dict[str, Entry] = field(default_factory=dict, init=False)
    _sources: dict[str, Any] = field(default_factory=dict, init=False)

    def __getitem__(self, name: str) -> Entry:
        self._load()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(list(self._entries))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def register(self, name: str, entry: Callable[[Any], Entry] | None = None) -> Callable[[Part], Part]:
        """A decorator that stores a function or class under ``name``, or the ``entry`` made of it."""

        def decorate(part: Part) -> Part:
            if not self.accepts(part):
                raise InputError(f"{self.kind} '{name}' is {part!r}; it must be {self.expects}")
            self.add(name, entry(part) if entry else part, source=part)  # type: ignore[arg-type]  # `accepts` has checked
            return part

        return decorate

    def add(self, name: str, entry: Entry, *, source: Any) -> None:
        """Store an entry. A name that belongs to another ``source`` (function or class) is refused."""
        check_name(self.kind, name)
        if not getattr(source, "__module__", "").startswith("climb."):
            self._load()  # so that no built-in name is free yet
        if name in self._sources:
            old, new = _place(self._sources[name]), _place(source)
            if old != new:  # equal: its module was imported again
                article = "an" if self.kind[0] in "aeiou" else "a"
                raise InputError(f"there is {article} {self.kind} '{name}' already ({old}); give {new} another name")
        self._entries[name], self._sources[name] = entry, source

    def find(self, name: str, *, also: Sequence[str] = ()) -> Entry:
        """The entry ``name``, built in or of an installed package; ``also`` lists further valid names for the error.

        >>> numbers = Registry[int]("number")
        >>> numbers.add("one", 1, source=int)
        >>> numbers.find("on")
        Traceback (most recent call last):
        climb.errors.InputError: unknown number 'on'; did you mean 'one'? Allowed: one; and parts of your own: by
        --import FILE, or by an installed package under the entry point group climb.methods
        """
        broken = [] if name in self else load_plugins()
        if name not in self:
            message = f"{unknown(self.kind, name, [*self, *also])}; {HOW}"
            raise InputError("\n".join([message, *(f"It may be missing because {reason}" for reason in broken)]))
        return self._entries[name]

    @contextmanager
    def scoped(self, **entries: Entry) -> Iterator[None]:
        """Inside, ``entries`` replace those of the same names; on leaving, all is as it was before."""
        self._load()
        before = (dict(self._entries), dict(self._sources))
        self._entries.update(entries)
        try:
            yield
        finally:
            self._entries, self._sources = before

    def _load(self) -> None:
        # No flag for "loaded": another thread may still be importing, and then `import_module` waits for it.
        for name in self.builtin:
            for module in _modules(name):
                importlib.import_module(module)


@cache
def _modules(name: str) -> list[str]:
    package, is_pattern, _ = name.partition(".*")
    if not is_pattern:
        return [name]
    folder = importlib.import_module(package).__path__
    return [f"{package}.{module.name}" for module in pkgutil.iter_modules(folder)]


def load_plugins() -> list[str]:
    """Import the modules that installed packages name under ``climb.methods``, so that they register their parts.

    Returns:
        One sentence for each package that cannot be imported. The others are loaded all the same.
    """
    broken = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:  # third-party code may fail in any way
            package = "a package" if entry.dist is None else f"the package '{entry.dist.name}'"
            broken.append(
                f"{package} names '{entry.value}' under {GROUP}, which cannot be imported: "
                f"{type(error).__name__}: {error}. Mend or uninstall it: what it would register after that is missing"
            )
    return broken


@checked()
def load_file(path: str | Path) -> None:
    """Import a Python file, once in a process, so that it registers its parts. It may import files beside it."""
    file = Path(path).expanduser().resolve()
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"cannot import '{path}': it must be an existing Python file, such as my_parts.py")
    name = f"climb_file_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{file.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None  # both exist for an existing .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        where = "" if line is None else f" (line {line})"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"cannot import '{path}'{where}: {reason}") from error


def check_name(kind: str, name: str) -> None:
    """Refuse a name that cannot be part of a folder's name.

    >>> check_name("method", "../mine")
    Traceback (most recent call last):
    climb.errors.InputError: a method cannot be called '../mine'; use letters, digits, '_', and after the
    first of them '.', '+', '-'
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"a {kind} cannot be called {name!r}; use letters, digits, '_', and after the first of them '.', '+', '-'"
        )


def _place(source: Any) -> str:
    """Where a function or class is defined; the `repr` of an object without a name, such as a `functools.partial`."""
    return f"{source.__module__}.{source.__qualname__}" if hasattr(source, "__qualname__") else repr(source)


def first_line(text: str | None) -> str:
    """The first line of a docstring; "" if there is none.

    >>> first_line("Keeps the oldest images.  And more."), first_line("  \\n"), first_line(None)
    ('Keeps the oldest images.  And more.', '', '')
    """
    return next(iter((text or "").strip().splitlines()), "")
