"""The paper's figures, drawn from finished runs, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from climb.bench.collect import Found
from climb.bench.figures.canvas import Canvas
from climb.bench.figures.dynamics import dynamics
from climb.bench.figures.irregular import irregular
from climb.bench.figures.wallclock import wallclock
from climb.errors import InputError, unknown

FIGURES: dict[str, Callable[[Sequence[Found]], Canvas]] = {
    "figure-wallclock": wallclock,
    "figure-dynamics": dynamics,
    "figure-irregular": irregular,
}


def draw_figure(name: str, runs: Sequence[Found], folder: str | Path) -> list[Path]:
    """Draw one of `FIGURES` from these runs into ``folder``, made if need be; the two files written."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    if not runs:
        raise InputError(f"{name} needs at least one finished run; none was given")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return FIGURES[name](runs).save(folder / name)


__all__ = ["FIGURES", "draw_figure"]
