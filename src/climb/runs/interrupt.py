"""Stopping politely: a signal asks, the run stops at the next safe point with its state saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """The run was stopped and can be resumed."""


class Finished(Interrupted):
    """It was asked to stop when nothing was left to do: all is written. Whoever has more to do is not to begin it."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result
        """What would have been given back."""


class StopRequest:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False
        self.save_asked = False
        """Whether somebody asked for no more than that the state be saved; whoever saves it takes this back."""

    def _note(self, before: Any, number: int, frame: FrameType | None) -> None:
        self.save_asked = True
        if callable(before):  # a queue may have made it the signal on which it acts
            before(number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # asked twice: stop at once; the last checkpoint stands
            raise Interrupted
        self.asked = True


_outlives_sigterm: ContextVar[bool] = ContextVar("outlives_sigterm", default=False)


@contextmanager
def outliving_sigterm() -> Iterator[None]:
    """While inside, SIGTERM has a run save its state and go on. For queues that say with it: something is coming.

    Whoever handled it before is called, too.

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
def stop_on_signal() -> Iterator[StopRequest]:
    """While inside, SIGINT, SIGTERM and SIGHUP set a request in place of ending the process.

    SIGHUP is a terminal that was closed; a process that was told to outlive it, as by nohup, goes on ignoring that.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # signals belong to the main thread
        return
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(signals, request._handle)
    if _outlives_sigterm.get():
        handlers[signal.SIGTERM] = partial(request._note, signal.getsignal(signal.SIGTERM))
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
