"""Learn and run where the system says no: full disks, file-size limits, wrong clocks, company, locked folders.

    python tests/soak/limits.py                  # 200 trials
    python tests/soak/limits.py --trials 20

A trial is a learner or a run under one hardship. It may go on, or end with an error of one line that names what it
cannot use. Then the hardship ends, and the same call continues: every file is learned once, and model, memory and
result equal those of an undisturbed session to the bit. A disk is a file system in memory, which needs root. A normal
user is a process without root's capabilities. A clock is `time.time` and the times of the files; the system's own clock
stays as it is.
"""

from __future__ import annotations

import ctypes
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from kills import FILES, Subject, learned, learner, run, write_images
from trials import Trials, parse_arguments

from climb import ClimbError, InputError

LONGEST = 180.0  # seconds of one attempt
POLL = 0.05
Prepare = Callable[[], None]
"""What a process does first, such as giving up its rights."""


@dataclass
class Outcome:
    """How an attempt ended: an exit code as that of the command line, and its message."""

    code: int
    message: str = ""

    def fault(self, place: Path, *, may_fail: bool = True) -> str:
        """What is wrong with it; "" if it succeeded, or failed with one line about something in ``place``."""
        if self.code == 0:
            return ""
        if not may_fail or self.code not in (1, 2):
            return f"exit code {self.code}: {self.message}"
        fits = str(place) in self.message and "\n" not in self.message
        return "" if fits else f"an error that does not name {place} in one line: {self.message}"


def attempt(subject: Subject, out: Path, prepare: Prepare, *, done: Callable[[], bool] | None = None) -> Outcome:
    """Run a subject in a process of its own. ``done`` tells when one that does not end is to be stopped."""
    (read, write), (phases, report) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _live(subject, out, prepare, write, report)
    os.close(write)
    os.close(report)
    os.set_blocking(phases, False)
    begun = b""
    with os.fdopen(read, "rb") as pipe, os.fdopen(phases, "rb", buffering=0) as letters:
        for _ in range(int(LONGEST / POLL)):  # not by the clock: both processes may be paused together
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return Outcome(0 if code == 130 else code, pipe.read().decode(errors="replace"))
            begun += letters.read() or b""
            if b"L" in begun and done is not None and done():  # before, SIGTERM would just end it
                os.kill(child, signal.SIGTERM)
                done = None
            time.sleep(POLL)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return Outcome(99, "hangs")


def _live(subject: Subject, out: Path, prepare: Prepare, pipe: int, phases: int) -> None:
    code, message = 70, ""
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        torch.set_num_threads(1)
        prepare()
        subject.start(out, phases)
        code = 0
    except InputError as error:
        code, message = 2, str(error)
    except (ClimbError, OSError) as error:  # as `climb.cli` has it
        code, message = 1, str(error)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        message = repr(error)
    finally:
        with suppress(OSError):
            os.write(pipe, message.encode(errors="replace"))
        os._exit(code)


def nothing() -> None:
    """No hardship."""


def has_learned_all(out: Path) -> bool:
    """Whether the model in the checkpoint has learned every file."""
    with suppress(ClimbError, OSError):
        return learned(out) == FILES
    return False


def finish(subject: Subject, out: Path, whole: Path) -> str:
    """Continue to the end without any hardship; what differs from an undisturbed session."""
    outcome = attempt(subject, out, nothing, done=None if subject.ends else partial(has_learned_all, out))
    if outcome.code != 0:
        return f"does not continue: {outcome.message or outcome.code}"
    if not subject.ends and not has_learned_all(out):
        return f"{learned(out)} of {FILES} images learned"
    return ", ".join(subject.differences(out, whole))


# -- hardships: each returns a description, and what is wrong ----------------------------------------------------------


@dataclass
class Place:
    """Where a trial happens."""

    root: Path
    """A new folder."""
    make: Callable[[Path], Subject]
    """The subject that learns from these images."""
    images: Path
    whole: Path
    """The folder of an undisturbed session."""
    half: Path
    """The folder of a session that was stopped."""

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def subject(self) -> Subject:
        return self.make(self.images)


Trial = Callable[[Place, random.Random], tuple[str, str]]


