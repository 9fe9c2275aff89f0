"""Connections that ask nothing, too slowly, or do not read: none may keep others from being answered."""

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

from climb.serve import connections
from climb.serve.connections import SeldomLogged, make_server, most_connections
from climb.serve.server import listening

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from climb.cli import main
main(["serve", sys.argv[1], "--port", "0"])
"""


@contextmanager
def small_server(text: str = "hello") -> Iterator[int]:
    """A real server that always says the same; its port."""
    with listening("127.0.0.1", 0) as opened:
        server = make_server(PlainTextResponse(text))
        thread = threading.Thread(target=lambda: server.run(sockets=[opened]))
        thread.start()
        try:
            yield opened.getsockname()[1]
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
    """The answer to a request, up to its last word."""
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


def test_a_byte_now_and_then_buys_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with small_server() as port, connected(port) as slow, pytest.raises((ConnectionResetError, BrokenPipeError)):
        dribble(slow, b"GET / HTTP/1.1\r\nHost: " + b"x" * 200)


def test_half_a_second_request_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 2.0)
    with small_server() as port, connected(port) as client:
        assert asked(client, b"GET / HT").startswith(b"HTTP/1.1 200")
        assert is_closed(client)


def test_a_reader_that_stops_reading_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_one_that_goes_on_asking_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 2.0)
    with small_server() as port, connected(port) as client:
        for _ in range(6):
            assert asked(client).startswith(b"HTTP/1.1 200")
            time.sleep(0.5)


def test_the_oldest_that_asks_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 5)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 60.0)  # none of them is let go for its silence
    with small_server() as port, ExitStack() as stack:
        idle = [stack.enter_context(connected(port)) for _ in range(9)]
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).text == "hello"
        assert all(is_closed(connection) for connection in idle[:4])
        assert asked(idle[-1]).startswith(b"HTTP/1.1 200")


def test_idle_connections_neither_stop_the_server_nor_fill_the_disk(tmp_path: Path) -> None:
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


def test_a_shortage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told = SeldomLogged()
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.ERROR, logger="climb.serve"):
            for _ in range(100):
                told(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
    finally:
        loop.close()
    (record,) = caplog.records
    assert "Too many open files" in record.getMessage()


def test_far_fewer_connections_than_descriptors() -> None:
    resource = pytest.importorskip("resource")
    assert 4 <= most_connections() <= max(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
