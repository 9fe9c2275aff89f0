"""Declarations of settings: what is derived from a field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from climb.errors import InputError
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    LearnOptions,
    MemoryConfig,
    StreamConfig,
)
from climb.settings.fields import check_settings, docstrings, render_reference, setting, settings_of

SECTIONS = [DataConfig, StreamConfig, LearnerConfig, MemoryConfig, EvaluationConfig, Execution, LearnOptions]


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A part."""

    share: float = setting(0.5, least=0, below=1, symbol="s")
    """How much of it;
    over two lines."""


@dataclass(frozen=True, kw_only=True)
class Outer:
    """The whole. With a second sentence."""

    count: int | None = setting(None, least=1, most=9)
    """How many."""
    rate: float = setting(0.1, above=0)
    """How fast."""
    seconds: float = setting(60.0, least=0, finite=False)
    """How often."""
    colour: Literal["red", "blue"] = setting("red", flag="paint")
    """Which | colour."""
    fast: bool = setting(False)
    """Whether it is fast."""
    hidden: str = setting("", flag=False)
    """No option."""
    inner: Inner = field(default_factory=Inner)
    """The part."""


def test_everything_is_read_from_the_field() -> None:
    settings = settings_of(Outer)
    assert list(settings) == ["count", "rate", "seconds", "colour", "fast", "hidden"]
    count, colour = settings["count"], settings["colour"]
    assert (count.kind, count.default, count.text, str(count.bounds)) == (
        int,
        None,
        "How many.",
        "in 1..9",
    )
    assert (colour.kind, colour.choices, colour.option) == (str, ("red", "blue"), "paint")
    assert settings["rate"].section is Outer
    assert not settings["hidden"].has_option
    share = settings_of(Inner)["share"]
    assert (share.text, share.symbol) == ("How much of it; over two lines.", "s")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, r"count must be in 1\.\.9; given 0$"),
        ({"count": 2.0}, r"count must be a whole number; given 2\.0$"),
        ({"count": True}, "count must be a whole number; given True$"),
        ({"rate": 0}, "rate must be above 0 and finite; given 0$"),
        ({"rate": float("inf")}, "rate must be above 0 and finite; given inf$"),
        ({"rate": "1"}, "rate must be a number; given '1'$"),
        ({"rate": None}, "rate must be a number; given None$"),
        ({"seconds": float("nan")}, "seconds must be at least 0; given nan$"),
        ({"colour": "rod"}, "unknown paint 'rod'; did you mean 'red'[?] Allowed: blue, red$"),
        ({"inner": Inner(share=1)}, "share must be at least 0 and below 1; given 1$"),
    ],
)
def test_values_that_the_declaration_does_not_allow(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_settings(Outer(**values))


def test_values_that_it_allows() -> None:
    check_settings(Outer())
    check_settings(Outer(count=9, rate=3, seconds=float("inf"), colour="blue", inner=Inner(share=0)))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_docstring_and_an_allowed_default(section: type) -> None:
    assert all(declared.text.endswith(".") for declared in settings_of(section).values())
    check_settings(section())


def test_a_class_without_source_has_no_docstrings() -> None:
    unsourced = type("Unsourced", (), {"__module__": "nowhere_in_particular"})
    assert docstrings(unsourced) == {}


def test_the_reference_is_a_table_of_each_class() -> None:
    assert render_reference([Outer, Inner]).splitlines() == [
        "### Outer",
        "",
        "The whole. With a second sentence.",
        "",
        "| setting | default | allowed | meaning |",
        "|---|---|---|---|",
        "| `count`, `--count` |  | in 1..9 | How many. |",
        "| `rate`, `--rate` | `0.1` | above 0 | How fast. |",
        "| `seconds`, `--seconds` | `60.0` | at least 0 | How often. |",
        "| `colour`, `--paint` | `red` | `red`, `blue` | Which \\| colour. |",
        "| `fast`, `--fast` | `false` |  | Whether it is fast. |",
        "| `hidden` |  |  | No option. |",
        "",
        "### Inner",
        "",
        "A part.",
        "",
        "| setting | default | allowed | meaning |",
        "|---|---|---|---|",
        "| `share`, `--share` | `0.5` | at least 0 and below 1 | How much of it; over two lines. |",
    ]


def test_the_reference_of_the_real_settings_names_every_one() -> None:
    page = render_reference(SECTIONS)
    assert all(f"| `{name}`" in page for section in SECTIONS for name in settings_of(section))
