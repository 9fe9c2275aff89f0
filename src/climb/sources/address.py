"""Addresses of cameras, as they may be shown."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"^(\w+://[^/@:]*):.*@(?=[^@]*$)")


def without_password(text: str) -> str:
    """The text, or an address without the password in it: logs, journals and pages are for other eyes.

    >>> without_password("rtsp://admin:secret@10.0.0.7:554/main"), without_password("photos/a:b@c")
    ('rtsp://admin:...@10.0.0.7:554/main', 'photos/a:b@c')
    """
    return _PASSWORD.sub(r"\1:...@", text)
