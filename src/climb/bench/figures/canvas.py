"""What the figures share: panels without a display, colours told apart by everyone, files that do not change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from climb.bench.layouts import find_layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Okabe and Ito's palette, which the colour-blind can read."""
MARKERS = "os^Dv<>P"
BOUNDARY: dict[str, Any] = {"color": "#888888", "lw": 0.6, "ls": "--", "alpha": 0.7, "zorder": 0}
"""How the end of a task is drawn."""

LABELS = {row.method: row.label for row in find_layout("table-regular").rows}
"""Methods as the paper writes them, in its order."""


class Canvas:
    """A figure of rows by columns of panels."""

    def __init__(self, rows: int, columns: int, *, width: float, height: float) -> None:
        # The object-oriented interface: no pyplot, so no global state and no display.
        from matplotlib.figure import Figure

        self.figure: Any = Figure(figsize=(width, height), layout="constrained", dpi=150)
        self.panels: list[Axes] = list(self.figure.subplots(rows, columns, squeeze=False).flat)
        for panel in self.panels:
            panel.spines[["top", "right"]].set_visible(False)

    def save(self, stem: Path) -> list[Path]:
        """Write ``stem``.png and ``stem``.svg; the same figure gives the same bytes."""
        import matplotlib

        png, svg = stem.parent / f"{stem.name}.png", stem.parent / f"{stem.name}.svg"
        # Letters stay letters, so that the text of an SVG can be searched and edited.
        with matplotlib.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "none"}):
            self.figure.savefig(png)
            self.figure.savefig(svg, metadata={"Date": None})
        return [png, svg]


def label_of(method: str) -> str:
    """A method as the paper writes it, or by its name."""
    return LABELS.get(method, method)


def in_order(methods: set[str]) -> list[str]:
    """Methods in the paper's order, others after them by name.

    >>> in_order({"zeta", "climb", "minred"})
    ['minred', 'climb', 'zeta']
    """
    known = list(LABELS)
    return sorted(methods, key=lambda name: (known.index(name) if name in known else len(known), name))