def full_disk(place: Place, dice: random.Random) -> tuple[str, str]:
    """A disk without room for all files, from the start or after a while; later there is room."""
    needed = sum(path.stat().st_size for path in place.whole.rglob("*") if path.is_file())
    size = int(needed * dice.uniform(0.02, 1.3))
    place.out.mkdir()
    with mounted(place.out, size):
        inside = place.out / "learner"
        outcome = attempt(place.subject, inside, nothing, done=_when_learned(place, inside))
        fault = outcome.fault(place.out)
        if not fault:
            _mount("-o", f"remount,size={20 * needed}", str(place.out))
            fault = finish(place.subject, inside, place.whole)
        return f"{size} of {needed} bytes: {outcome.message}", fault


def small_files(place: Place, dice: random.Random) -> tuple[str, str]:
    """A limit on the size of files, which ends after a while in half of the trials."""
    largest = int(10 ** dice.uniform(2, 6))
    seconds = dice.uniform(0, 3) if dice.random() < 0.5 else None

    def limit() -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
        if seconds is not None:
            threading.Timer(seconds, resource.setrlimit, (resource.RLIMIT_FSIZE, before)).start()

    outcome = attempt(place.subject, place.out, limit, done=_when_learned(place, place.out))
    described = f"{largest} bytes, for {seconds or 'all'} s: {outcome.message}"
    return described, outcome.fault(place.out) or finish(place.subject, place.out, place.whole)


def wrong_clock(place: Place, dice: random.Random) -> tuple[str, str]:
    """A clock that jumps by years in both directions, and files from the past and the future."""
    jumps = random.Random(dice.random())

    def jump() -> None:
        moved, true = [0.0], time.time

        def now() -> float:
            if jumps.random() < 0.2:
                moved[0] = jumps.uniform(-2e9, 2e9) if jumps.random() < 0.5 else jumps.uniform(-90, 90)
            return max(0.0, true() + moved[0])

        mock.patch("time.time", now).start()

    times = [1, time.time() - 3, time.time(), time.time() + 3600, 2**31 - 1, 4e9]
    images = Path(shutil.copytree(place.images, place.root / "images"))
    for path in images.iterdir():
        when = dice.choice(times)
        os.utime(path, (when, when))
    subject = place.make(images)
    done = None if subject.ends else partial(has_learned_all, place.out)
    outcome = attempt(subject, place.out, jump, done=done)
    if not subject.ends:  # files that seem young are learned later, so that only the count is the same
        subject = replace(subject, differences=lambda out, whole: [])
    return "", outcome.fault(place.out, may_fail=False) or finish(subject, place.out, place.whole)


