"""Limits on connections: slow, idle, half-open and too many ones are closed.

uvicorn waits for the first request of a connection without limit, and asyncio accepts connections until the process has
no file descriptor left. Anyone who can reach the port could block the server that way, even without the token.

Only public interfaces are used. `uvicorn.Config` gets a protocol class of our own, which forwards each call of
`asyncio.Protocol` to the class of uvicorn. An ASGI application around ours knows when requests are answered.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

REQUEST_SECONDS = 10.0  # for a whole request to arrive, from the connection or from the previous answer
STALLED_SECONDS = 60.0  # without room for more of an answer: the client has stopped reading
MOST_CONNECTIONS = 200
ACCEPTED_AT_ONCE = 4  # before the limit is checked: a burst must not use up all descriptors
BACKLOG = 128  # connections that the system queues until they are accepted
QUIET_SECONDS = 60.0  # between two log lines about a lack of descriptors
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
log = logging.getLogger("climb.serve")


def most_connections() -> int:
    """The limit on open connections: at most a third of the file descriptors, because files need some, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_CONNECTIONS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else max(4, min(MOST_CONNECTIONS, limit // 3))


class LimitedApp:
    """The application with its open connections: tells each connection when it is being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.connections: dict[Any, Connection] = {}
        """By the address of the client, oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        connection = self.connections.get(tuple(scope.get("client") or ()))
        if connection is not None:  # else lost already
            connection.count_answers(1)
        try:
            await self._app(scope, receive, send)
        finally:
            if connection is not None:
                connection.count_answers(-1)


class Connection(asyncio.Protocol):
    """A client's connection with time limits, around the protocol that speaks HTTP.

    Args:
        app: the application, with all open connections.
        http: uvicorn's protocol class.
        options: its arguments.
    """

    def __init__(self, app: LimitedApp, http: type[asyncio.Protocol], **options: Any) -> None:
        self.answering = 0  # requests; with HTTP pipelining, one may begin before the previous one has returned
        self._connections = app.connections
        self._http = http(**options)
        self._write_paused = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection. If there are too many, close the oldest idle one, or this one if none is idle."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._client = tuple(transport.get_extra_info("peername") or (id(self),))[:2]  # as in the scope of a request
        others = self._connections.values()
        idle = (other for other in others if not other.answering and not other.transport.is_closing())
        if len(others) >= most_connections():
            next(idle, self).transport.abort()
        self._connections[self._client] = self
        self._http.connection_made(transport)
        self.restart_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._set_clock(None)
        if self._connections.get(self._client) is self:
            del self._connections[self._client]
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Forward a part of a request. It does not restart the clock: single bytes could hold a connection for ever."""
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward the end of the requests."""
        return self._http.eof_received()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._write_paused = True
        self.restart_clock()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._write_paused = False
        self.restart_clock()
        self._http.resume_writing()

    def count_answers(self, change: int) -> None:
        """Add to the number of requests that are being answered."""
        self.answering += change
        self.restart_clock()

    def restart_clock(self) -> None:
        """Limit the time for reading an answer, or for sending a request. Computing an answer has no limit."""
        if self._write_paused:
            self._set_clock(STALLED_SECONDS, self.transport.abort)
        elif self.answering:
            self._set_clock(None)
        else:
            self._set_clock(REQUEST_SECONDS, self._close)

    def _close(self) -> None:
        """Close the connection after the end of the last answer, which a slow client may still be reading."""
        self.transport.close()
        self._set_clock(STALLED_SECONDS, self.transport.abort)

    def _set_clock(self, seconds: float | None, action: Callable[[], object] = lambda: None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else asyncio.get_running_loop().call_later(seconds, action)


class Listener(socket.socket):
    """A listening socket with a long queue. asyncio would use one number for the queue and for accepting at once."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Queue up to `BACKLOG` connections, whatever is asked for."""
        super().listen(BACKLOG)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server with limits, for `run_server`."""
    limited = LimitedApp(app)
    http = uvicorn.Config(limited, http="h11", log_config=None)
    http.load()
    config = uvicorn.Config(
        limited,
        http=cast(type[asyncio.Protocol], partial(Connection, limited, http.http_protocol_class)),
        ws="none",
        loop="asyncio",
        backlog=ACCEPTED_AT_ONCE,
        # No access log: ?token= would write down the token. No warnings: anyone can cause them by invalid requests.
        log_level="error",
        access_log=False,
        proxy_headers=False,  # the client in the scope must be that of the connection
        server_header=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn.error").addFilter(is_own_fault)
    return server


def is_own_fault(record: logging.LogRecord) -> bool:
    """Whether a log line is not about a client that breaks HTTP while it is answered. Anyone could fill the log so."""
    return not (record.exc_info and isinstance(record.exc_info[1], h11.LocalProtocolError))


def run_server(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until a signal arrives or ``server.should_exit`` is set."""

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(ShortageLog())
        with Listener(fileno=listener.detach()) as queue:
            await server.serve(sockets=[queue])

    asyncio.run(run())


class ShortageLog:
    """Exception handler of the event loop: logs a lack of descriptors once a minute, not for each connection."""

    _due = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in SHORTAGES):
            loop.default_exception_handler(context)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + QUIET_SECONDS
            log.error("no room for another connection: %s; raise the limit on open files (ulimit -n)", error)
