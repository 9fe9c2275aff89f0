"""A result: a dictionary that a notebook shows as a table."""

from __future__ import annotations

import numbers
from html import escape
from typing import Any


class Result(dict[str, Any]):
    """What a run, a probe or a learner found.

    >>> result = Result(linear_accuracy=71.25, classes=4, versions={"torch": "2"})
    >>> result.rows()
    [('linear accuracy', '71.25'), ('classes', '4')]
    >>> "<td>71.25</td>" in result._repr_html_()
    True
    """

    def rows(self) -> list[tuple[str, str]]:
        """What is said in one line each: numbers and texts; matrices, versions and settings are left out."""
        return [
            (name.replace("_", " "), _said(name, value))
            for name, value in self.items()
            if isinstance(value, str | bool | numbers.Real)
        ]

    def _repr_html_(self) -> str:
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.rows())
        return f"<table>{''.join(lines)}</table>"


def _said(name: str, value: str | bool | numbers.Real) -> str:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(value) if name == "seed" else f"{int(value):,}"
    return f"{float(value):.2f}"
