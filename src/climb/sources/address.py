"""Addresses of cameras, as they may be shown."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"[a-z][\w+.-]*://", re.IGNORECASE)
_LOGIN = re.compile(r"([^/?#@:]*):[^/?#]*@")
# A password with a slash in it, as people type it; what is digits alone before the slash is the number of a port.
_UNESCAPED_LOGIN = re.compile(r"(?!\[)([^/?#@:]*):(?!\d*(?:[/?#]|$)).*@", re.DOTALL)
# Cameras want it in the query, or take the whole path for one.
_PARAMETER = re.compile(
    r"([\w.-]*(?:pas|pwd|psw|secret|token|auth|key|sign|(?<![a-z])pw)[\w.-]*=)[^&;#]*", re.IGNORECASE
)


def without_password(text: str) -> str:
    """The text, or an address without the passwords in it: logs, journals and pages are for other eyes.

    >>> without_password("rtsp://admin:secret@10.0.0.7:554/main"), without_password("photos/a:b@c")
    ('rtsp://admin:...@10.0.0.7:554/main', 'photos/a:b@c')
    >>> without_password("http://camera/video.mjpg?user=admin&pwd=secret")
    'http://camera/video.mjpg?user=admin&pwd=...'
    """
    address = _ADDRESS.search(text)
    if address is None:
        return text
    before, rest = text[: address.end()], text[address.end() :]
    login = _LOGIN.match(rest) or _UNESCAPED_LOGIN.match(rest)
    if login is not None:
        before, rest = f"{before}{login[1]}:...@", rest[login.end() :]
    return before + _PARAMETER.sub(r"\1...", rest)
