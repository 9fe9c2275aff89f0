"""Connections that cost little: whoever connects and then says nothing, or reads nothing, is let go.

uvicorn waits for the first request of a connection for ever, and asyncio accepts connections until the process has no
file descriptor left. Both are open to everybody who can reach the port, with the token or without.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # for a whole request to arrive, from the connection or from the answer before it
STALLED_SECONDS = 60.0  # without room for more of an answer: its reader has gone
MOST_CONNECTIONS = 200
AT_ONCE = 4  # accepted before any of them is looked at: a burst must not take all descriptors
WAITING = 128  # connections that the system keeps until they are accepted
QUIET_SECONDS = 60.0  # between two lines of the log about the same trouble
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
log = logging.getLogger("climb.serve")


def most_connections() -> int:
    """How many connections may be open: far fewer than there are descriptors, which files need, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_CONNECTIONS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else max(4, min(MOST_CONNECTIONS, limit // 3))


class Connection(H11Protocol):
    """One connection of a browser, with a time for every request. The oldest that asks nothing makes room."""

    _began = 0.0
    _deadline: asyncio.TimerHandle | None = None
    _flushing = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept it, in place of an idle one if there are too many; if none is idle, refuse it."""
        super().connection_made(transport)
        self._began = time.monotonic()
        self._watch()
        if len(self.connections) > most_connections():
            self._oldest_idle().transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. A part of a request buys no time: one byte now and then would hold a connection for ever."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """The reader does not keep up."""
        super().pause_writing()
        self._unwatch()
        self._deadline = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader does again."""
        super().resume_writing()
        self._unwatch()
        self._watch()

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Start the clock for a request, unless it runs, or one is being answered."""
        if not self.flow.write_paused:
            if self._busy():
                self._unwatch()
            elif self._deadline is None:
                self._flushing = False
                self._deadline = self.loop.call_later(REQUEST_SECONDS, self._overdue)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        """No request came. The end of the last answer may still be on its way, which takes a slow reader a while."""
        if self._flushing or self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
            return
        self._flushing = True
        self._deadline = self.loop.call_later(STALLED_SECONDS, self._overdue)

    def _oldest_idle(self) -> Connection:
        others = (other for other in self.connections if isinstance(other, Connection) and other is not self)
        idle = (other for other in others if not other._busy() and not other.transport.is_closing())
        return min(idle, key=lambda other: other._began, default=self)


class Server(uvicorn.Server):
    """uvicorn's server, with few connections accepted at once and few lines in the log when there is no room."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        asyncio.get_running_loop().set_exception_handler(SeldomLogged())
        await super().startup(sockets)
        for opened in sockets or []:
            opened.listen(WAITING)  # asyncio takes one number for both how many wait and how many are accepted at once


def make_server(app: ASGIApp) -> Server:
    """A server for the sockets that its ``run`` is given."""
    # No log of requests: one with ?token= would write the token down. Nor of what is no request: anybody can send it.
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        backlog=AT_ONCE,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
    )
    return Server(config)


class SeldomLogged:
    """Handles what goes wrong in the event loop: asyncio tells of every connection that it had no descriptor for."""

    def __init__(self) -> None:
        self._due = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log it; a shortage once a minute."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in SHORT):
            loop.default_exception_handler(context)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + QUIET_SECONDS
            log.error("no room for another connection: %s; raise the limit on open files (ulimit -n)", error)
