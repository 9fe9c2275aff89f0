"""A run stopped anywhere, by anything, and started again is the run that was never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from climb.engine import Engine, Observation
from climb.engine.health import Health
from climb.errors import InputError
from climb.evaluation import Row
from climb.runs import Journal, RunFolder
from climb.runs.run_file_checks import read_object
from climb.session import Finished, Interrupted, Session, execute, results
from climb.session.evaluation import Evaluator
from climb.session.signals import outliving_sigterm, stop_on_signal
from climb.settings.config import Execution, RunConfig, to_dict

Make = Callable[..., RunConfig]
CPU = Execution(device="cpu")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unstopped")


@pytest.fixture
def unstopped(shelf: Path, make_config: Make) -> Callable[[str], Path]:
    """The folder of the run that nobody stopped, under a preset; computed once."""

    def folder(preset: str) -> Path:
        execute(make_config(preset=preset, evaluation={"network": "both"}), CPU, shelf / preset)
        return shelf / preset

    return folder


def signal_after(monkeypatch: pytest.MonkeyPatch, number: int, batch: int) -> None:
    """Have a real signal arrive while mini-batch ``batch``, counted from here, is learned from."""
    observe, seen = Engine.observe, Counter[str]()

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        seen["batches"] += 1
        if seen["batches"] == batch:
            os.kill(os.getpid(), number)
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", watched)


def assert_same_run(folder: Path, expected: Path) -> None:
    ours, theirs = (read_object(path / "result.json") for path in (folder, expected))
    for result in (ours, theirs):
        del result["seconds"]
    assert ours == theirs
    assert (folder / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    journals = [Journal(path / "journal.jsonl").read() for path in (folder, expected)]
    ours, theirs = ([line for line in lines if line["event"] != "start"] for lines in journals)
    assert ours == theirs
    assert not (folder / "checkpoint").exists()


def no_line_twice(folder: Path) -> bool:
    lines = [line for line in Journal(folder / "journal.jsonl").read() if line["event"] != "start"]
    return max(Counter((line["batch"], line["event"], line.get("network")) for line in lines).values()) == 1


@pytest.mark.parametrize(
    ("number", "batch", "preset"),
    [
        (signal.SIGHUP, 1, "default"),  # the terminal was closed
        (signal.SIGINT, 5, "paper"),  # inside a task
        (signal.SIGTERM, 7, "default"),  # the last of a task: its evaluation is kept
        (signal.SIGTERM, 14, "default"),  # the last of all
    ],
)
def test_a_signal_stops_at_a_mini_batch_and_the_same_call_continues(
    number: int,
    batch: int,
    preset: str,
    make_config: Make,
    unstopped: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = unstopped(preset)
    config, folder = make_config(preset=preset, evaluation={"network": "both"}), tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_after(patch, number, batch)
        with pytest.raises(Interrupted):
            execute(config, CPU, folder)
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    assert state["done"] == batch
    assert RunFolder(folder).result() is None
    execute(config, CPU, folder)
    assert no_line_twice(folder)
    assert_same_run(folder, expected)


def test_a_run_that_outlives_sigterm_saves_its_state_and_goes_on(
    make_config: Make, unstopped: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save = list[int](), RunFolder.save_checkpoint

    def noted(self: RunFolder, state: dict[str, Any]) -> None:
        saved.append(state["done"])
        save(self, state)

    config, folder = make_config(evaluation={"network": "both"}), tmp_path / "run"
    with monkeypatch.context() as patch, outliving_sigterm():
        patch.setattr(RunFolder, "save_checkpoint", noted)
        signal_after(patch, signal.SIGTERM, 5)
        execute(config, CPU, folder)
    assert saved == [5, 14]  # once, and at the end as ever
    assert_same_run(folder, unstopped("default"))


def test_a_queue_that_acts_on_sigterm_is_told_of_it() -> None:
    """As submitit does with SUBMITIT_PREEMPT_SIGNAL=TERM: it queues the run again."""
    told = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        with outliving_sigterm(), stop_on_signal() as stop:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [signal.SIGTERM]
    assert (stop.asked, stop.save_asked) == (False, True)


def test_stopped_again_and_again(
    make_config: Make, unstopped: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(evaluation={"network": "both"})
    stops = 0
    while True:
        with monkeypatch.context() as patch:
            signal_after(patch, signal.SIGTERM, 4)  # four mini-batches a sitting
            try:
                execute(config, CPU, tmp_path / "run")
                break
            except Interrupted:
                stops += 1
    assert stops == 3
    assert_same_run(tmp_path / "run", unstopped("default"))


KILLED = """
import json, os, signal, sys
from climb.settings.config import Execution, RunConfig, from_dict
from climb.engine import Engine
from climb.session import execute

