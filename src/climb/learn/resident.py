"""How much memory the process takes."""

from __future__ import annotations

import os


def resident_bytes() -> int | None:
    """Bytes of the process in memory now; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as handle:
            return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
