"""Search results to look at: a self-contained HTML page, or copies of the images."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from PIL import Image

from climb.arguments import checked
from climb.errors import InputError
from climb.export.search import SearchResult
from climb.files import write_atomic, write_text
from climb.images.convert import shrink
from climb.images.decode import ImageError, decode_rgb, read_image_file
from climb.report.markup import document, figure
from climb.report.memory_map import data_uri
from climb.report.page import STYLE

LONGEST = 235
"""Most bytes of the original name in a copy's name. File systems allow 255 with rank and similarity in front."""
SIDE = 192
"""Longest side of an image on the page, in pixels."""

_REMEDY = "embed the images again, or search from the same folder"
PAGE_STYLE = """
.theme { display: none; }
.gallery .sheet { cursor: auto; }
.gallery img { width: 100%; height: 12rem; object-fit: contain; }
img.small { image-rendering: pixelated; }
"""


@checked()
def write_page(path: str | Path, image: str | Path, results: Sequence[SearchResult]) -> Path:
    """Write a self-contained page with the query and the results, and return its path."""
    path = Path(path).expanduser()
    figures = [_figure(_read(Path(image).expanduser()), "query", printable(str(image)))]
    figures += [_figure(_picture(one), f"{one.similarity:.3f}", printable(one.name)) for one in results]
    body = f"""<h1>The {len(results)} images nearest to {escape(printable(Path(image).name))}</h1>
<p>The number is the similarity: 1 for the query itself, about 0 for an image unlike it.</p>
<div class="gallery">
{"".join(figures)}</div>"""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>\n<style>{STYLE}{PAGE_STYLE}</style>'
    write_text(path, document(f"Nearest to {printable(str(image))}", body, head=head))
    return path


def printable(name: str) -> str:
    """A name of a file as text: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


@checked()
def copy_found(folder: str | Path, results: Sequence[SearchResult]) -> list[Path]:
    """Copy the results into a folder, named by rank. Images of a memory are written as PNG."""
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out must be a folder")
    folder.mkdir(parents=True, exist_ok=True)
    copies = []
    for rank, one in enumerate(results, start=1):
        name = one.path.name if one.path is not None else f"{one.name.replace(' ', '-')}.png"
        while len(os.fsencode(name)) > LONGEST:
            name = name[1:]  # the end has the suffix
        copy = folder / f"{rank:03d}-{one.similarity:.3f}-{name}"
        if one.path is not None and not one.path.is_file():
            raise InputError(f"{one.path} does not exist any more: {_REMEDY}")
        if one.path is not None:
            write_atomic(copy, partial(shutil.copyfile, one.path))
        elif (shown := _picture(one)) is not None:
            write_atomic(copy, partial(shown.save, format="PNG"))
        else:
            raise InputError(f"{one.name} is not a separate file and cannot be copied; omit --out")
        copies.append(copy)
    return copies


def _picture(one: SearchResult) -> Image.Image | None:
    """The image to show; None for one inside an archive or a video."""
    if one.pixels is not None:
        return Image.fromarray(one.pixels.permute(1, 2, 0).contiguous().numpy())
    return None if one.path is None else _read(one.path)


def _read(path: Path) -> Image.Image:
    try:
        return decode_rgb(read_image_file(str(path)), SIDE, shrink).image
    except ImageError as error:
        raise InputError(f"cannot show {path} ({error}): {_REMEDY}") from error


def picture_figure(one: SearchResult, heading: str) -> str:
    """The figure of one image, without a picture if it cannot be read any more."""
    try:
        shown = _picture(one)
    except InputError:
        shown = None
    return _figure(shown, escape(heading), printable(one.name))


def _figure(shown: Image.Image | None, heading: str, caption: str) -> str:
    return figure(_image(shown, caption), f"<b>{heading}</b> {escape(caption)}", kind="sheet")


def _image(shown: Image.Image | None, caption: str) -> str:
    if shown is None:
        return ""
    small = max(shown.size) < SIDE
    shown.thumbnail((SIDE, SIDE))
    body = io.BytesIO()
    shown.save(body, "WEBP", quality=85, lossless=small)
    kind = ' class="small"' if small else ""
    return f'<img{kind} alt="{escape(caption)}" src="{data_uri(body.getvalue())}"/>'
