"""Killed at any moment, started again: every file is learned exactly once by the model that survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.engine import Engine, Observation
from climb.images.tensors import Decoder
from climb.runs import Journal, RunFolder
from climb.session import Finished, Interrupted, feeds, learn, learning
from climb.sources import Source
from climb.sources import folder as folder_source
from climb.sources.folder import find_file
from climb.sources.item import Pending, SeenFilter

Write = Callable[..., Path]

# Imports once and forks: what is killed is a learner at work, not one that imports torch.
KILLER = """
import json, os, random, signal, sys, time
from climb.session import learn

images, out, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
dice, kills, killed = random.Random(int(sys.argv[4])), int(sys.argv[5]), 0
while True:
    child = os.fork()
    if child == 0:
        learn(images, out=out, **options)
        os._exit(0)
    if killed < kills:
        time.sleep(dice.uniform(0.05, 0.2 + 0.1 * killed))  # fast and slow machines both have their moments
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed += os.WIFSIGNALED(status)
    if os.WIFEXITED(status):
        print(json.dumps({"killed": killed, "code": os.WEXITSTATUS(status)}))
        break
"""


def digests(out: Path) -> np.ndarray:
    return np.fromfile(out / "learned.u64", dtype=np.uint64)


def checkpoint(out: Path) -> dict[str, Any]:
    state = RunFolder(out).load_checkpoint()
    assert state is not None
    return state


def stored_images(out: Path) -> list[bytes]:
    return sorted(image.numpy().tobytes() for image in checkpoint(out)["engine"]["memory"]["images"])


def all_images(folder: Path) -> list[bytes]:
    return sorted(np.asarray(Image.open(file)).transpose(2, 0, 1).tobytes() for file in folder.rglob("*.png"))


def test_killed_at_random_moments_it_learns_every_file_exactly_once(
    fill: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    folder = fill(tmp_path / "images", 900)
    # A memory that keeps everything shows what the model was given; the journal is written all the time.
    options = {**small, "method": "er-fifo", "budget": 1000, "checkpoint_seconds": 0.1, "journal_seconds": 0.05}
    arguments = [str(folder), str(tmp_path / "killed"), json.dumps(options), "1", "6"]
    ran = subprocess.run([sys.executable, "-c", KILLER, *arguments], capture_output=True, text=True, check=True)
    said = json.loads(ran.stdout)
    assert said["code"] == 0
    assert said["killed"] >= 2, ran.stderr
    state = checkpoint(tmp_path / "killed")
    assert state["engine"]["budget"]["images"] == 900
    assert len(digests(tmp_path / "killed")) == 900
    assert len(np.unique(digests(tmp_path / "killed"))) == 900
    assert stored_images(tmp_path / "killed") == all_images(folder)
    journal = Journal(tmp_path / "killed" / "journal.jsonl")
    batches = [line["batch"] for line in journal.read("train")]
    assert batches == sorted(set(batches))  # what was learned again is told once
    assert max(line["stored"] for line in journal.read("train")) <= 1000
    # The same bits as a learner that nobody killed.
    learn(folder, out=tmp_path / "whole", **{**options, "journal_seconds": 1000.0, "checkpoint_seconds": 1000.0})
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert models[0] == models[1]


@pytest.mark.slow(seconds=12)
def test_the_bound_holds_over_a_killed_life(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 400)
    options = {**small, "budget": 60, "checkpoint_seconds": 0.1, "journal_seconds": 0.0}
    arguments = [str(folder), str(tmp_path / "out"), json.dumps(options), "2", "3"]
    subprocess.run([sys.executable, "-c", KILLER, *arguments], capture_output=True, text=True, check=True)
    lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
    assert len(lines) == 40  # one for every mini-batch
    assert max(line["stored"] for line in lines) <= 60
    assert lines[-1]["images"] == 400
    assert len(np.unique(digests(tmp_path / "out"))) == 400


def terminate_at(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Have a real signal arrive while mini-batch ``batch``, counted from here, is learned from."""
    observe, seen = Engine.observe, Counter[str]()

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        seen["batches"] += 1
        if seen["batches"] == batch:
            os.kill(os.getpid(), signal.SIGTERM)
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", watched)


def test_a_signal_saves_everything_and_the_same_call_continues_to_the_same_bits(
    fill: Write, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "images", 300)
    out = tmp_path / "stopped"
    stops = 0
    while True:
        with monkeypatch.context() as patch:
            terminate_at(patch, 7)  # seven mini-batches a sitting
            try:
                learned = learn(folder, out=out, **small)
                break
            except Interrupted:
                stops += 1
        state = checkpoint(out)
        assert state["engine"]["budget"]["images"] == len(digests(out)) == 70 * stops  # whole mini-batches
    assert stops == 4
    assert (learned.images, learned.capacity) == (300, 100)
    learn(folder, out=tmp_path / "whole", **small)
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    for ours, theirs in zip(
        checkpoint(out)["engine"]["network"].values(), checkpoint(tmp_path / "whole")["engine"]["network"].values(),
        strict=True,
    ):  # fmt: skip
        assert torch.equal(ours, theirs)


