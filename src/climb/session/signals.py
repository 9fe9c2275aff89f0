"""Signals: a request to stop or to save, which the session loop carries out between two mini-batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class Interrupted(KeyboardInterrupt):
    """A session was stopped; the same call continues it."""


class Finished(Interrupted):
    """A signal arrived when everything had been written. A caller with more runs should not begin the next."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result
        """What the call would have returned."""


class StopRequest:
    """What signals have asked for."""

    asked = False
    """Stop after this mini-batch."""
    save_asked = False
    """Save the state and go on; the loop resets it."""

    def _note(self, before: Any, number: int, frame: FrameType | None) -> None:
        self.save_asked = True
        if callable(before):  # the handler of a queue, such as submitit
            before(number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second signal stops at once; the last checkpoint is valid
            raise Interrupted
        self.asked = True


_outlives_sigterm: ContextVar[bool] = ContextVar("outlives_sigterm", default=False)


@contextmanager
def outliving_sigterm() -> Iterator[None]:
    """Inside, SIGTERM makes a session save its state and go on. For queues that send it as a warning.

    The previous handler is called, too.

    >>> with outliving_sigterm(), stop_on_signal() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.asked, stop.save_asked
    (False, True)
    """
    token = _outlives_sigterm.set(True)
    try:
        yield
    finally:
        _outlives_sigterm.reset(token)


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Inside, signals have these handlers. Other threads than the main one cannot handle signals: nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Inside, SIGINT, SIGTERM and SIGHUP set a request instead of ending the process.

    An ignored SIGHUP stays ignored, as under nohup.
    """
    request = StopRequest()
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    handlers: dict[signal.Signals, Handler] = dict.fromkeys(signals, request._handle)
    if _outlives_sigterm.get():
        handlers[signal.SIGTERM] = partial(request._note, signal.getsignal(signal.SIGTERM))
    with handling(handlers):
        yield request
