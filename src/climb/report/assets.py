"""The style and the script that every page shares, and the policy that lets a page use these and nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def style() -> str:
    """How pages look: light, dark, on a phone and on paper."""
    return files("climb.report").joinpath("page.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """What pages can do: the theme, values under the pointer, sorting, and news from a server."""
    return files("climb.report").joinpath("page.js").read_text(encoding="utf-8")


def inline_script() -> str:
    """The script as it stands inside a page that is also XML."""
    return f"\n//<![CDATA[\n{script()}//]]>\n"


def policy_of_a_file() -> str:
    """The content security policy of a page that is one file: its own script and style, pictures inside it."""
    return (
        f"default-src 'none'; script-src {_digest(inline_script())}; style-src {_digest(style())}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
