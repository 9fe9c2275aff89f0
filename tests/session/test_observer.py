"""Observers that the caller passes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.engine import Observation
from climb.errors import ClimbError, InputError
from climb.runs import RunFolder
from climb.session import Batch, Interrupted, Observer, Session, execute, learn
from climb.settings.config import Execution, RunConfig

Make = Callable[..., RunConfig]
Write = Callable[..., Path]
CPU = Execution(device="cpu")


class Recorder(Observer):
    """Adds up the pixels of all images, and notes which methods were called. Stops at a mini-batch if asked to."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.pixels = 0
        self.images = 0
        self.calls: list[str] = []
        self._stop_at = stop_at

    def start(self, session: Session) -> None:
        self.calls.append("start")

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        assert torch.isfinite(observation.objective)
        self.pixels += int(batch.images.sum())
        self.images += len(batch.images)
        if session.done == self._stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def at_boundary(self, session: Session, segment: int) -> None:
        self.calls.append(f"at_boundary {segment}")

    def at_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        self.calls.append("at_checkpoint")

    def at_stop(self, session: Session) -> None:
        self.calls.append("at_stop")

    def finish(self, session: Session) -> None:
        self.calls.append("finish" if session.complete else "finish incomplete")

    def close(self, session: Session) -> None:
        self.calls.append("close")

    def state_dict(self) -> dict[str, Any]:
        return {"pixels": self.pixels, "images": self.images}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pixels, self.images = state["pixels"], state["images"]


def test_an_observer_of_a_run_sees_every_batch_and_is_resumed(make_config: Make, tmp_path: Path) -> None:
    whole = Recorder()
    execute(make_config(), CPU, tmp_path / "whole", observers=[whole])
    assert whole.images == 140
    end = ["at_stop", "at_checkpoint", "finish", "close"]
    assert whole.calls == ["start", "at_boundary 0", "at_boundary 1", *end]
    first, second = Recorder(stop_at=9), Recorder()
    with pytest.raises(Interrupted):
        execute(make_config(), CPU, tmp_path / "run", observers=[first])
    assert first.images == 90
    assert first.calls == ["start", "at_boundary 0", "at_stop", "at_checkpoint", "finish incomplete", "close"]
    execute(make_config(), CPU, tmp_path / "run", observers=[second])
    assert (second.images, second.pixels) == (whole.images, whole.pixels)


def test_an_observer_changes_nothing_in_a_run(make_config: Make, tmp_path: Path) -> None:
    execute(make_config(), CPU, tmp_path / "with", observers=[Recorder()])
    execute(make_config(), CPU, tmp_path / "without")
    for name in ("journal.jsonl", "model.safetensors"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


def test_an_observer_of_a_learner_sees_every_batch_and_is_resumed(
    fill: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    images, first, second = fill(tmp_path / "images", 45), Recorder(stop_at=2), Recorder()
    with pytest.raises(Interrupted):
        learn(images, out=tmp_path / "out", observers=[first], **small)
    assert first.images == 20
    learn(images, out=tmp_path / "out", observers=[second], **small)
    assert second.images == 45
    assert second.calls == ["start", "at_stop", "at_checkpoint", "finish", "close"]


def test_an_observer_may_join_and_leave_between_sittings(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    learn(fill(tmp_path / "images", 20), out=tmp_path / "out", **small)
    late = Recorder()
    learn(fill(tmp_path / "images", 10, first=20), out=tmp_path / "out", observers=[late], **small)
    assert late.images == 10
    assert learn(fill(tmp_path / "images", 10, first=30), out=tmp_path / "out", **small).images == 40


@pytest.mark.parametrize("method", ["start", "after_batch", "at_boundary", "at_checkpoint", "state_dict", "finish"])
def test_an_exception_of_an_observer_ends_the_run_and_names_it(method: str, make_config: Make, tmp_path: Path) -> None:
    def fails(self: Observer, *_: Any) -> None:
        raise ValueError("no room on the wall")

    faulty = type("Faulty", (Observer,), {method: fails})()
    with pytest.raises(ClimbError, match=f"observer Faulty: {method} raised ValueError: no room on the wall"):
        execute(make_config(), CPU, tmp_path / "run", observers=[faulty])
    assert (RunFolder(tmp_path / "run").result() is not None) == (method == "finish")  # which comes after the result


def test_an_exception_of_an_observer_is_no_full_disk(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    """A learner survives a checkpoint that cannot be written."""

    class Faulty(Observer):
        def at_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
            raise OSError("no room on the wall")

    with pytest.raises(ClimbError, match="observer Faulty: at_checkpoint raised OSError"):
        learn(fill(tmp_path / "images", 30), out=tmp_path / "out", observers=[Faulty()], checkpoint_seconds=0, **small)


@pytest.mark.parametrize(
    ("observers", "message"),
    [([print], "must be instances of climb.session.Observer"), ([Observer(), Observer()], "several observers")],
)
def test_observers_are_checked_before_any_work(
    observers: list[Any], message: str, make_config: Make, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        execute(make_config(), CPU, tmp_path / "run", observers=observers)
    with pytest.raises(InputError, match=message):
        learn([], out=tmp_path / "out", observers=observers)
    assert not any(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_does_not_fail_the_run(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(folder: Path) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("climb.session.results.write_report", fails)
        result = execute(make_config(), CPU, tmp_path / "run")
    assert "no report page in" in caplog.text
    assert not (tmp_path / "run" / "report.html").exists()
    assert execute(make_config(), CPU, tmp_path / "run") == result  # which writes the missing page
    assert (tmp_path / "run" / "report.html").exists()
