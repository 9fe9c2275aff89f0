"""The command that started this process, for whoever wants to start it again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from climb.sources.address import without_password


def command_line() -> str | None:
    """What was typed, less passwords in addresses, as one line for a shell; None if this is not the `climb` command."""
    program, typed = Path(sys.argv[0]), [without_password(word) for word in sys.argv[1:]]
    if program.name in ("climb", "climb.exe"):
        return shlex.join(["climb", *typed])
    if program.name == "__main__.py" and program.parent.name == "climb":
        return shlex.join(["python", "-m", "climb", *typed])
    return None
