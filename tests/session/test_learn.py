"""`learn` from everything a source can be, and what it leaves behind."""

from __future__ import annotations

import io
import math
import mmap
import os
import re
import resource
import signal
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.engine import Engine, Observation
from climb.errors import ClimbError, InputError
from climb.images.decode import CORRUPT, UNREADABLE, ImageError
from climb.nets import load_encoder
from climb.nets.build import find_backbone
from climb.runs import Journal, RunFolder
from climb.runs.run_file_checks import read_object
from climb.session import MEASURES, Finished, Interrupted, learn
from climb.session.journal_lines import resident_bytes
from climb.session.trackers import TRACKERS, open_tracker
from climb.settings.config import RunConfig
from climb.settings.recipes import PRETRAINED, SIZES
from climb.sources import Item, PassedOver, Source
from climb.sources.item import Pending, Read, SeenFilter, failed
from climb.sources.prefetch import Arrival

DECLARED = dict(PRETRAINED)  # before tests empty it
Write = Callable[..., Path]
Small = dict[str, Any]
SetClock = Callable[[Callable[[], float]], None]


def pictures(count: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    for _ in range(count):
        yield generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)


def found(count: int) -> list[Item]:
    images = [torch.from_numpy(picture.transpose(2, 0, 1).copy()) for picture in pictures(count)]
    return [Item(identity=number, image=image, where="here") for number, image in enumerate(images)]


def test_what_is_in_the_folder(fill: Write, small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    learned = learn(fill(tmp_path / "images", 105), out=out, **small, journal_seconds=0.0, checkpoint_seconds=0.0)
    assert (learned.images, learned.new_images, learned.folder) == (105, 105, out)
    assert 0 < learned.stored <= learned.capacity == 100
    lines = Journal(out / "journal.jsonl").read("train")
    assert [line["images"] for line in lines] == [*range(10, 101, 10), 105]  # the last mini-batch is a short one
    measures = set(MEASURES) - {"novelty", "novel_images", "changes"}  # of --novel
    assert set(lines[-1]) == {"batch", "event", "time", *measures}
    assert all(lines[-1][name] is not None for name in measures)
    assert all(line["stored"] <= 100 for line in lines)
    (start,) = Journal(out / "journal.jsonl").read("start")
    assert start["rereadable"] is True
    saved = load_encoder(out / "model.safetensors")
    assert (saved.backbone, saved.image_size) == ("micro", 16)
    assert saved.encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 128)
    config = read_object(out / "config.json")
    assert config["config"]["learner"]["memory"]["capacity"] == 100
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoint", "config.json", "journal.jsonl", "learned.u64", "lock", "memory.png", "model.safetensors",
        "report.html",
    ]  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say")
def test_what_is_reserved_and_never_used_is_not_resident() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 2**30):
        after = resident_bytes()
    assert before is not None
    assert after is not None
    assert after - before < 2**29


def test_a_memory_without_centroids_and_a_method_without_memory(small: Small, tmp_path: Path) -> None:
    for method, stored in (("er-reservoir", 40), ("finetune", 0)):
        out = tmp_path / method
        assert learn(pictures(40), out=out, **small, method=method, checkpoint_seconds=0.0).stored == stored
        (line,) = Journal(out / "journal.jsonl").read("train")
        assert line["stored"] == stored
        assert set(line) <= {"batch", "event", "time", *MEASURES}


