"""A file that is either the old one or the whole new one, whatever happens meanwhile."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from climb.errors import ClimbError


def atomic_write(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary name beside ``path``, sync, rename."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ClimbError(f"cannot write {target}: {error.strerror or error}") from error
