"""What a search found, to look at: one page that needs nothing else, or copies of the images."""

from __future__ import annotations

import base64
import io
import os
import shutil
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from PIL import Image

from climb.errors import InputError
from climb.export.search import Found
from climb.files import write_atomic, write_text
from climb.sources.decode import picture, read_file
from climb.sources.item import Unusable

LONGEST = 235
"""Bytes of a copy's own name: systems allow 255, with its place and similarity in front."""
SIDE = 192
"""Longest side of a picture on the page, in pixels."""

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1c2024; --quiet: #5c6670; --rule: #d9dee3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --text: #e6e9ec; --quiet: #9aa4ae; --rule: #333a41; }
}
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); }
figure { margin: 0; padding: 0.5rem; border: 1px solid var(--rule); border-radius: 8px; break-inside: avoid; }
img { display: block; width: 100%; height: 12rem; object-fit: contain; }
img.small { image-rendering: pixelated; }
figcaption { color: var(--quiet); font-size: 0.875rem; overflow-wrap: anywhere; }
b { color: var(--text); font-variant-numeric: tabular-nums; }
"""


def write_page(path: str | Path, image: str | Path, found: Sequence[Found]) -> Path:
    """Write a page with the image asked for and those found, all inside the one file; where it is."""
    path = Path(path).expanduser()
    asked = _figure(_opened(Path(image).expanduser()), "asked for", str(image))
    figures = [_figure(_picture(one), f"{one.similarity:.3f}", one.name) for one in found]
    write_text(
        path,
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Nearest to {escape(str(image))}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>The {len(found)} images nearest to {escape(Path(image).name)}</h1>
<p>Number: cosine between the features, 1 for the image itself.</p>
<main>
{asked}
{"".join(figures)}</main>
</body>
</html>
""",
    )
    return path


def copy_found(folder: str | Path, found: Sequence[Found]) -> list[Path]:
    """Copy the images found into a folder, names in order of nearness; images of a memory are written as PNG."""
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out must name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    copies = []
    for place, one in enumerate(found, start=1):
        name = one.path.name if one.path is not None else f"{one.name.replace(' ', '-')}.png"
        while len(os.fsencode(name)) > LONGEST:
            name = name[1:]  # its end says of which kind it is
        copy = folder / f"{place:03d}-{one.similarity:.3f}-{name}"
        if one.path is not None:
            _copy(one.path, copy)
        else:
            shown = _picture(one)
            if shown is None:
                raise InputError(f"{one.name} is no file of its own and cannot be copied; leave --out away")
            write_atomic(copy, partial(shown.save, format="PNG"))
        copies.append(copy)
    return copies


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise InputError(f"{source} is not there any more: embed the images again, or search from the same folder")
    write_atomic(target, lambda temporary: shutil.copyfile(source, temporary))


def _picture(one: Found) -> Image.Image | None:
    """What there is to show: nothing of an image inside an archive or a video."""
    if one.pixels is not None:
        return Image.fromarray(one.pixels.permute(1, 2, 0).contiguous().numpy())
    return None if one.path is None else _opened(one.path)


def _opened(path: Path) -> Image.Image:
    try:
        return picture(read_file(str(path)), SIDE)
    except Unusable as error:
        raise InputError(
            f"cannot show {path} ({error}): embed the images again, or search from the same folder"
        ) from error


def _figure(shown: Image.Image | None, heading: str, caption: str) -> str:
    image = "" if shown is None else _image(shown, caption)
    return f"<figure>{image}<figcaption><b>{escape(heading)}</b> {escape(caption)}</figcaption></figure>\n"


def _image(shown: Image.Image, caption: str) -> str:
    small = max(shown.size) < SIDE
    shown.thumbnail((SIDE, SIDE))
    body = io.BytesIO()
    shown.save(body, "WEBP", quality=85, lossless=small)
    data = base64.b64encode(body.getvalue()).decode()
    kind = ' class="small"' if small else ""
    return f'<img{kind} alt="{escape(caption)}" src="data:image/webp;base64,{data}"/>'
