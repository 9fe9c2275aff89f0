"""A small read-only web server: the pages of all runs below a folder, live while they are being trained.

It binds to this machine alone unless a token is given, writes nothing, and hands out nothing but what belongs to a run
inside the folder.
"""

from __future__ import annotations

from climb.serve.server import serve

__all__ = ["serve"]
