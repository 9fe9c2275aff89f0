"""What a number was measured with."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import numpy
import torch

from climb._version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
GIT_SECONDS = 2.0
"""How long git may take; a drive may be slow, and a run does not wait for a remark."""


def versions(device: torch.device) -> dict[str, str]:
    """Versions of the libraries that decide a result, and the device's name."""
    found = {
        "climb": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "device": str(device),
        "device_name": device_name(device),
    }
    if device.type == "cuda" and torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if (code := commit(PACKAGE)) is not None:
        found["commit"] = code
    return found


@functools.cache  # what a process has imported does not change with the files
def commit(package: Path) -> str | None:
    """The last commit that changed the package, such as "3f2a91c04d", "3f2a91c04d+changes" where its files have
    changed since; None outside a checkout, or where git does not say.

    Plumbing, and all options given: what a person has configured for git, such as a branch line of every status, is not
    to change the answer.
    """
    if package.parent.name != "src" or not (package.parents[1] / ".git").exists():
        return None  # installed: the number of the version says which code it is
    if _git(package, "rev-parse", "--is-shallow-repository") != "false":
        return None  # a clone without history takes its first commit for the one that changed the package
    last = _git(package, "rev-list", "-1", "HEAD", "--", ".")
    changes = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
    if not last or changes is None:
        return None
    return last[:10] + ("+changes" if changes else "")


def _git(folder: Path, *command: str) -> str | None:
    """What git answers about a folder; None where there is no answer."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # as in a hook
    try:
        answer = subprocess.run(
            ["git", "--no-optional-locks", *command],
            cwd=folder,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode(errors="replace").strip()


def device_name(device: torch.device) -> str:
    """What people call the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type
