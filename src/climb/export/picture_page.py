"""Pages of groups of images, for `climb select` and `climb duplicates`: self-contained HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import torch

from climb.export.search import SearchResult, own_file
from climb.export.search_page import PAGE_STYLE, picture_figure, printable
from climb.files import write_text
from climb.report.markup import document, remark
from climb.report.page import STYLE

MOST_PICTURES = 500
"""Most images on a page; the list beside it has all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """One image of a page."""

    path: str
    heading: str
    """A short text, such as a number."""
    pixels: torch.Tensor | None = None
    """uint8 (3, H, W), for an image in a memory."""


def write_pictures(path: str | Path, title: str, text: str, groups: Iterable[Sequence[Shown]]) -> Path:
    """Write a page with a row of pictures for each group, and return its path."""
    path = Path(path).expanduser()
    rows, shown, left = [], 0, 0
    for group in groups:
        if shown + len(group) > MOST_PICTURES and shown:
            left += len(group)
            continue
        figures = (
            picture_figure(
                SearchResult(
                    name=one.path,
                    similarity=0.0,
                    path=None if one.pixels is not None else own_file(one.path),
                    pixels=one.pixels,
                ),
                one.heading,
            )
            for one in group
        )
        rows.append(f'<div class="gallery">\n{"".join(figures)}</div>')
        shown += len(group)
    more = f"The page shows {shown:,} images; the list has {left:,} more." if left else ""
    body = "\n".join([f"<h1>{escape(printable(title))}</h1>", remark(text), remark(more), *rows])
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>\n<style>{STYLE}{PAGE_STYLE}</style>'
    write_text(path, document(printable(title), body, head=head))
    return path
