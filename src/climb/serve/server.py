"""Starting the server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from climb.errors import ClimbError, InputError
from climb.serve.found import Runs

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
        folder: holds runs at any depth, or is the folder of one.
        host: address to listen at; any but this machine's own needs a token.
        port: port to listen at; 0 takes a free one.
        token: what everybody must show who asks.
        ready: is told the address once the server listens there.

    Raises:
        InputError: before anything is opened, for a folder, an address or a token that will not do.
    """
    try:
        from climb.serve.app import make_app
        from climb.serve.connections import make_server
        from climb.serve.guard import SHORTEST, check_token, is_loopback
    except ImportError as error:
        raise InputError(f'the server needs {error.name}: pip install "climb-ssl[serve]"') from error
    Runs(folder)  # refuses what is not a folder
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host} can be reached from other machines, and needs a token: set CLIMB_TOKEN, or give --token, "
            f"at least {SHORTEST} characters; or leave --host out, and only this machine sees it"
        )
    check_token(token)
    with listening(host, port) as opened:
        number = opened.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{number}/")
        make_server(make_app(folder, token=token)).run(sockets=[opened])


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ClimbError(f"cannot listen at {host}, port {port}: {error}; give another --port or --host") from error
