"""Interrupt learners and runs at random moments; what survives must equal what was never interrupted.

    python tests/soak/kills.py                  # 207 interruptions of `learn`, 102 of `run`
    python tests/soak/kills.py --trials 30

A trial is one SIGKILL, SIGTERM, or SIGSTOP followed by SIGCONT. The process reports its phase through a pipe: starting,
learning, saving or evaluating. Each trial picks a phase, waits until the process reports it, and adds a random delay. A
life is a learner or a run with a few interruptions. It fails if a file was learned twice or not at all, or if model,
memory or result differ from those of the undisturbed life.
"""

from __future__ import annotations

import io
import os
import random
import selectors
import signal
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from trials import Trials, parse_arguments

from climb.runs import RunFolder
from climb.runs.run_file_checks import read_object
from climb.session import Interrupted, Observer, execute, experiment, learn
from climb.settings.config import Execution

SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
SUBJECTS = ("folder", "watch", "tar", "run")
PHASES = {"starting": b"S", "learning": b"L", "saving": b"C", "evaluating": b"E"}
FILES = 300
PER_LIFE = 4
SLICE = 0.5  # seconds
QUIET = 20.0  # seconds without a report after which a learner waits for files that do not come
LONGEST_SITTING = 120.0  # seconds, counted in waits of POLL seconds
POLL = 0.01


