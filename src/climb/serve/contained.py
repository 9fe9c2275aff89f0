"""Which paths may be read: those that are really inside the served folder, wherever links lead."""

from __future__ import annotations

from pathlib import Path


def contained(root: Path, path: Path) -> bool:
    """Whether ``path``, all links followed, lies inside ``root``, which has been resolved.

    >>> contained(Path("/srv/runs"), Path("/srv/runs/demo/journal.jsonl"))
    True
    >>> contained(Path("/srv/runs"), Path("/srv/runs/../secret")), contained(Path("/srv/runs"), Path("/srv/runs-old"))
    (False, False)
    """
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that no file can have
        return False


def readable(root: Path, path: Path) -> bool:
    """Whether ``path`` is an ordinary file inside ``root``."""
    try:
        return contained(root, path) and path.is_file()
    except (OSError, ValueError):
        return False