observe, seen = Engine.observe, []

def watched(self, images):
    seen.append(1)
    if len(seen) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return observe(self, images)

Engine.observe = watched
config = from_dict(RunConfig, json.loads(sys.argv[1]))
execute(config, Execution(device="cpu", checkpoint_seconds=float(sys.argv[4])), sys.argv[2])
"""


@pytest.mark.parametrize(("batch", "checkpoint_seconds", "done"), [(10, 0.0, 9), (3, 60.0, None)])
def test_a_killed_process_continues_from_its_last_checkpoint(
    batch: int,
    checkpoint_seconds: float,
    done: int | None,
    make_config: Make,
    unstopped: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    expected = unstopped("default")
    config, folder = make_config(evaluation={"network": "both"}), tmp_path / "run"
    arguments = [json.dumps(to_dict(config)), str(folder), str(batch), str(checkpoint_seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    state = RunFolder(folder).load_checkpoint()
    assert (None if state is None else state["done"]) == done
    # What a crash in the middle of a write looks like.
    with open(folder / "journal.jsonl", "a") as journal:
        journal.write('{"batch": 99, "event": "train", "obj')
    execute(config, CPU, folder)
    assert no_line_twice(folder)
    assert_same_run(folder, expected)


def test_a_failure_between_checkpoints_costs_only_what_came_after(
    make_config: Make, unstopped: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal lines past the checkpoint are cut, then written again."""
    config, folder = make_config(evaluation={"network": "both"}), tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_after(patch, signal.SIGTERM, 3)
        with pytest.raises(Interrupted):
            execute(config, CPU, folder)
    observe, seen = Engine.observe, Counter[str]()

    def fails(self: Engine, images: torch.Tensor) -> Observation:
        seen["batches"] += 1
        if seen["batches"] == 9:
            raise MemoryError("the machine is full")
        return observe(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "observe", fails)
        with pytest.raises(MemoryError):
            execute(config, CPU, folder)
    assert max(line["batch"] for line in Journal(folder / "journal.jsonl").read()) == 11
    execute(config, CPU, folder)
    assert_same_run(folder, unstopped("default"))


