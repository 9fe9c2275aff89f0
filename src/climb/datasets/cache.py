"""Where downloaded and decoded data lives on this machine."""

from __future__ import annotations

from pathlib import Path

from climb.errors import ClimbError


def writable_folder(folder: Path) -> Path:
    """The folder, made if needed; a ClimbError when that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClimbError(
            f"cannot make the folder {folder}: {error.strerror}; "
            "set CLIMB_CACHE to a folder that can be written to, for example: export CLIMB_CACHE=/tmp/climb"
        ) from error
    return folder
