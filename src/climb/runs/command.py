"""The command that started this process, for whoever wants to start it again."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from climb.sources.address import without_password


def command_line() -> str | None:
    """What was typed, less passwords in addresses, as one line for a shell; None if this is not the `climb` command."""
    program, typed = Path(sys.argv[0]), [without_password(word) for word in sys.argv[1:]]
    if program.name in ("climb", "climb.exe"):
        return " ".join(map(_quoted, ["climb", *typed]))
    if program.name == "__main__.py" and program.parent.name == "climb":
        return " ".join(map(_quoted, ["python", "-m", "climb", *typed]))
    return None


def _quoted(word: str) -> str:
    """One word for a shell, of characters that any file can hold: a name need not be UTF-8.

    >>> _quoted("a b"), _quoted(os.fsdecode(b"caf\\xe9"))
    ("'a b'", "$'caf\\\\xe9'")
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        plain = (
            chr(byte) if 32 <= byte < 127 and chr(byte) not in "'\\" else f"\\x{byte:02x}" for byte in os.fsencode(word)
        )
        return f"$'{''.join(plain)}'"
    return shlex.quote(word)
