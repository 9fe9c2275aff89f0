"""Threads that ask for features while another one learns."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from climb import Climb
from climb.engine import Engine
from climb.engine.inference import FairLock, Snapshot

SMALL: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "device": "cpu"}
CALLS = 25


def images(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)


@contextmanager
def threads(count: int, work: Callable[[], None]) -> Iterator[None]:
    """Threads that repeat some work until the body ends; their errors are raised here."""
    stop, errors = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in started:
            thread.join()
    if errors:
        raise errors[0]


def tensors(node: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(node, torch.Tensor):
        yield name, node
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in pairs:
        yield from tensors(value, f"{name}.{key}")


@pytest.mark.parametrize("method", ["climb", "cla-r", "scale"])
def test_training_is_the_same_to_the_bit_and_all_features_are_of_one_state(method: str) -> None:
    stream, probe = images(10 * CALLS), images(300, 1)  # more than one batch of `transform`
    quiet, states = Climb(method=method, **SMALL), set[bytes]()
    busy = Climb(method=method, **SMALL)
    for part in np.split(stream, CALLS):
        quiet.partial_fit(part)
        states.add(quiet.transform(probe).tobytes())
    found = set[bytes]()
    busy.partial_fit(stream[:10])
    with threads(3, lambda: found.add(busy.transform(probe).tobytes())):
        for part in np.split(stream[10:], CALLS - 1):
            busy.partial_fit(part)
    expected = dict(tensors(quiet.engine_.state_dict()))
    changed = [name for name, value in tensors(busy.engine_.state_dict()) if not torch.equal(value, expected[name])]
    assert len(expected) > 40
    assert changed == []
    assert all(module.training for module in busy.engine_.parts.network.modules())
    assert len(found) > 2
    assert found <= states


def test_features_for_a_later_call_are_of_the_later_state() -> None:
    model, probe = Climb(**SMALL).partial_fit(images(40)), images(8, 1)
    before = model.transform(probe)
    assert np.array_equal(model.transform(probe), before)
    with torch.no_grad():
        for weight in model.encoder_.parameters():
            weight.mul_(1.5)
    assert not np.array_equal(model.transform(probe), before)
    before = model.transform(probe)
    assert not np.array_equal(model.partial_fit(images(10)).transform(probe), before)


def test_a_transform_waits_for_one_mini_batch_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model, probe, waits = Climb(**SMALL).partial_fit(images(10)), images(1, 1), list[int]()
    observe = Engine.observe

    def slow(self: Engine, batch: torch.Tensor) -> Any:
        time.sleep(0.05)
        return observe(self, batch)

    def noted(self: Snapshot, network: nn.Module, step: Any) -> nn.Module:
        granted.append(step)
        return copy_of(self, network, step)

    def ask() -> None:
        before = model.engine_.budget.batches
        model.transform(probe)
        waits.append(granted[-1] - before)

    granted, copy_of = list[int](), Snapshot.of
    monkeypatch.setattr(Snapshot, "of", noted)
    monkeypatch.setattr(Engine, "observe", slow)
    with threads(1, ask):
        model.partial_fit(images(200))
    assert len(waits) > 10
    assert sorted(waits)[len(waits) // 2] <= 1
    assert max(waits) <= 3  # on a busy machine, some end between the count and the request


def test_long_transforms_do_not_hold_up_training() -> None:
    model, many = Climb(**SMALL).partial_fit(images(10)), images(6000, 1)
    began = time.monotonic()
    model.transform(many)
    alone = time.monotonic() - began
    asked = threading.Event()

    def transform() -> None:
        asked.set()
        model.transform(many)

    with threads(1, transform):
        asked.wait()
        began = time.monotonic()
        model.partial_fit(images(10))
        assert time.monotonic() - began < alone


def test_models_are_saved_whole_and_several_threads_may_learn(tmp_path: Path) -> None:
    model = Climb(**SMALL)
    batches = iter([images(10, seed) for seed in range(40)])
    guard = threading.Lock()

    def learn() -> None:
        with guard:
            batch = next(batches, None)
        if batch is not None:
            model.partial_fit(batch)

    copies = []
    with threads(3, learn):
        while not copies or copies[-1].engine_.budget.images < 400:
            if hasattr(model, "engine_"):
                model.save(tmp_path / "model")
                copies.append(Climb.load(tmp_path / "model", device="cpu"))
    assert all(copy.memory_.state_dict()["seen"] == copy.engine_.budget.images for copy in copies if copy.memory_)
    assert model.engine_.budget.images == 400


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    lock, order = FairLock(), list[int]()

    def take(number: int) -> None:
        with lock:
            order.append(number)

    waiting = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    with lock:
        for thread in waiting:
            thread.start()
            while len(lock._waiting) <= waiting.index(thread):
                time.sleep(0.001)
    for thread in waiting:
        thread.join()
    assert order == list(range(8))
    assert not lock._held


def test_an_interrupted_wait_gives_its_turn_away(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FairLock()
    with lock:
        waiting = threading.Thread(target=lock.__enter__)
        waiting.start()
        while not lock._waiting:
            time.sleep(0.001)
        turn = lock._waiting[0]

        class Interrupting:
            def acquire(self) -> None:
                if self in lock._waiting:
                    raise KeyboardInterrupt

        monkeypatch.setattr("climb.engine.inference.Lock", Interrupting)
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
        assert list(lock._waiting) == [turn]
    waiting.join()
    assert lock._held  # by the first that waited
    lock.__exit__()
    assert not lock._held


def test_ctrl_c_waits_for_the_end_of_the_mini_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, whole = Climb(**SMALL).partial_fit(images(10)), Climb(**SMALL).partial_fit(images(10))
    memory = model.memory_
    assert memory is not None
    insert, interrupts = memory.insert, [True]

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if interrupts:
            interrupts.pop()
            signal.raise_signal(signal.SIGINT)
        return insert(*arguments, **named)

    monkeypatch.setattr(memory, "insert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(images(30, 1))
    assert model.engine_.budget.images == 20  # the rest of the images was not begun
    model.partial_fit(images(30, 1)[10:])
    whole.partial_fit(images(30, 1))
    assert np.array_equal(model.transform(images(5, 2)), whole.transform(images(5, 2)))
