"""MkDocs hook: add files of the repository and the reference of the settings to the site, and adapt links.

Links in `docs/` are relative to the repository, so that they work on a code host. The site also holds results,
examples, the changelog, CONTRIBUTING and SECURITY. A link to a folder leads to its README.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from climb.settings.config import (
    DataConfig,
    DataOptions,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    LearnerOptions,
    LearnOptions,
    MemoryConfig,
    StreamConfig,
    StreamOptions,
)
from climb.settings.fields import render_reference

ADDED = ("results", "examples", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ROOT = Path(__file__).parents[2]
DOCS = "docs"
SETTINGS = (
    LearnerConfig,
    LearnerOptions,
    MemoryConfig,
    DataConfig,
    DataOptions,
    StreamConfig,
    StreamOptions,
    EvaluationConfig,
    LearnOptions,
    Execution,
)
INTRODUCTION = """# Settings

Each setting is declared once, in `climb/settings/config.py`. Options of the command line, arguments of `Climb`, and the
settings that `climb tune --over` varies derive from these declarations, and so does this page.

"""
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the repository's files, and the page of the settings."""
    for name in ADDED:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "settings.md", content=INTRODUCTION + render_reference(SETTINGS)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt the links of a page."""
    return with_site_links(markdown, page.file.src_uri)


def with_site_links(markdown: str, uri: str) -> str:
    """Return the text of page ``uri`` with links as the site has them."""
    folder = posixpath.dirname(uri)
    source = folder if _is_added(uri) else posixpath.join(DOCS, folder)

    def site_link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(source, match[1]))
        if (ROOT / target / "README.md").is_file():
            target = posixpath.join(target, "README.md")
        on_site = target if _is_added(target) else posixpath.relpath(target, DOCS)
        return f"]({os.path.relpath(on_site, folder or '.')}{match[2] or ''})"

    return LINK.sub(site_link, markdown)


def _is_added(uri: str) -> bool:
    return uri.split("/")[0] in ADDED
