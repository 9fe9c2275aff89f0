"""Forward passes without training, also while another thread trains."""

from __future__ import annotations

import copy
import signal
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock, current_thread, main_thread
from types import FrameType

import torch
from torch import nn

from climb.engine.numerics import Precision, autocast, numerics
from climb.nets import frozen


@contextmanager
def inference(network: nn.Module, device: torch.device, precision: Precision) -> Iterator[None]:
    """Inside, ``network`` is in eval mode, without gradients, under ``precision``.

    The engine's step has its own forward instead, which is compiled and tuned to fixed shapes.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    >>> with inference(network, torch.device("cpu"), "bf16"):
    ...     seen = network(torch.zeros(1, 2))
    >>> seen.dtype, seen.requires_grad, network.training
    (torch.bfloat16, False, True)
    """
    with frozen(network), numerics(device, precision), autocast(device, precision):
        yield


class FairLock:
    """A lock that threads get in the order in which they ask: no thread waits for two turns of another.

    >>> with FairLock():
    ...     print("alone")
    alone
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._waiting = deque[Lock]()
        self._held = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C
            with self._guard:
                granted = turn not in self._waiting
                if not granted:
                    self._waiting.remove(turn)
            if granted:
                self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()  # still held, by the next
            else:
                self._held = False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, Ctrl-C waits for the end. A second Ctrl-C does not. Another handler than Python's own stays in charge.

    >>> try:
    ...     with uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("goes on")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    goes on
    interrupted
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked:
        raise KeyboardInterrupt


class Snapshot:
    """The latest copy of a network in eval mode. Copies never change, so any number of threads can use them.

    >>> snapshot, network = Snapshot(), nn.BatchNorm1d(2)
    >>> copied = snapshot.of(network, 0)
    >>> copied is snapshot.of(network, 0), copied.training, network.training
    (True, False, True)
    >>> copied is snapshot.of(network, 1)
    False
    """

    def __init__(self) -> None:
        self._key: Hashable = None
        self._copy: nn.Module | None = None

    def of(self, network: nn.Module, step: Hashable) -> nn.Module:
        """A copy of the network. A new one if ``step`` or the weights differ from those of the last."""
        # Captured steps change weights without a new version; other changes of weights have no step.
        tensors = (*network.parameters(), *network.buffers())
        key = (network, step, tuple((tensor.data_ptr(), tensor._version) for tensor in tensors))
        if self._copy is None or key != self._key:
            self._copy = copy.deepcopy(network).eval().requires_grad_(False)
            self._key = key
        return self._copy