@pytest.mark.parametrize("journal_seconds", [0.0, 1000.0])
def test_a_line_of_the_journal_is_about_what_came_since_the_last_one(
    journal_seconds: float, fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a mini-batch each, or of a whole sitting; in a second sitting, too."""
    observe, seen, ever = Engine.observe, list[Observation](), Counter[str]()

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        observation = observe(self, images)
        report = replace(observation.report, evicted=len(seen), merged=2)  # which a small memory rarely does
        ever.update(asdict(report))
        seen.append(replace(observation, report=report))
        return seen[-1]

    monkeypatch.setattr(Engine, "observe", watched)
    for sitting in range(2):
        seen.clear()
        folder = fill(tmp_path / "images", 50, first=50 * sitting)
        learned = learn(folder, out=tmp_path / "out", **small, journal_seconds=journal_seconds)
        lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
        size = 1 if journal_seconds == 0 else 5  # mini-batches of a line
        groups = [seen[start : start + size] for start in range(0, 5, size)]
        assert len(seen) == 5
        assert len(lines) == (sitting + 1) * len(groups)
        for line, group in zip(lines[-len(groups) :], groups, strict=True):
            reports = [seen.report for seen in group]
            assert line["objective"] == pytest.approx(sum(float(seen.objective) for seen in group) / size, rel=1e-5)
            assert line["novelty_rate"] == pytest.approx(sum(report.novel for report in reports) / (10 * size))
            centroids = line["stm_centroids"] + line["ltm_centroids"]
            moved = sum(report.evicted + report.merged for report in reports)
            assert line["centroid_turnover"] == pytest.approx(moved / centroids)
            assert line["occupancy"] == line["stored"] / 100
        assert lines[-1]["stored"] == learned.stored
        told = ("novel", "evicted", "promoted", "merged", "pruned")
        assert [lines[-1][name] for name in told] == [ever[name] for name in told]
        assert ("uniformity" in lines[-1]) == (sitting == 1)  # of images that were stored at the last checkpoint


def test_features_that_move_far_are_warned_of_once_and_not_in_a_young_network(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.session.journal_lines.drift", lambda *_: 0.9)
    small |= {"budget": 10, "replay_batch": 5, "method": "er-reservoir"}
    images, out = fill(tmp_path / "images", 130), tmp_path / "out"
    learn(images, out=out, **small, journal_seconds=0.0, checkpoint_seconds=0.0)
    (warning,) = Journal(out / "journal.jsonl").read("warning")
    assert warning["batch"] == 10  # a hundred images, ten times what the memory holds
    assert "have moved far" in warning["text"]


def test_seconds_are_those_of_all_sittings_however_often_they_are_saved(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_clock: SetClock
) -> None:
    now, observe = 100.0, Engine.observe

    def slowly(self: Engine, images: torch.Tensor) -> Observation:
        nonlocal now
        now += 7.0
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", slowly)
    set_clock(lambda: now)
    for sitting in (1, 2):
        folder = fill(tmp_path / "images", 30, first=30 * sitting)
        learned = learn(folder, out=tmp_path / "out", **small, checkpoint_seconds=0.0)
        assert (learned.new_images, learned.seconds) == (30, 21.0 * sitting)


def test_a_checkpoint_is_written_only_where_something_was_learned_since_the_last(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = RunFolder.save_checkpoint, list[int]()

    def watched(self: RunFolder, state: dict[str, Any]) -> None:
        saved.append(state["done"])
        save(self, state)

    monkeypatch.setattr(RunFolder, "save_checkpoint", watched)
    learn(fill(tmp_path / "images", 30), out=tmp_path / "out", **small, checkpoint_seconds=0.0)
    assert saved == [1, 2, 3]


def test_the_journal_is_cut_to_the_last_checkpoint(fill: Write, small: Small, tmp_path: Path) -> None:
    images, out = fill(tmp_path / "images", 20), tmp_path / "out"
    learn(images, out=out, **small)
    journal = Journal(out / "journal.jsonl")
    journal.write(99, "train", images=990)  # by a process that was killed before it could save what it had learned
    learn(images, out=out, **small)
    assert [line["batch"] for line in journal.read("start")] == [0, 2]
    assert [line["images"] for line in journal.read("train")] == [20]
    (out / "checkpoint" / "state.safetensors").unlink()  # killed before its first one
    learn(images, out=out, **small)
    assert [line["batch"] for line in journal.read("start")] == [0]
    assert [line["images"] for line in journal.read("train")] == [20]


def test_images_are_learned_in_the_order_in_which_they_come(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, seen = Engine.observe, list[torch.Tensor]()

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        seen.append(images)
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", watched)
    learn(pictures(30), out=tmp_path / "out", **small)
    assert np.array_equal(torch.cat(seen).permute(0, 2, 3, 1).numpy(), np.stack(list(pictures(30))))


def test_images_that_wait_for_their_mini_batch_to_fill_are_learned_once_none_has_come_for_a_while(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_clock: SetClock
) -> None:
    now, observe, seen, counts = 0.0, Engine.observe, list[int](), list[int]()

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        seen.append(len(images))
        return observe(self, images)

    def arrivals(**_: Any) -> Iterator[Arrival]:
        nonlocal now
        items = found(4)
        for arrival, seconds in ((items[0], 0), (items[1], 1), (None, 4), (None, 2), (items[2], 60), (items[3], 60)):
            now += seconds
            yield arrival
            counts.append(sum(seen))

    monkeypatch.setattr(Engine, "observe", watched)
    set_clock(lambda: now)
    folder = Source(lambda *_: iter(()), name="a watched folder", rereadable=True, endless=True)
    monkeypatch.setattr(folder, "arrivals", arrivals)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *_, **__: folder)
    learn("images", out=tmp_path / "out", **small, watch=True)
    assert counts == [0, 0, 0, 2, 2, 2]
    assert seen == [2, 2]


@pytest.mark.parametrize(
    ("live", "seconds"),
    [
        (True, [0, 0, 0.125, 1, 0.125, 0.125]),  # a camera gives a frame at once, or none
        (False, [0, 0, 9.5, 1, 9.5, 0.5]),  # behind a path may be a slow drive
    ],
)
def test_a_source_that_was_asked_to_end_is_waited_for_until_it_falls_silent(
    live: bool, seconds: list[float], small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_clock: SetClock
) -> None:
    now, told = 0.0, list[bool]()

    def arrivals(ending: threading.Event, **_: Any) -> Iterator[Arrival]:
        nonlocal now
        items = found(3)
        for arrival, passed in zip((items[0], items[1], None, items[2], None, None), seconds, strict=True):
            now += passed
            if arrival is items[1]:
                os.kill(os.getpid(), signal.SIGTERM)
            yield arrival
            told.append(ending.is_set())
        pytest.fail("it was waited for any longer")

    camera = Source(lambda *_: iter(()), name="a camera", rereadable=False, endless=True, live=live)
    monkeypatch.setattr(camera, "arrivals", arrivals)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *_, **__: camera)
    set_clock(lambda: now)
    with pytest.raises(Interrupted):
        learn("camera", out=tmp_path / "out", **small)
    assert told == [False, True, True, True, True]  # not asked for more after the last
    assert _images(tmp_path / "out") == 3


def test_a_source_that_ends_because_it_was_asked_to_is_not_at_its_end(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrivals(**_: Any) -> Iterator[Arrival]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield from found(3)

    queue = Source(lambda *_: iter(()), name="a queue", rereadable=False)
    monkeypatch.setattr(queue, "arrivals", arrivals)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *_, **__: queue)
    with pytest.raises(Interrupted) as stopped:
        learn("queue", out=tmp_path / "out", **small)
    assert not isinstance(stopped.value, Finished)
    assert Journal(tmp_path / "out" / "journal.jsonl").read("end") == []  # there may be more to come
    assert _images(tmp_path / "out") == 3


def test_another_seed_learns_another_network(small: Small, tmp_path: Path) -> None:
    first, again, other = (
        learn(pictures(10), out=tmp_path / name, **small, seed=seed).folder / "model.safetensors"
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    ours, same, another = (load_encoder(path).encoder.state_dict() for path in (first, again, other))
    assert all(torch.equal(ours[name], same[name]) for name in ours)
    assert not all(torch.equal(ours[name], another[name]) for name in ours)


def test_no_image_at_all_is_said_in_words_of_its_source(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    learn(tmp_path / "in", out=tmp_path / "folder", **small)
    assert "files count by their extension (.avif" in caplog.text
    caplog.clear()
    learn([], out=tmp_path / "iterable", **small)
    assert "no image came from an iterable" in caplog.text
    assert "extension" not in caplog.text


def test_tar_shards(fill: Write, small: Small, tmp_path: Path) -> None:
    files = sorted(fill(tmp_path / "images", 30).iterdir())
    for number in range(3):
        with tarfile.open(tmp_path / f"s{number}.tar", "w") as shard:
            for file in files[10 * number : 10 * number + 10]:
                shard.add(file, arcname=file.name)
    assert learn(f"{tmp_path}/s[01].tar", out=tmp_path / "out", **small).images == 20
    again = learn(f"{tmp_path}/s*.tar", out=tmp_path / "out", **small)
    assert (again.images, again.new_images) == (30, 10)
    # The same images in the same order, from a folder: the same model.
    learn(tmp_path / "images", out=tmp_path / "folder", **small)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "folder")]
    assert models[0] == models[1]


def test_a_video(small: Small, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "v.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for pixels in pictures(25):
            large = np.asarray(Image.fromarray(pixels).resize((48, 32)))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
        container.mux(stream.encode())
    assert learn(tmp_path / "v.mp4", out=tmp_path / "out", **small, every=2).images == 13
    assert learn(tmp_path / "v.mp4", out=tmp_path / "out", **small).new_images == 12  # those between


def test_standard_input_is_learned_as_it_comes(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = sorted(fill(tmp_path / "images", 23).iterdir())
    reader, writer = os.pipe()

    def speak() -> None:
        for file in files[:13]:
            os.write(writer, f"{file}\n".encode())
        deadline = time.monotonic() + 300  # goes on only when these are learned: a short mini-batch does not wait
        while time.monotonic() < deadline and _images(tmp_path / "out") < 13:
            time.sleep(0.05)
        for file in files[13:]:
            os.write(writer, f"{file}\n".encode())
        os.close(writer)

    monkeypatch.setattr("climb.session.feeds.IDLE_SECONDS", 0.2)
    speaker = threading.Thread(target=speak)
    with os.fdopen(reader) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        speaker.start()
        learned = learn("-", out=tmp_path / "out", **small, checkpoint_seconds=0.5, journal_seconds=0.0)
        speaker.join()
    assert learned.images == 23
    lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
    assert 13 in [line["images"] for line in lines]
    assert "a crash or a power cut loses what came since the last checkpoint, at most the last 0.5 s" in caplog.text


def _images(out: Path) -> int:
    state = RunFolder(out).load_checkpoint()
    return 0 if state is None else int(state["engine"]["budget"]["images"])


def test_odd_and_damaged_images_and_a_bomb(fill: Write, small: Small, tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 10)
    good = (folder / "00000.png").read_bytes()
    (folder / "truncated.png").write_bytes(good[:-40])
    (folder / "empty.png").touch()
    (folder / "page.jpg").write_bytes(b"<html></html>")
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, format="PNG")  # 400 million pixels in 50 kB
    (folder / "bomb.png").write_bytes(bomb.getvalue())
    Image.new("CMYK", (30, 20)).save(folder / "print.jpg")
    Image.new("I;16", (20, 30), 30_000).save(folder / "xray.png")
    learned = learn(folder, out=tmp_path / "out", **small)
    assert learned.images == 12
    assert learned.passed_over == {"truncated": 1, "not an image": 2, "too large": 1}


def test_a_full_disk_does_not_stop_it(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out, before = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)

    def images() -> Iterator[np.ndarray]:
        for number, picture in enumerate(pictures(400)):
            if number == 40:
                resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))  # no file may grow beyond it
            if number == 300:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            yield picture

    try:
        learned = learn(images(), out=out, **small, checkpoint_seconds=0.0, journal_seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert learned.images == 400
    assert "no checkpoint: cannot write" in caplog.text
    assert "no journal line" in caplog.text
    assert _images(out) == 400
    lines = Journal(out / "journal.jsonl").read("train")
    assert lines[-1]["images"] == 400  # what is written after half a line is found
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize("method", ["climb", "er-fifo"])
def test_a_network_that_diverged_is_not_saved(method: str, small: Small, tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match=r"diverged.*lower"):
        learn(pictures(200), out=tmp_path / "out", **small, method=method, lr=1e30, checkpoint_seconds=0.0)
    state = RunFolder(tmp_path / "out").load_checkpoint()
    if state is not None:
        assert all(torch.isfinite(value).all() for value in state["engine"]["network"].values())


def test_only_one_process_learns_in_a_folder(small: Small, tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def images() -> Iterator[np.ndarray]:
        for number, picture in enumerate(pictures(20)):
            if number == 10:
                try:
                    learn(pictures(1), out=tmp_path / "out", **small)
                except InputError as error:
                    refused.append(error)
            yield picture

    assert learn(images(), out=tmp_path / "out", **small).images == 20
    assert f"another process (id {os.getpid()}) is using" in str(refused[0])
    assert learn(pictures(3), out=tmp_path / "out", **small).new_images == 3  # the lock is gone


def test_other_settings_are_refused_and_other_images_are_not(fill: Write, small: Small, tmp_path: Path) -> None:
    learn(fill(tmp_path / "a", 12), out=tmp_path / "out", **small)
    assert learn(fill(tmp_path / "b", 12), out=tmp_path / "out", **small).images == 24
    with pytest.raises(InputError, match=r"holds another run \(learner.lr: 0.3 there, 0.1 given\)"):
        learn(tmp_path / "a", out=tmp_path / "out", **small, lr=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint_seconds": -1.0}, "must be at least 0"),
        ({"method": "clim"}, "did you mean 'climb'"),
        ({"track": "tensorbord"}, "did you mean 'tensorboard'"),
        ({"budget": "many"}, "type a number of images"),
        ({"device": "cud"}, "device"),
    ],
)
def test_impossible_settings_are_refused_and_leave_no_folder(
    changes: dict[str, Any], message: str, small: Small, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        learn(pictures(1), out=tmp_path / "out", **{**small, **changes})
    assert not (tmp_path / "out").exists()


def test_without_the_library_the_extra_is_named(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "climb-ssl\[track\]"'):
        learn(pictures(1), out=tmp_path / "out", **small, track="wandb")


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "your-own-images.md"
    text = page.read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, page.name, "exec"), {"__name__": "guide"})
    assert (tmp_path / "learner" / "model.safetensors").exists()
    for name, size in SIZES.items():
        assert (
            f"| `{name}` | {size.backbone} | {size.image_size} | {size.replay_batch} | {size.passes} "
            f"| {size.memory.capacity} |"
        ) in text
    for name, learners in DECLARED.items():
        for size in learners:
            extra = find_backbone(size.backbone).extra
            row = (
                f"{size.backbone} | {size.image_size} | {size.replay_batch} | {size.passes} | {size.memory.capacity} |"
            )
            assert re.search(rf"^\| `{name}` \| `{extra}`[^|]* \| {re.escape(row)}$", text, re.MULTILINE), row


# -- trackers --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_tensorboard_gets_the_numbers_of_the_journal(small: Small, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    learn(pictures(60), out=tmp_path / "out", **small, track="tensorboard", journal_seconds=0.0)
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
    scalars = events.Scalars("objective")
    assert [event.step for event in scalars] == [line["images"] for line in lines]
    assert [event.value for event in scalars] == pytest.approx([line["objective"] for line in lines], rel=1e-5)


def test_a_tracker_is_told_nothing_that_is_no_number(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[dict[str, float], int]] = []
    recording = SimpleNamespace(log=lambda values, images: told.append((values, images)), close=lambda: None)
    monkeypatch.setitem(TRACKERS, "tensorboard", lambda *_: recording)
    monkeypatch.setattr("climb.session.learning.check_tracker", lambda _: None)
    learn(fill(tmp_path / "images", 40), out=tmp_path / "out", **small, track="tensorboard", journal_seconds=0.0)
    assert [images for _, images in told] == [10, 20, 30, 40]
    assert "alignment" not in told[0][0]  # before anything is replayed
    assert "alignment" in told[-1][0]
    assert all(math.isfinite(value) for values, _ in told for value in values.values())


def test_a_tracker_that_fails_does_not_stop_it(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __init__(self, *arguments: object) -> None: ...

        def log(self, values: dict[str, float], images: int) -> None:
            raise ConnectionError("nobody there")

        def close(self) -> None:
            raise ConnectionError("nobody there at the end")

    monkeypatch.setitem(TRACKERS, "tensorboard", Broken)
    assert learn(pictures(20), out=tmp_path / "out", **small, track="tensorboard").images == 20
    assert "the tracker failed: nobody there\n" in caplog.text
    assert "the tracker failed: nobody there at the end" in caplog.text


def test_tensorboard_forgets_what_came_after_the_checkpoint_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    opened: list[dict[str, Any]] = []

    def writer(_: str, **options: Any) -> SimpleNamespace:
        opened.append(options)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", writer)
    open_tracker("tensorboard", tmp_path, RunConfig(), 20)
    assert opened == [{"purge_step": 21}]  # the first that goes


def test_wandb_goes_on_with_the_run_of_a_folder_and_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, Any]] = []
    told: list[tuple[dict[str, float], int] | str] = []

    def init(**options: Any) -> SimpleNamespace:
        opened.append(options)
        return SimpleNamespace(
            log=lambda values, step: told.append((values, step)), finish=lambda: told.append("finished")
        )

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))  # type: ignore[arg-type]
    here, there = tmp_path / "out", tmp_path / "other" / "out"
    for folder, config in ((here, RunConfig()), (here, RunConfig()), (there, RunConfig()), (here, RunConfig(seed=1))):
        tracker = open_tracker("wandb", folder, config, 20)
        tracker.log({"objective": 1.5}, 30)
        tracker.close()
    first, again, elsewhere, otherwise = (options["id"] for options in opened)
    assert first == again
    assert len({first, elsewhere, otherwise}) == 3
    assert {options["resume"] for options in opened} == {"allow"}
    assert told == [({"objective": 1.5}, 30), "finished"] * 4


@pytest.mark.slow  # starts a process of its own
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_wandb_gets_the_numbers_of_the_journal(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    learn(pictures(60), out=tmp_path / "out", **small, track="wandb", journal_seconds=0.0)
    learn(pictures(20), out=tmp_path / "other" / "out", **small, track="wandb")
    names = [path.name for path in tmp_path.rglob("run-*.wandb")]
    assert len(set(names)) == 2  # one name, one configuration, two learners
    (run,) = (tmp_path / "out" / "wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 300  # it is written by another process, which may take its time
    while b"novelty_rate" not in run.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"novelty_rate" in run.read_bytes()
    assert b"effective_rank" in run.read_bytes()


# -- a camera ----------------------------------------------------------------------------------------------------------


def of_camera(read: Read, monkeypatch: pytest.MonkeyPatch) -> Source:
    camera = Source(read, name="camera", rereadable=False, endless=True, live=True)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *arguments, **options: camera)
    return camera


def test_a_dead_camera_does_not_have_the_checkpoint_written_again(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(seen: SeenFilter, stop: threading.Event) -> Iterator[Pending]:
        for _ in range(5):
            yield failed("camera", None, ImageError(UNREADABLE, "no route to host"))

    learn(pictures(10), out=tmp_path / "out", **small)
    state = tmp_path / "out" / "checkpoint" / "state.safetensors"
    before = state.stat().st_mtime_ns
    of_camera(read, monkeypatch)
    learned = learn("rtsp://camera", out=tmp_path / "out", **small, checkpoint_seconds=0.0)
    assert learned.passed_over == {UNREADABLE: 5}
    assert state.stat().st_mtime_ns == before


def test_dropped_frames_are_counted_over_all_sittings(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, all_given = Engine.observe, threading.Event()

    def read(seen: SeenFilter, stop: threading.Event) -> Iterator[Pending]:
        for picture in pictures(200):
            image = torch.from_numpy(picture.transpose(2, 0, 1).copy())
            yield Pending(identity=None, where="camera", load=lambda image=image: image)  # type: ignore[misc]
        all_given.set()

    def slowly(self: Engine, images: torch.Tensor) -> Observation:
        assert all_given.wait(300)
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", slowly)
    dropped = 0
    for _ in range(2):
        all_given.clear()
        camera = of_camera(read, monkeypatch)
        learn("rtsp://camera", out=tmp_path / "out", **small)
        assert camera.dropped > 0
        dropped += camera.dropped
        lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
        assert lines[-1]["dropped"] == dropped


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_source_that_breaks_loses_nothing(small: Small, tmp_path: Path) -> None:
    def images() -> Iterator[np.ndarray]:
        yield from pictures(34)
        raise RuntimeError("the queue is gone")

    with pytest.raises(RuntimeError, match="the queue is gone"):
        learn(images(), out=tmp_path / "out", **small, checkpoint_seconds=1000)
    assert _images(tmp_path / "out") == 34
    journal = Journal(tmp_path / "out" / "journal.jsonl")
    assert journal.read("end") == []  # which tells a learner that is done from one that died
    learn(pictures(6), out=tmp_path / "out", **small)
    assert [line["images"] for line in journal.read("end")] == [40]


def test_a_folder_that_breaks_leaves_half_a_mini_batch_to_the_next_sitting(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which then learns what one that never broke would have."""

    def arrivals(**_: Any) -> Iterator[Arrival]:
        yield from found(14)
        raise OSError("the drive is gone")

    folder = Source(lambda *_: iter(()), name="a folder", rereadable=True)
    monkeypatch.setattr(folder, "arrivals", arrivals)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *_, **__: folder)
    with pytest.raises(OSError, match="the drive is gone"):
        learn("images", out=tmp_path / "out", **small)
    assert _images(tmp_path / "out") == 10


