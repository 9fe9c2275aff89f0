"""The command that started this process, for whoever wants to start it again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def command_line() -> str | None:
    """What was typed, as one line for a shell; None in a process that is not the `climb` command."""
    program = Path(sys.argv[0])
    if program.name in ("climb", "climb.exe"):
        return shlex.join(["climb", *sys.argv[1:]])
    if program.name == "__main__.py" and program.parent.name == "climb":
        return shlex.join(["python", "-m", "climb", *sys.argv[1:]])
    return None
