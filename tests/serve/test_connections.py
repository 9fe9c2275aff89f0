"""Idle, slow and stalled connections must not block others."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from climb.serve import connections, listening
from climb.serve.connections import ShortageLog, make_server, most_connections, run_server

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from climb.cli import main
main(["serve", sys.argv[1], "--port", "0"])
"""


@contextmanager
def small_server(text: str = "hello", *, seconds: float = 0.0) -> Iterator[int]:
    """A real server with a constant answer after some seconds; its port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if seconds:
            await asyncio.sleep(seconds)
        await PlainTextResponse(text)(scope, receive, send)

    with listening("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        server = make_server(app)
        thread = threading.Thread(target=lambda: run_server(server, opened))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(60)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def asked(connection: socket.socket, more: bytes = b"") -> bytes:
    """Send a request and return the whole answer."""
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + more)
    answer = b""
    while not answer.endswith(b"hello"):
        part = connection.recv(4096)
        assert part, answer
        answer += part
    return answer


def dribble(connection: socket.socket, text: bytes) -> None:
    for byte in text:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    with small_server() as port, connected(port) as silent:
        assert is_closed(silent)


def test_a_dribbled_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with small_server() as port, connected(port) as slow, pytest.raises((ConnectionResetError, BrokenPipeError)):
        dribble(slow, b"GET / HTTP/1.1\r\nHost: " + b"x" * 200)


def test_a_partial_second_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 2.0)
    with small_server() as port, connected(port) as client:
        assert asked(client, b"GET / HT").startswith(b"HTTP/1.1 200")
        assert is_closed(client)


def test_a_stalled_reader_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.3)
    lost, gone = connections.Connection.connection_lost, threading.Event()

    def watched(self: connections.Connection, exc: Exception | None) -> None:
        lost(self, exc)
        gone.set()

    monkeypatch.setattr(connections.Connection, "connection_lost", watched)
    with small_server("x" * 30_000_000) as port, connected(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert gone.wait(60)
        received = 0
        try:
            while part := client.recv(1 << 20):
                received += len(part)
        except ConnectionResetError:
            pass
        assert received < 30_000_000


def test_computing_an_answer_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    with small_server(seconds=1.0) as port, connected(port) as client:
        answer = asked(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # two requests at once
        while answer.count(b"hello") < 2:
            part = client.recv(4096)
            assert part, answer
            answer += part
        assert is_closed(client)


def test_an_active_connection_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 2.0)
    with small_server() as port, connected(port) as client:
        for _ in range(6):
            assert asked(client).startswith(b"HTTP/1.1 200")
            time.sleep(0.5)


def test_the_oldest_idle_connection_is_closed_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 5)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 60.0)  # no timeout
    with small_server() as port, ExitStack() as stack:
        idle = [stack.enter_context(connected(port)) for _ in range(9)]
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).text == "hello"
        assert all(is_closed(connection) for connection in idle[:4])
        assert asked(idle[-1]).startswith(b"HTTP/1.1 200")


def test_idle_connections_do_not_block_the_server_or_fill_its_log(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", LIMITED, str(tmp_path / "runs")], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        with process.stdout, ExitStack() as stack:
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            port = int(process.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
            for _ in range(150):
                stack.enter_context(connected(port))
            for _ in range(5):
                assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).status_code == 200
    assert (tmp_path / "log").stat().st_size < 2000


def test_a_client_that_breaks_off_its_request_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with small_server() as port:
        errors = logging.getLogger("uvicorn.error")
        errors.addHandler(caplog.handler)
        try:
            with connected(port) as client:
                client.sendall(request + b"no length\r\n")  # refused before it is answered
                while client.recv(4096):
                    pass
            with connected(port) as client:
                assert asked(client).startswith(b"HTTP/1.1 200")
        finally:
            errors.removeHandler(caplog.handler)
    assert caplog.text == ""


def test_a_shortage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log_shortage = ShortageLog()
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.ERROR, logger="climb.serve"):
            for _ in range(100):
                log_shortage(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
    finally:
        loop.close()
    (record,) = caplog.records
    assert "Too many open files" in record.getMessage()


def test_the_limit_is_far_below_the_descriptors() -> None:
    resource = pytest.importorskip("resource")
    assert 4 <= most_connections() <= max(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
