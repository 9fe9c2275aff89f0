"""Work beside the chain, with streams that only note what they are asked: there is no second one without a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from climb.engine.second_stream import SecondStream

GPU = torch.device("cuda:0")


class Noting:
    """A stream."""

    def __init__(self, *of: object) -> None:
        self.waited_for: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


class Read:
    """A tensor on a GPU."""

    device = GPU

    def __init__(self) -> None:
        self.kept_for: list[object] = []

    def record_stream(self, stream: object) -> None:
        self.kept_for.append(stream)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Noting:
    """The stream of the chain."""
    main = Noting()
    streams = SimpleNamespace(Stream=Noting, current_stream=lambda device: main, stream=lambda other: nullcontext())
    monkeypatch.setattr("climb.engine.second_stream.torch.cuda", streams)
    return main


def test_what_is_started_is_waited_for_once(main: Noting) -> None:
    beside, read = SecondStream(), Read()
    beside.wait(GPU)
    assert not main.waited_for  # nothing has been started
    beside.start(lambda: None, read)  # type: ignore[arg-type]
    assert len(read.kept_for) == 1
    beside.wait(GPU)
    beside.wait(GPU)
    assert main.waited_for == read.kept_for


def test_so_is_what_broke_off(main: Noting) -> None:
    """Kernels that were begun before it did go on, and read what they read."""
    beside, read = SecondStream(), Read()
    with pytest.raises(ZeroDivisionError):
        beside.start(lambda: 1 / 0, read)  # type: ignore[arg-type]
    beside.wait(GPU)
    assert main.waited_for == read.kept_for != []
