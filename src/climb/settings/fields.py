"""One declaration of a setting: a dataclass field with a docstring, bounds and choices.

Checks, error messages, command-line flags, the arguments of `climb.Climb`, the settings that ``climb tune`` may vary
and the reference documentation read these declarations through `settings_of`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from climb.arguments import check_value, shown
from climb.errors import InputError, unknown

_KEY = "climb.setting"
Config = TypeVar("Config")
Function = TypeVar("Function", bound=Callable[..., Any])
_UNSET: Any = object()


def setting(default: Any, **declared: Any) -> Any:
    """A dataclass field that is a setting. ``declared`` are fields of `Setting`; choices are declared by its type."""
    return dataclasses.field(default=default, metadata={_KEY: Setting(default=default, **declared)})


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A declared setting: the arguments of `setting`, and what is derived from its field."""

    default: Any = None
    """Value of a setting that is not given."""
    least: float | None = None
    """Lowest number."""
    above: float | None = None
    """Exclusive lower bound."""
    most: float | None = None
    """Highest number."""
    below: float | None = None
    """Exclusive upper bound."""
    finite: bool = True
    """Whether infinity is refused."""
    names: str | None = None
    """What the text names, such as "method": help lists these names."""
    flag: str | Literal[False] | None = None
    """Name of the option, if it differs from the field's; False for a field without an option."""
    symbol: str | None = None
    """The paper's symbol, which ``climb tune --over`` accepts."""
    preset: bool = False
    """Whether presets, methods and objectives choose the value unless it is given."""
    added: Any = _UNSET
    """Neutral value of a setting that was added after the first release: that of older folders. It does not enter
    `RunConfig.config_hash`, so they keep their identity."""

    name: str = ""
    """Name of the field."""
    section: type = object
    """Dataclass that declares it."""
    hint: Any = None
    """Type of its values."""
    text: str = ""
    """Docstring of the field."""

    @property
    def option(self) -> str:
        """Its name in Python calls and, with dashes, on the command line."""
        return self.flag or self.name

    @property
    def has_option(self) -> bool:
        """Whether users may give it by itself, on the command line and to `climb.resolve.resolve`."""
        return self.flag is not False and self.kind in (bool, int, float, str, tuple)

    @property
    def kind(self) -> type:
        """bool, int, float, str or another class; without "or None"."""
        kinds = [kind for kind in _members(self.hint) if kind is not type(None)]
        return str if get_origin(kinds[0]) is Literal else get_origin(kinds[0]) or kinds[0]

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed texts; () if its type does not list them."""
        return next((get_args(kind) for kind in _members(self.hint) if get_origin(kind) is Literal), ())

    @property
    def is_added(self) -> bool:
        """Whether it is younger than the first release."""
        return self.added is not _UNSET

    @property
    def bounds(self) -> str:
        """The limits of a number in words, such as "at least 0 and below 1"; "" without limits."""
        if self.least is not None and self.most is not None:
            return f"in {self.least:g}..{self.most:g}"
        limits = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return " and ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)

    def check(self, value: Any) -> None:
        """Refuse a value of another type, outside the bounds or not among the choices."""
        if value is None and type(None) in _members(self.hint):
            return
        if self.choices and not (isinstance(value, str) and value in self.choices):
            raise unknown(self.option.replace("_", " "), shown(value).strip("'"), self.choices)
        if self.kind is not dict:
            check_value(self.option, value, self.hint)
        if self.kind not in (int, float):
            return
        if not self.allows(value):
            open_ended = self.kind is float and self.finite and self.most is self.below is None
            limits = [self.bounds] * bool(self.bounds) + ["finite"] * open_ended
            raise InputError(f"{self.option} must be {' and '.join(limits)}; given {value}")

    def allows(self, value: Any) -> bool:
        """Whether a number is within the limits. "Not a number" never is."""
        return (
            (math.isfinite(value) if self.finite else not math.isnan(value))
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def _cached(function: Function) -> Function:
    """`functools.cache` for functions of a class, which mypy does not take for hashable."""
    return cast(Function, functools.cache(function))


@_cached  # Python evaluates type hints anew each time, and a table reads thousands of configurations
def settings_of(section: type) -> dict[str, Setting]:
    """The settings of a configuration class by field name. Nested configurations are not among them."""
    hints, texts = get_type_hints(section), docstrings(section)
    return {
        name: dataclasses.replace(
            field.metadata.get(_KEY, Setting()), name=name, section=section, hint=hints[name], text=texts.get(name, "")
        )
        for name, field in section.__dataclass_fields__.items()  # type: ignore[attr-defined]
        if not dataclasses.is_dataclass(hints[name])
    }


@_cached
def sections_of(section: type) -> dict[str, type]:
    """The nested configuration classes by field name."""
    return {name: hint for name, hint in get_type_hints(section).items() if dataclasses.is_dataclass(hint)}  # type: ignore[misc]


def check_settings(config: Any) -> None:
    """Refuse a value that its declaration does not allow, here and in nested configurations.

    >>> from climb.settings.config import LearnerConfig
    >>> check_settings(dataclasses.replace(LearnerConfig(), image_size="32"))
    Traceback (most recent call last):
    climb.errors.InputError: image_size must be a whole number; given '32'
    """
    for name, declared in settings_of(type(config)).items():
        declared.check(getattr(config, name))
    for name in sections_of(type(config)):
        check_settings(getattr(config, name))


def pop_settings(section: type[Config], options: dict[str, Any]) -> Config:
    """Take the settings of one class out of some options, check them, and build the class. None means "not given"."""
    values = {
        declared.name: value
        for declared in settings_of(section).values()
        if (value := options.pop(declared.option, None)) is not None
    }
    config = section(**values)
    check_settings(config)
    return config


def with_plain_numbers(config: Any) -> Any:
    """The same configuration with Python's own numbers, of the types of its fields: 1.0 in place of 1."""
    changes = {name: with_plain_numbers(getattr(config, name)) for name in sections_of(type(config))}
    kinds = {int: Integral, float: Real}
    for name, declared in settings_of(type(config)).items():
        value = getattr(config, name)
        if type(value) is not bool and isinstance(value, kinds.get(declared.kind, ())):
            changes[name] = declared.kind(value)
    return dataclasses.replace(config, **changes)


def docstrings(section: type) -> dict[str, str]:
    """The strings below the fields of a class, each on one line; {} if there is no source."""
    try:
        tree = _parsed(section.__module__)
    except (OSError, ImportError):
        return {}
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == section.__name__)
    return {
        before.target.id: " ".join(after.value.value.split())
        for before, after in itertools.pairwise(body)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }  # fmt: skip


@functools.cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def render_reference(sections: Iterable[type]) -> str:
    """The reference of some configuration classes as Markdown: a table each, with every setting, default and bound."""
    parts = []
    for section in sections:
        rows = [_row(declared) for declared in settings_of(section).values()]
        head = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
        summary = inspect.cleandoc(section.__doc__ or "").split("\n\n")[0]
        parts.append("\n".join([f"### {section.__name__}", "", " ".join(summary.split()), "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(declared: Setting) -> str:
    option = f", `--{declared.option.replace('_', '-')}`" if declared.has_option else ""
    default = str(declared.default).lower() if isinstance(declared.default, bool) else str(declared.default)
    allowed = ", ".join(f"`{choice}`" for choice in declared.choices) or declared.bounds
    cells = (f"`{declared.name}`{option}", f"`{default}`" if declared.default not in (None, (), {}, "") else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, allowed, declared.text)) + " |"
