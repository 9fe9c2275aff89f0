"""A small read-only web server: the pages of all runs below a folder, updated while they learn.

It listens on the local host unless a token is given. It writes nothing, and serves only files of runs in the folder.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from climb.errors import ClimbError, InputError

__all__ = ["serve"]

log = logging.getLogger("climb.serve")


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    ready: Callable[[str], object] = log.info,
) -> None:
    """Show the runs below ``folder`` until interrupted.

    Args:
        folder: holds runs at any depth, or is the folder of one run.
        host: address to listen at. Any address but the loopback needs a token.
        port: port to listen at; 0 takes a free one.
        token: secret that every request must carry.
        ready: called with the address of the server as soon as it listens.

    Raises:
        InputError: the folder, the address or the token cannot be used.
    """
    try:
        from climb.serve.app import make_app
        from climb.serve.connections import make_server, run_server
        from climb.serve.guard import SHORTEST, is_loopback
    except ImportError as error:
        raise InputError(f'the server needs {error.name}: pip install "climb-ssl[serve]"') from error
    app = make_app(folder, token=token)
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host} can be reached from other machines and needs a token: set CLIMB_TOKEN or give --token, "
            f"at least {SHORTEST} characters; without --host, only this machine can connect"
        )
    with listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listener.getsockname()[1]}/")
        run_server(make_server(app), listener)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = str(error).rstrip(".")
        raise ClimbError(f"cannot listen at {host}, port {port}: {reason}; give another --port or --host") from error