class ReportPhase(Observer):
    """Writes a letter to a pipe whenever a phase begins."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def start(self, session: Any) -> None:
        self._report(b"L")

    def after_batch(self, session: Any, batch: Any, observation: Any) -> None:
        self._report(b"L")

    def at_checkpoint(self, session: Any, state: Any) -> None:
        self._report(b"C")

    def at_boundary(self, session: Any, segment: int) -> None:
        self._report(b"E")

    def finish(self, session: Any) -> None:
        self._report(b"E")

    def _report(self, letter: bytes) -> None:
        os.write(self.pipe, letter)


@dataclass
class Subject:
    """Something to interrupt: ``start`` runs it in a folder to its end, ``differences`` compares two folders."""

    start: Callable[[Path, int], None]
    differences: Callable[[Path, Path], list[str]]
    ends: bool = True
    """Whether it ends by itself."""


def learner(images: Path, *, watch: bool = False, pattern: str = "") -> Subject:
    source = f"{images}/{pattern}" if pattern else str(images)
    options = {"image_size": 16, "passes": 1, "replay_batch": 8, "budget": 400, "method": "er-fifo", "device": "cpu"}

    def start(out: Path, pipe: int) -> None:
        learn(
            source, out=out, watch=watch, checkpoint_seconds=0.3, journal_seconds=0.1, workers=1,
            observers=[ReportPhase(pipe)], **options,
        )  # fmt: skip

    return Subject(start, compare_learners, ends=not watch)


def run() -> Subject:
    config = experiment("demo", image_size=16, tasks=3, replay_batch=16, capacity=120)
    data = replace(config.data, options={"classes": 6, "train_per_class": 60, "test_per_class": 10})
    config = replace(config, data=data, evaluation=replace(config.evaluation, epochs=4))

    def start(out: Path, pipe: int) -> None:
        execution = Execution(device="cpu", checkpoint_seconds=0.3, keep=True)
        execute(config, execution, out, observers=[ReportPhase(pipe)])

    return Subject(start, compare_runs)


def compare_learners(out: Path, whole: Path) -> list[str]:
    """What differs between an interrupted learner and an undisturbed one."""
    identities = np.fromfile(out / "learned.u64", dtype=np.uint64)
    differences = []
    if len(identities) != FILES or len(np.unique(identities)) != FILES:
        differences.append(f"{len(identities)} identities, {len(np.unique(identities))} different, of {FILES} files")
    return differences + compare_state(out, whole)


def compare_runs(out: Path, whole: Path) -> list[str]:
    """What differs between an interrupted run and an undisturbed one."""
    results: list[dict[str, Any]] = [read_object(folder / "result.json") for folder in (out, whole)]
    changing = {"seconds", "versions", "resumed"}
    differences = [key for key in results[1] if key not in changing and results[0].get(key) != results[1][key]]
    return differences + compare_state(out, whole)


def compare_state(out: Path, whole: Path) -> list[str]:
    """Which parts of model and memory differ."""
    differences = []
    if (out / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes():
        differences.append("model.safetensors")
    states = [RunFolder(folder).load_checkpoint() for folder in (out, whole)]
    if states[0] is None or states[1] is None:
        return [*differences, "no checkpoint"]
    return differences + [
        f"engine.{name}"
        for name in states[1]["engine"]
        if not equal(states[0]["engine"][name], states[1]["engine"][name])
    ]


def equal(ours: Any, theirs: Any) -> bool:
    """Equality to the bit of nested state."""
    if isinstance(theirs, torch.Tensor):
        return isinstance(ours, torch.Tensor) and ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and ours.keys() == theirs.keys() and all(equal(ours[k], theirs[k]) for k in ours)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(equal(*pair) for pair in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


class Sitting:
    """A child process that runs a subject in a folder."""

    def __init__(self, subject: Subject, out: Path) -> None:
        self.subject, self.out, self.asked = subject, out, False
        read, write = os.pipe()
        self.child = os.fork()  # torch is imported once
        if self.child == 0:
            os.close(read)
            self._live(write)
        os.close(write)
        self.phases = read
        self.status: int | None = None

    def _live(self, pipe: int) -> None:
        code = 70
        try:
            log = os.open(self.out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            torch.set_num_threads(1)
            os.write(pipe, b"S")
            self.subject.start(self.out, pipe)
            code = 0
        except Interrupted:
            code = 130
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def wait_for(self, phase: bytes, skip: int) -> bool:
        """Wait until the process has reported a phase ``skip`` + 1 times; False if it ends or has nothing to do."""
        quiet = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self.phases, selectors.EVENT_READ)
            while skip >= 0:
                if selector.select(SLICE):
                    letter, quiet = os.read(self.phases, 1), 0.0
                    if not letter:
                        return False
                    skip -= letter == phase
                    continue
                quiet += SLICE
                if phase == PHASES["evaluating"]:  # a learner without an end evaluates when it is asked to end
                    self.ask_to_end()
                if quiet >= QUIET:
                    return False
        return True

    def ask_to_end(self) -> None:
        """Send SIGTERM, once, to a learner that would wait for ever and has learned everything."""
        if not (self.subject.ends or self.asked) and identities_of(self.out) == FILES:
            self.send("SIGTERM", random.Random(0))
            self.asked = True  # a second SIGTERM would end the process before it has saved

    def send(self, name: str, dice: random.Random) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.child, getattr(signal, name))
            if name == "SIGSTOP":
                time.sleep(dice.uniform(0.02, 0.3))
                os.kill(self.child, signal.SIGCONT)

    def end(self) -> int:
        """Wait for the end; the exit code, negative for a signal. A process that hangs is killed and counts as 99."""
        os.set_blocking(self.phases, False)
        for _ in range(int(LONGEST_SITTING / POLL)):  # not by the clock: both processes may be paused together
            with suppress(BlockingIOError):
                os.read(self.phases, 65536)  # or the child blocks once the pipe is full
            child, status = os.waitpid(self.child, os.WNOHANG)
            if child:
                os.close(self.phases)
                return os.waitstatus_to_exitcode(status)
            self.ask_to_end()
            time.sleep(POLL)
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.phases)
        return 99


def identities_of(out: Path) -> int:
    """Images that a learner has noted as learned. The file is written just before the checkpoint."""
    file = out / "learned.u64"
    return file.stat().st_size // 8 if file.exists() else 0


def learned(out: Path) -> int:
    """Images that the model in the checkpoint has learned."""
    state = RunFolder(out).load_checkpoint()
    return 0 if state is None else int(state["engine"]["budget"]["images"])


def live(subject: Subject, out: Path, plan: list[tuple[str, str]], dice: random.Random, counts: Counter[str]) -> str:
    """Run a subject to its end with the planned interruptions; a message about the first failure, or ""."""
    plan = list(plan)
    while True:
        sitting = Sitting(subject, out)
        while plan:
            name, phase = plan[0]
            skip = {"starting": 0, "learning": dice.randrange(12), "saving": 0, "evaluating": 0}[phase]
            longest = {"starting": 0.3, "learning": 0.02, "saving": 0.03, "evaluating": 0.1}[phase]
            if not sitting.wait_for(PHASES[phase], skip):
                break  # ended before: the interruption stays planned for another life
            time.sleep(dice.uniform(0, longest))
            sitting.send(name, dice)
            plan.pop(0)
            counts[f"{name} {phase}"] += 1
            if name != "SIGSTOP":
                break
            if plan and plan[0][1] == "starting":
                break  # only a new process starts
        code = sitting.end()
        if code not in (0, 130, -signal.SIGKILL, -signal.SIGTERM):
            return f"exit code {code}; see {out.with_suffix('.log')}"
        if code == 0 or (not subject.ends and learned(out) == FILES):
            return ""


def write_images(root: Path) -> tuple[Path, Path]:
    """The same pictures as a folder and as tar shards."""
    folder, shards = root / "images", root / "shards"
    folder.mkdir()
    shards.mkdir()
    for number in range(FILES):
        coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((16, 16), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.png")
    for shard in range(3):
        with tarfile.open(shards / f"{shard}.tar", "w") as archive:
            for number in range(shard * FILES // 3, (shard + 1) * FILES // 3):
                data = (folder / f"{number:05d}.png").read_bytes()
                member = tarfile.TarInfo(f"{number:05d}.png")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return folder, shards


def main() -> None:
    arguments = parse_arguments(__doc__, trials=309, subjects=SUBJECTS)
    dice = random.Random(arguments.seed)
    trials = Trials("interruptions")
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary:
        root = Path(temporary)
        folder, shards = write_images(root)
        every = (learner(folder), learner(folder, watch=True), learner(shards, pattern="*.tar"), run())
        subjects = {name: each for name, each in zip(SUBJECTS, every, strict=True) if name in arguments.subjects}
        per_signal = -(-arguments.trials // (3 * len(SIGNALS)))  # for each source a third of what `run` gets
        for name, subject in subjects.items():
            whole = root / f"{name}-whole"
            if message := live(subject, whole, [], dice, Counter()):
                raise SystemExit(
                    f"{name}: the undisturbed life failed: {message}\n{whole.with_suffix('.log').read_text()}"
                )
            phases = list(PHASES) if name == "run" else ["starting", "learning", "learning", "saving", "evaluating"]
            share = per_signal if name == "run" else -(-2 * per_signal // 3)
            pending = [(kind, phases[number % len(phases)]) for kind in SIGNALS for number in range(share)]
            dice.shuffle(pending)
            lives = 0
            while pending:
                plan = pending[:PER_LIFE]
                counts = Counter[str]()
                out = root / f"{name}-{lives}"
                message = live(subject, out, plan, dice, counts)
                differences = [] if message else subject.differences(out, whole)
                text = message or ", ".join(differences)
                for interruption in counts.elements():
                    trials.add(f"{name} {interruption}", ok=not text, detail=f"{out.name}: {text}")
                pending = pending[counts.total() :]
                lives += 1
                if lives > 10 * arguments.trials:
                    raise SystemExit(f"{name}: {len(pending)} interruptions could not be placed")
    trials.finish(arguments.out)


if __name__ == "__main__":
    main()
