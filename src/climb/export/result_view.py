"""A result as a notebook shows it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class ResultView:
    """The numbers of a result (of `climb.runs.execute`, of `probe`, of a `result.json`) as a table.

    >>> view = ResultView({"linear_accuracy": 71.25, "classes": 4})
    >>> print(view)
    linear accuracy  71.25
    classes              4
    >>> "<td>71.25</td>" in view._repr_html_()
    True
    """

    values: Mapping[str, Any]

    def rows(self) -> list[tuple[str, str]]:
        """What is said in one line each: numbers and texts; matrices, versions and settings are left out."""
        return [
            (name.replace("_", " "), _said(name, value))
            for name, value in self.values.items()
            if isinstance(value, str | bool | numbers.Real)
        ]

    def __str__(self) -> str:
        left = max((len(name) for name, _ in self.rows()), default=0)
        right = max((len(text) for _, text in self.rows()), default=0)
        return "\n".join(f"{name:<{left}}  {text:>{right}}" for name, text in self.rows())

    def _repr_html_(self) -> str:
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.rows())
        return f"<table>{''.join(lines)}</table>"


def _said(name: str, value: str | bool | numbers.Real) -> str:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(value) if name == "seed" else f"{int(value):,}"
    return f"{float(value):.2f}"
