"""`climb serve`: the pages of all runs below a folder, live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro


def serve(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = "runs",
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
) -> None:
    """Show runs in a browser while they go on: an index, a page per run, comparison, /metrics for Prometheus.

    Args:
        folder: a folder with runs at any depth below it, or the folder of one run.
        host: address to listen at; any but this machine's own needs a token.
        port: port to listen at; 0 takes a free one.
        token: what a browser must show once (?token=...), or a program as "Authorization: Bearer ..."; better given
            as the environment variable CLIMB_TOKEN, which other users of the machine do not see.
    """
    from climb.serve import serve as start  # the server's libraries are not needed for --help

    secret = token or os.environ.get("CLIMB_TOKEN") or None

    def ready(address: str) -> None:
        print(f"{address}{'' if secret is None else '?token=... with your token'}", flush=True)

    start(Path(folder), host=host, port=port, token=secret, ready=ready)
