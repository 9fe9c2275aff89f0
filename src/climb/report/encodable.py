"""Text that can be sent and saved, whatever the names and files of a run hold."""

from __future__ import annotations


def encodable(text: str) -> str:
    r"""The same with a mark in place of what is no character: half a pair, from JSON, or a byte of a name not in UTF-8.

    >>> encodable("caf\udce9 and \ud800"), encodable("café")
    ('caf� and �', 'café')
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