def test_only_what_is_unusable_for_good_is_never_tried_again(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrivals(**_: Any) -> Iterator[Arrival]:
        yield from found(10)
        yield PassedOver(identity=100, where="here", reason=CORRUPT, detail="")
        yield PassedOver(identity=101, where="here", reason=UNREADABLE, detail="")

    folder = Source(lambda *_: iter(()), name="a folder", rereadable=True)
    monkeypatch.setattr(folder, "arrivals", arrivals)
    monkeypatch.setattr("climb.session.learning.open_source", lambda *_, **__: folder)
    learn("images", out=tmp_path / "out", **small, checkpoint_seconds=1000)
    assert np.fromfile(tmp_path / "out" / "learned.u64", dtype=np.uint64).tolist() == [*range(10), 100]
    assert _images(tmp_path / "out") == 10


def test_a_checkpoint_that_could_not_be_written_is_tried_again_when_the_next_is_due(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_clock: SetClock
) -> None:
    now, observe, save, tried = 0.0, Engine.observe, RunFolder.save_checkpoint, list[int]()

    def slowly(self: Engine, images: torch.Tensor) -> Observation:
        nonlocal now
        now += 10.0
        return observe(self, images)

    def full_twice(self: RunFolder, state: dict[str, Any]) -> None:
        tried.append(state["done"])
        if len(tried) <= 2:
            raise OSError("No space left on device")
        save(self, state)

    monkeypatch.setattr(Engine, "observe", slowly)
    monkeypatch.setattr(RunFolder, "save_checkpoint", full_twice)
    set_clock(lambda: now)
    learn(fill(tmp_path / "images", 60), out=tmp_path / "out", **small, checkpoint_seconds=15.0)
    assert tried == [2, 4, 6]
    assert _images(tmp_path / "out") == 60


def test_drift_is_measured_between_checkpoints_that_were_written(
    fill: Write, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save_checkpoint

    def full_at_first(self: RunFolder, state: dict[str, Any]) -> None:
        if state["done"] < 4:
            raise OSError("No space left on device")
        save(self, state)

    monkeypatch.setattr(RunFolder, "save_checkpoint", full_at_first)
    learn(fill(tmp_path / "images", 60), out=tmp_path / "out", **small, checkpoint_seconds=0.0, journal_seconds=0.0)
    lines = Journal(tmp_path / "out" / "journal.jsonl").read("train")
    assert ["uniformity" in line for line in lines] == [False] * 4 + [True] * 2  # of images chosen at a checkpoint
    assert [line["drift"] is not None for line in lines] == [False] * 5 + [True]


def test_what_killed_processes_left_is_swept_away(small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    left = [
        out / ".config.json.1a.tmp",
        out / "checkpoint" / ".state.safetensors.2b.tmp",
        out / ".journal.jsonl.3c.tmp",
    ]
    left[0].touch()
    learn(pictures(10), out=out, **small)  # killed before there was a configuration: the folder is still nobody's
    for file in left:
        file.touch()
    other = out / ".report.html.4d.tmp"  # another process may be writing it right now
    other.touch()
    learn(pictures(10), out=out, **small)
    assert not any(file.exists() for file in left)
    assert other.exists()