def company(place: Place, dice: random.Random) -> tuple[str, str]:
    """Several processes begin in one folder: one works, the others are told who does. Some are killed."""
    outcomes: list[Outcome] = []

    def begin(seconds: float, killed: float | None) -> None:
        prepare = partial(_die_later, killed) if killed is not None else nothing
        time.sleep(seconds)
        done = None if place.subject.ends else partial(has_learned_all, place.out)
        outcomes.append(attempt(place.subject, place.out, prepare, done=done))

    deaths = [dice.uniform(0, 2) if dice.random() < 0.4 else None for _ in range(dice.randint(2, 3))]
    threads = [threading.Thread(target=begin, args=(dice.uniform(0, 1.5), death)) for death in deaths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    described = "; ".join(f"{outcome.code} {outcome.message}" for outcome in outcomes)
    for outcome in outcomes:
        refused = outcome.code == 2 and "another process (id " in outcome.message
        if outcome.code not in (0, -signal.SIGKILL) and not refused:
            return described, f"exit code {outcome.code}: {outcome.message}"
    return described, finish(place.subject, place.out, place.whole)


def locked_folder(place: Place, dice: random.Random) -> tuple[str, str]:
    """A normal user may not write or read something; later, he may."""
    if dice.random() < 0.2:
        chosen = place.root  # the folder does not exist, and cannot be made
    else:
        shutil.copytree(place.half, place.out)
        chosen = dice.choice(sorted([place.out, *place.out.rglob("*")]))
    usual, mode = chosen.stat().st_mode, dice.choice([0o555, 0o000] if chosen.is_dir() else [0o444, 0o000])
    chosen.chmod(mode)
    outcome = attempt(place.subject, place.out, _without_capabilities, done=_when_learned(place, place.out))
    chosen.chmod(usual)
    described = f"{chosen.relative_to(place.root)} {mode:o}: {outcome.message}"
    return described, outcome.fault(place.root) or finish(place.subject, place.out, place.whole)


def _when_learned(place: Place, out: Path) -> Callable[[], bool] | None:
    """Whether a learner that does not end has learned everything, or has had its time."""
    if place.subject.ends:
        return None
    end = time.monotonic() + 15
    return lambda: time.monotonic() > end or has_learned_all(out)


def _die_later(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _without_capabilities() -> None:
    """Give up what root may and a normal user may not, in this process and those that it starts."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        version, everything_dropped = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        if libc.prctl(28, 1, 0, 0, 0) or libc.capset(version, everything_dropped):  # 28: what programs of root may
            raise RuntimeError(f"cannot drop capabilities: {os.strerror(ctypes.get_errno())}")


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """A file system in memory at a folder."""
    _mount("-t", "tmpfs", "-o", f"size={max(size, 4096)}", "soak", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True, capture_output=True)


def has_mounts(root: Path) -> bool:
    """Whether this process may mount file systems."""
    try:
        (root / "disk").mkdir()
        with mounted(root / "disk", 2**16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


# -- output that cannot be written -------------------------------------------------------------------------------------


def full_output(dice: random.Random) -> tuple[str, str]:
    """A command whose output goes to a full disk, a closed descriptor, or a reader that has left."""
    words = dice.choice(["methods", "recipes", "data", "doctor", "run --help", "bench", "nothing"]).split()
    how = dice.choice(["full", "closed", "gone"])
    command = [sys.executable, "-m", "climb", *words]
    redirect = {"full": "> /dev/full", "closed": ">&-", "gone": "| true"}[how]
    shell = " ".join(command) + f" {redirect}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=20 * LONGEST)
    fault = "a traceback" if "Traceback" in ended.stderr or "Exception ignored" in ended.stderr else ""
    return shell, f"{fault}: {ended.stderr[-500:]}" if fault else ""


KINDS: dict[str, Trial] = {
    "full disk": full_disk,
    "file-size limit": small_files,
    "wrong clock": wrong_clock,
    "several processes": company,
    "locked folder": locked_folder,
}


def places(root: Path) -> list[Callable[[Path], Place]]:
    """For each source of images, and for `run`, a function that makes a place in a new folder."""
    images, shards = write_images(root)
    makers: dict[str, tuple[Callable[[Path], Subject], Path]] = {
        "folder": (learner, images),
        "watch": (partial(learner, watch=True), images),
        "tar": (partial(learner, pattern="*.tar"), shards),
        "run": (lambda images: run(), images),
    }
    made = []
    for name, (make, source) in makers.items():
        whole, half = root / f"{name}-whole", root / f"{name}-half"
        if fault := finish(make(source), whole, whole):
            raise SystemExit(f"{name}: the undisturbed session failed: {fault}")
        attempt(make(source), half, nothing, done=(half / "checkpoint" / "state.safetensors").exists)
        made.append(partial(Place, make=make, images=source, whole=whole, half=half))
    return made


def main() -> None:
    arguments = parse_arguments(__doc__, trials=200)
    dice, trials = random.Random(arguments.seed), Trials("limits of the system")
    logging.getLogger("climb").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary:
        root = Path(temporary)
        every = places(root)
        kinds = list(KINDS)
        if not has_mounts(root):
            kinds.remove("full disk")
            print("left out: a full disk, because this process may not mount one", flush=True)
        for number in range(arguments.trials):
            if number % 10 == 9:
                kind, (described, fault) = "output", full_output(dice)
            else:
                kind = kinds[number % len(kinds)]
                place = dice.choice(every)(Path(root, f"trial-{number}"))
                place.root.mkdir()
                described, fault = KINDS[kind](place, dice)
                described = f"{place.whole.name}: {described}"
                shutil.rmtree(place.root)
            trials.add(kind, ok=not fault, detail=f"{described}: {fault}")
    trials.finish(arguments.out)


if __name__ == "__main__":
    main()
