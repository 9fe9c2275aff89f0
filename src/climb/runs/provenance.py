"""Provenance of a run: versions of the libraries and of the code, the device, the command."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import numpy
import torch

from climb._version import __version__
from climb.sources.open import without_password

PACKAGE = Path(__file__).resolve().parents[1]
GIT_SECONDS = 2.0
"""Time limit for git, in case the drive is slow."""


def versions(device: torch.device) -> dict[str, str]:
    """Versions of the libraries that influence results, and the name of the device."""
    values = {
        "climb": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "device": str(device),
        "device_name": device_name(device),
    }
    if device.type == "cuda" and torch.version.cuda:
        values["cuda"] = torch.version.cuda
    if (code := commit(PACKAGE)) is not None:
        values["commit"] = code
    return values


@functools.cache  # imported code does not change with its files
def commit(package: Path) -> str | None:
    """The last commit that changed the package, such as "3f2a91c04d"; None outside a checkout, or if git fails.

    If the files have changed since that commit: "3f2a91c04d+changes".
    """
    # Plumbing commands with all options: the user's git configuration must not change the output.
    if package.parent.name != "src" or not (package.parents[1] / ".git").exists():
        return None  # installed: the version identifies the code
    if _git(package, "rev-parse", "--is-shallow-repository") != "false":
        return None  # a shallow clone does not know the commit
    last = _git(package, "rev-list", "-1", "HEAD", "--", ".")
    changes = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
    if not last or changes is None:
        return None
    return last[:10] + ("+changes" if changes else "")


def _git(folder: Path, *command: str) -> str | None:
    """Output of a git command in a folder; None if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # set inside hooks
    try:
        process = subprocess.run(
            ["git", "--no-optional-locks", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.decode(errors="replace").strip()


def device_name(device: torch.device) -> str:
    """Name of the device for people."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type


def command_line() -> str | None:
    """The command that started this process, for a shell, without passwords; None outside the `climb` command."""
    program = Path(sys.argv[0])
    if program.name in ("climb", "climb.exe"):
        command = "climb"
    elif program.parts[-2:] == ("climb", "__main__.py"):
        command = "python -m climb"
    else:
        return None
    return " ".join([command, *(_quoted(without_password(word)) for word in sys.argv[1:])])


def _quoted(word: str) -> str:
    """One word for a shell. Bytes of names that are not UTF-8 are escaped.

    >>> _quoted("a b"), _quoted(os.fsdecode(b"caf\\xe9"))
    ("'a b'", "$'caf\\\\xe9'")
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        escaped = os.fsencode(word).decode("latin-1").encode("unicode_escape").decode()
        return "$'" + escaped.replace("'", r"\x27") + "'"
    return shlex.quote(word)