def test_again_it_learns_only_what_is_new(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 25)
    assert learn(folder, out=tmp_path / "out", **small).new_images == 25
    before = (tmp_path / "out" / "checkpoint" / "state.safetensors").read_bytes()
    assert learn(folder, out=tmp_path / "out", **small).new_images == 0
    assert (tmp_path / "out" / "checkpoint" / "state.safetensors").read_bytes() == before
    fill(folder, 7, first=25)
    (folder / "bad.png").write_bytes(b"no image")
    learned = learn(folder, out=tmp_path / "out", **small)
    assert (learned.new_images, learned.images, learned.passed_over) == (7, 32, {"not an image": 1})
    # What is damaged is known too, and counted once; repaired, it is another file.
    assert learn(folder, out=tmp_path / "out", **small).passed_over == {"not an image": 1}
    (folder / "bad.png").write_bytes((folder / "00000.png").read_bytes())
    assert learn(folder, out=tmp_path / "out", **small).new_images == 1


def test_a_path_that_an_iterable_repeats_is_learned_once(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    """Also in the first sitting, whose list of seen images is empty."""
    paths = sorted(fill(tmp_path / "images", 4).iterdir())
    assert learn([*paths, *paths], out=tmp_path / "out", **small).new_images == 4
    assert learn([*paths, *paths], out=tmp_path / "out", **small).new_images == 0


def test_stopped_by_a_signal_an_iterable_loses_nothing_that_was_taken_from_it(
    small: dict[str, Any], tmp_path: Path
) -> None:
    given: list[bytes] = []

    def images() -> Iterator[np.ndarray]:
        generator = np.random.default_rng(0)
        while True:
            picture = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            given.append(picture.transpose(2, 0, 1).tobytes())
            if len(given) == 57:
                os.kill(os.getpid(), signal.SIGTERM)
            yield picture

    with pytest.raises(Interrupted):
        learn(images(), out=tmp_path / "out", **{**small, "budget": 500}, method="er-fifo")
    assert 57 <= len(given) < 500
    assert stored_images(tmp_path / "out") == sorted(given)


def test_stopped_by_a_signal_every_path_taken_from_standard_input_is_learned(
    fill: Write, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(fill(tmp_path / "images", 12).iterdir())

    def slowly(path: str, decoder: Decoder, seen: SeenFilter) -> Iterator[Pending]:
        time.sleep(0.15)  # a network drive
        if path == str(files[4]):
            os.kill(os.getpid(), signal.SIGTERM)
        return find_file(path, decoder, seen)

    monkeypatch.setattr(folder_source, "find_file", slowly)
    monkeypatch.setattr(feeds, "PATIENCE", 0.05)
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{file}\n" for file in files).encode())
    with os.fdopen(reader) as paths:
        monkeypatch.setattr(sys, "stdin", paths)
        with pytest.raises(Interrupted):
            learn("-", out=tmp_path / "out", **small, method="er-fifo")
    os.close(writer)
    assert stored_images(tmp_path / "out") == all_images(tmp_path / "images")


def test_a_signal_after_the_last_image_leaves_none_for_the_next_sitting(
    fill: Write, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a mini-batch that is not full."""
    fill(tmp_path / "images", 13)
    arrivals = Source.arrivals

    def asked_at_the_end(self: Source, **options: Any) -> Iterator[Any]:
        yield from arrivals(self, **options)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Source, "arrivals", asked_at_the_end)
    with pytest.raises(Finished) as stopped:
        learn(tmp_path / "images", out=tmp_path / "out", **small, method="er-fifo")
    assert stopped.value.result.images == 13
    assert stored_images(tmp_path / "out") == all_images(tmp_path / "images")


def test_an_iterable_that_never_answers_does_not_keep_a_stopped_learner(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "ENDING_SECONDS", 0.5)
    over = threading.Event()

    def images() -> Iterator[np.ndarray]:
        for number in range(13):
            yield np.full((16, 16, 3), number, np.uint8)
        os.kill(os.getpid(), signal.SIGTERM)
        over.wait(300)

    began = time.monotonic()
    with pytest.raises(Interrupted):
        learn(images(), out=tmp_path / "out", **small, method="er-fifo")
    over.set()
    assert time.monotonic() - began < 200
    assert len(stored_images(tmp_path / "out")) == 13


def test_stopped_by_a_signal_a_camera_has_every_frame_learned_that_it_gave_before(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(seen: SeenFilter, stop: threading.Event) -> Iterator[Pending]:
        for number in range(27):
            image = torch.full((3, 16, 16), number, dtype=torch.uint8)
            yield Pending(identity=None, where=str(number), load=lambda image=image: image)  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait(60)

    camera = Source(read, name="camera", rereadable=False, endless=True, live=True)
    monkeypatch.setattr(learning, "open_source", lambda *arguments, **options: camera)
    with pytest.raises(Interrupted):
        learn("/dev/video0", out=tmp_path / "out", **small, method="er-fifo")
    assert camera.dropped == 0
    assert len(stored_images(tmp_path / "out")) == 27


# Given the list of what a learner has learned, at most a hundred files ahead of it: it fills while that one learns.
FILLER = """
import sys, time
from pathlib import Path
source, target, learned = Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]]
for number, file in enumerate(sorted(source.iterdir())):
    while any(number > (path.stat().st_size // 8 if path.exists() else 0) + 100 for path in learned):
        time.sleep(0.01)
    data = file.read_bytes()
    place = target / str(number % 3)
    place.mkdir(exist_ok=True)
    with open(place / file.name, "wb") as handle:  # in two pieces, as a slow writer does
        handle.write(data[:100])
        handle.flush()
        time.sleep(0.01)
        handle.write(data[100:])
"""


@pytest.mark.slow(seconds=12)
def test_a_folder_that_another_process_fills_is_followed_and_a_signal_ends_it(
    fill: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    pictures, folder, out = fill(tmp_path / "pictures", 123), tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-m", "climb", "learn", str(folder), "--out", str(out), "--watch", "--method", "er-fifo"]
    options = {**small, "budget": 200, "checkpoint_seconds": 0.5, "journal_seconds": 0.5}
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    learner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    filler = subprocess.Popen([sys.executable, "-c", FILLER, str(pictures), str(folder)])
    try:
        assert filler.wait(timeout=300) == 0
        deadline = time.monotonic() + 300
        while len(digests(out) if (out / "learned.u64").exists() else ()) < 123 and time.monotonic() < deadline:
            assert learner.poll() is None
            time.sleep(0.1)
        learner.send_signal(signal.SIGTERM)
        _, said = learner.communicate(timeout=300)
    finally:
        learner.kill()
        filler.kill()
    assert learner.returncode == 130
    assert "the same command continues" in said
    assert stored_images(out) == all_images(pictures)  # each once, none of them half
    assert checkpoint(out)["passed_over"] == {}


# As the killer above, of learners that never end by themselves; the last one is asked to when all is learned. A life
# is as long as some images take, whatever time that is: all lives of a slow machine would end before it has begun.
WATCHED_KILLER = """
import json, os, random, signal, subprocess, sys, time
from pathlib import Path
from climb.session import learn
from climb.session import Interrupted
from climb.sources import watch

watch.POLL_SECONDS, watch.SETTLED_SECONDS = 0.05, 1.0
images, out, options, dice = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), random.Random(5)
count, filler = int(sys.argv[4]), subprocess.Popen([sys.executable, "-c", *sys.argv[5:]])

def learned():
    return (out / "learned.u64").stat().st_size // 8 if (out / "learned.u64").exists() else 0

kills, limit = [], time.monotonic() + 600
while True:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until the learner has a handler of its own
        try:
            learn(images, out=out, watch=True, **options)
        except Interrupted:
            os._exit(0)
        os._exit(1)
    enough = learned() + dice.randint(20, 90)
    while learned() < enough and filler.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    if filler.poll() is None and time.monotonic() < limit:
        time.sleep(dice.uniform(0, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills.append(learned())
        continue
    while learned() < count and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(2.0)  # what would come twice comes now
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"kills": kills, "filler": filler.returncode, "code": os.waitstatus_to_exitcode(status)}))
    break
"""


@pytest.mark.slow(seconds=12)
def test_killed_at_random_moments_while_another_process_fills_its_folder_it_learns_every_file_exactly_once(
    fill: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    pictures, folder, out = fill(tmp_path / "pictures", 400), tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    options = {**small, "method": "er-fifo", "budget": 500, "checkpoint_seconds": 0.1, "journal_seconds": 0.1}
    filler = [FILLER, str(pictures), str(folder), str(out / "learned.u64")]
    arguments = [str(folder), str(out), json.dumps(options), "400", *filler]
    ran = subprocess.run([sys.executable, "-c", WATCHED_KILLER, *arguments], capture_output=True, text=True, check=True)
    said = json.loads(ran.stdout)
    assert (said["filler"], said["code"]) == (0, 0), ran.stderr
    assert sum(0 < learned < 400 for learned in said["kills"]) >= 2, said  # at work, with more to go on from
    assert len(np.unique(digests(out))) == len(digests(out)) == 400
    assert stored_images(out) == all_images(pictures)  # each once, none of them half
    assert checkpoint(out)["passed_over"] == {}