def test_a_signal_while_the_result_is_written_waits_for_it(
    make_config: Make, unstopped: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = make_config(evaluation={"network": "both"}), tmp_path / "run"
    save = results.save_encoder

    def asked_meanwhile(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(*arguments, **options)

    monkeypatch.setattr(results, "save_encoder", asked_meanwhile)
    with pytest.raises(Finished) as stopped:  # the request is not lost on whoever has more runs to do
        execute(config, CPU, folder)
    assert stopped.value.result == RunFolder(folder).result()
    assert_same_run(folder, unstopped("default"))
    assert execute(config, CPU, folder) == RunFolder(folder).result()


def test_what_ends_a_run_while_its_result_is_written_costs_no_learning(
    make_config: Make, unstopped: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = make_config(evaluation={"network": "both"}), tmp_path / "run"

    def dies(*_: Any, **__: Any) -> None:
        raise MemoryError("as good as kill -9")

    with monkeypatch.context() as patch:
        patch.setattr(results, "save_encoder", dies)
        with pytest.raises(MemoryError):
            execute(config, CPU, folder)
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    assert (state["done"], state["pending"]) == (14, None)
    execute(config, CPU, folder)
    assert no_line_twice(folder)
    assert_same_run(folder, unstopped("default"))


def test_seconds_add_up_over_sittings(make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = make_config(), tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_after(patch, signal.SIGTERM, 10)
        with pytest.raises(Interrupted):
            execute(config, CPU, folder)
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    first: dict[str, Any] = state["seconds"]
    total = execute(config, CPU, folder)["seconds"]
    assert total["train"] > first["train"] > 0
    assert total["total"] > first["total"] > 0


def test_seconds_are_told_apart_by_what_they_were_spent_on(
    make_config: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_clock: Callable[[Callable[[], float]], None],
) -> None:
    now, saved = 0.0, list[int]()
    observe, rows, save = Engine.observe, Evaluator.rows, RunFolder.save_checkpoint

    def a_second(self: Engine, images: torch.Tensor) -> Observation:
        nonlocal now
        now += 1.0
        return observe(self, images)

    def a_hundred(self: Evaluator, engine: Engine, after: int) -> dict[str, tuple[Row, Health | None]]:
        nonlocal now
        now += 100.0
        return rows(self, engine, after)

    def ten(self: RunFolder, state: dict[str, Any]) -> None:
        nonlocal now
        saved.append(state["done"])
        save(self, state)
        now += 10.0

    monkeypatch.setattr(Engine, "observe", a_second)
    monkeypatch.setattr(Evaluator, "rows", a_hundred)
    monkeypatch.setattr(RunFolder, "save_checkpoint", ten)
    set_clock(lambda: now)
    config, folder = make_config(evaluation={"epochs": 1}), tmp_path / "run"
    execution = Execution(device="cpu", checkpoint_seconds=3.5)
    with monkeypatch.context() as patch:
        signal_after(patch, signal.SIGTERM, 7)  # the last of a task: its evaluation is the next sitting's
        with pytest.raises(Interrupted):
            execute(config, execution, folder)
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    assert state["seconds"] == {"train": 7.0, "evaluate": 100.0, "total": 127.0}
    assert saved == [1, 5, 7]  # the first after the random encoder was evaluated
    now += 5000.0  # between the sittings
    assert execute(config, execution, folder)["seconds"] == {"train": 14.0, "evaluate": 300.0, "total": 354.0}
    assert saved == [1, 5, 7, 8, 12, 14]


# -- the request -----------------------------------------------------------------------------------------------------


def test_the_second_signal_does_not_wait() -> None:
    def ask_twice() -> None:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.asked
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        ask_twice()


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_on_signal():  # as under nohup
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.signal(signal.SIGHUP, ignored)
    with stop_on_signal() as stop:
        assert not stop.asked
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_outside_the_main_thread_leaves_signals_alone(make_config: Make, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    worker = threading.Thread(target=lambda: found.append(execute(make_config(), CPU, tmp_path / "run")))
    worker.start()
    worker.join()
    assert found[0]["gradient_steps"] == 42


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second is refused while the first is at work, and told what to do."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "climb", "run", "--device", "cpu", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            while not (out / ".lock").exists() or not (out / ".lock").read_text():
                assert first.poll() is None
                time.sleep(0.05)
            second = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            first.kill()
    assert second.returncode == 2
    assert f"another process (id {first.pid}) is using {out}" in second.stderr


def test_what_killed_processes_left_is_swept_away(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_after(patch, signal.SIGINT, 5)
        with pytest.raises(Interrupted):
            execute(make_config(), CPU, out)
    names = (".memory.safetensors.1a.tmp", ".result.json.2b.tmp", "checkpoint/.state.safetensors.3c.tmp")
    left = [out / name for name in names]
    for file in left:
        file.touch()
    execute(make_config(), Execution(device="cpu", keep=True), out)
    assert (out / "checkpoint" / "state.safetensors").exists()
    assert not any(file.exists() for file in left)


def test_a_folder_that_another_run_took_meanwhile_is_refused(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found it empty; the other had its lock first."""
    out, claim = tmp_path / "run", RunFolder.claim

    def late(self: RunFolder, *args: Any, **options: Any) -> None:
        claim(RunFolder(out), make_config(seed=1), CPU, {})
        claim(self, *args, **options)

    monkeypatch.setattr(RunFolder, "claim", late)
    with pytest.raises(InputError, match=r"holds another run \(seed: 1 there, 0 given\)"):
        execute(make_config(), CPU, out)


def test_a_run_stopped_where_a_task_ends_has_been_told_of_that_end(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CaSSLe takes its snapshot there: a signal on a task's last mini-batch must not cost it."""
    config = make_config(learner={"method": "cassle-r"}, evaluation={"network": "student"})
    execute(config, CPU, tmp_path / "unstopped")
    with monkeypatch.context() as patch:
        signal_after(patch, signal.SIGTERM, 7)  # the last of the first task
        with pytest.raises(Interrupted):
            execute(config, CPU, tmp_path / "run")
    execute(config, CPU, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "unstopped")


def test_any_process_may_be_asked_to_stop_and_the_first_ones_clock_counts() -> None:
    together = object.__new__(Session)

    def said(*table: list[int]) -> SimpleNamespace:
        return SimpleNamespace(size=len(table), all_gather=lambda *own: table)

    together.group = said([0, 1], [1, 0])  # type: ignore[assignment]
    assert together._decided(True, False) == (True, True)
    together.group = said([0, 0], [0, 1])  # type: ignore[assignment]
    assert together._decided(False, True) == (False, False)
