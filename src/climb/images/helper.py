"""Helper processes, which decode images under limits of the system on memory and processor time.

A helper starts when the first image needs one, and serves one thread at a time. An image that exceeds a limit, or
crashes its decoder, ends a helper and nothing else. `climb.images.helper_main` is the helper's side.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from climb.errors import ClimbError

WAIT_SECONDS = 300.0
"""Longest wait for an answer. Limits on processor time are far lower: only a halted helper takes as long."""

Message = tuple[dict[str, Any], bytes]
"""Plain JSON data, and bytes."""

# The package's own __init__ imports torch, which a helper does not need.
_START = """
import sys, types
package = sys.modules["climb"] = types.ModuleType("climb")
package.__path__ = [sys.argv[1]]
from climb.images.helper_main import main
main()
"""
# Libraries reserve address space for each thread, which would count as memory.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class HelperEnded(Exception):
    """A helper ended without an answer. ``signal`` is what ended it; None if it ended by itself."""

    def __init__(self, ended_by: signal.Signals | None) -> None:
        super().__init__("the decoder ended" + (f" by {ended_by.name}" if ended_by else ""))
        self.signal = ended_by


class Helper:
    """One helper process and the channel to it."""

    def __init__(self) -> None:
        self.served = 0
        self._channel, other = socket.socketpair()
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(Path(__file__).parent.parent)],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries complain there about damaged files
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the learner; a helper ends when its channel closes
            )
        if self._receive() is None:
            self.close()
            raise ClimbError(f"cannot start a helper process to decode images: {sys.executable} failed")

    def ask(self, request: dict[str, Any], data: bytes) -> Message:
        """The answer to a request."""
        with contextlib.suppress(OSError):  # a broken channel, or no answer in time
            self._channel.settimeout(WAIT_SECONDS)
            send(self._channel, request, data)
            answer = self._receive()
            if answer is not None:
                self.served += 1
                return answer
        raise HelperEnded(self.close())

    def _receive(self) -> Message | None:
        self._channel.settimeout(WAIT_SECONDS)
        try:
            return receive(self._channel)
        except OSError:
            return None

    def close(self) -> signal.Signals | None:
        """End the process; the signal that ended it."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.5)
        self._process.kill()
        code = self._process.wait()
        return signal.Signals(-code) if code < 0 else None

    def forget(self) -> None:
        """Close the channel in a forked process. The helper belongs to the parent."""
        self._channel.close()
        self._process.returncode = 0


_idle: list[Helper] = []


def ask_helper(request: dict[str, Any], data: bytes) -> Message:
    """The answer of an idle helper, or of a new one.

    Raises:
        HelperEnded: a new helper ended at this request.
    """
    while True:
        try:
            helper = _idle.pop()
        except IndexError:
            helper = Helper()
        new = not helper.served
        try:
            answer, data_back = helper.ask(request, data)
        except HelperEnded:
            if new:
                raise
            continue  # it may have ended before the request
        except BaseException:
            helper.close()
            raise
        if answer.pop("again"):
            _idle.append(helper)
        else:
            helper.close()
        return answer, data_back


def close_idle() -> None:
    """End the idle helpers."""
    while _idle:
        _idle.pop().close()


def _forget_idle() -> None:
    while _idle:
        _idle.pop().forget()


atexit.register(close_idle)
os.register_at_fork(after_in_child=_forget_idle)


# -- messages: the length of a line of JSON in four bytes, the line, and the bytes -------------------------------------


def send(channel: socket.socket, message: dict[str, Any], data: bytes = b"") -> None:
    """Send a message."""
    line = json.dumps({**message, "bytes": len(data)}).encode()
    channel.sendall(len(line).to_bytes(4, "big") + line)
    channel.sendall(data)


def receive(channel: socket.socket) -> Message | None:
    """The next message; None if the channel was closed."""
    length = _receive_bytes(channel, 4)
    line = _receive_bytes(channel, int.from_bytes(length, "big")) if length else None
    if not line:
        return None
    message: dict[str, Any] = json.loads(line)
    data = _receive_bytes(channel, message.pop("bytes"))
    return None if data is None else (message, data)


def _receive_bytes(channel: socket.socket, count: int) -> bytes | None:
    if count == 0:
        return b""
    buffer = io.BytesIO()  # it gives its bytes away without a copy
    buffer.seek(count - 1)
    buffer.write(b"\0")
    place = 0
    with buffer.getbuffer() as view:
        while place < count:
            received = channel.recv_into(view[place:])
            if received == 0:
                return None
            place += received
    return buffer.getvalue()
