"""The pieces that every section is made of: headings, figures, keys of curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from climb.report.chart import Curve


def section(name: str, heading: str, *parts: str) -> str:
    """A section of the page; ``name`` is what links and the live page call it."""
    return "\n".join([f'<section id="{escape(name)}"><h2>{escape(heading)}</h2>', *parts, "</section>"])


def figure(picture: str, caption: str, *, kind: str = "panel") -> str:
    """A picture with what it shows, which may be markup."""
    return f'<figure class="{escape(kind)}">{picture}<figcaption>{caption}</figcaption></figure>'


def quiet(text: str) -> str:
    """A remark."""
    return f'<p class="quiet">{escape(text)}</p>'


def keys(curves: Sequence[Curve], *, level: str | None = None, alone: bool = False) -> str:
    """Which line is which; nothing for one line, unless it must be named when it is alone."""
    found = [_key(f"line {curve.style}", curve.name) for curve in curves]
    if level is not None:
        found.append(_key("level", level))
    return f'<ul class="keys">{"".join(found)}</ul>' if len(found) > 1 or alone else ""


def _key(style: str, name: str) -> str:
    line = f'<line class="{escape(style)}" x1="1" y1="5" x2="31" y2="5"/>'
    return f'<li><svg class="key" viewBox="0 0 32 10" aria-hidden="true">{line}</svg>{escape(name)}</li>'
