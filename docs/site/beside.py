"""Pages of the site from beside `docs/`: published results, examples, the changelog.

The links in `docs/` are those of the repository, so that they work where its files are read one by one. When the site
is built, files beside `docs/` join it and links to them are turned; a link to a folder leads to its README.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

BESIDE = ("results", "examples", "CHANGELOG.md")
ROOT = Path(__file__).parents[2]
DOCS = "docs"
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what lies beside the folder of pages."""
    for name in BESIDE:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page from the repository's to the site's."""
    return turned(markdown, page.file.src_uri)


def turned(markdown: str, uri: str) -> str:
    """The text of the page ``uri`` with links as the site has them."""
    here = posixpath.dirname(uri)
    source = here if _is_beside(uri) else posixpath.join(DOCS, here)

    def turn(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(source, match[1]))
        if (ROOT / target / "README.md").is_file():
            target = posixpath.join(target, "README.md")
        on_site = target if _is_beside(target) else posixpath.relpath(target, DOCS)
        return f"]({os.path.relpath(on_site, here or '.')}{match[2] or ''})"

    return LINK.sub(turn, markdown)


def _is_beside(uri: str) -> bool:
    return uri.split("/")[0] in BESIDE
