"""Damage the files of runs, learners, saved models and exports; each is named, or its damage changes nothing.

    python tests/soak/damage.py                  # 1,000 damaged files
    python tests/soak/damage.py --trials 60

A trial copies a folder, damages one file in one way, and uses the folder: an interrupted run and a learner continue
to their ends, a finished run is shown again, an encoder or a model gives features. The outcome must be that of the
whole folder to the bit, or an error of one line that names the damaged file. A session that goes on from its previous
checkpoint must name the newest one in its log.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from trials import Trials, parse_arguments

from climb import Climb, ClimbError
from climb.export import export, open_model
from climb.report import write_report
from climb.runs import RunFolder
from climb.session import Interrupted, Observer, execute, experiment, learn
from climb.settings.config import Execution, RunConfig

PAGE = 4096
NEWEST = "checkpoint/state.safetensors"
PROBE = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 3, 16, 16), dtype=np.uint8))
STREAM = np.random.default_rng(1).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)


@dataclass
class Subject:
    """A folder to damage. ``use`` does what users do with it and returns what they get."""

    folder: Path
    other: Path
    """A folder of the same kind with other content."""
    files: tuple[str, ...]
    use: Callable[[Path], Any]


# -- what is damaged ---------------------------------------------------------------------------------------------------


class Stop(Observer):
    """Asks the session to stop after some mini-batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def after_batch(self, session: Any, batch: Any, observation: Any) -> None:
        if session.done == self.batches:
            os.kill(os.getpid(), signal.SIGTERM)


def config_of(seed: int) -> RunConfig:
    config = experiment("demo", image_size=16, tasks=2, replay_batch=8, capacity=40, passes=1, seed=seed)
    data = replace(config.data, options={"classes": 4, "train_per_class": 40, "test_per_class": 5})
    return replace(config, data=data, evaluation=replace(config.evaluation, epochs=2))


def continue_run(folder: Path, seed: int = 0, **options: Any) -> Any:
    result = execute(config_of(seed), Execution(device="cpu", checkpoint_seconds=0.0), folder, **options)
    kept = {name: value for name, value in result.items() if name not in ("seconds", "versions")}
    return json.dumps(kept), (folder / "model.safetensors").read_bytes()


def show_run(folder: Path) -> Any:
    snapshot = RunFolder(folder).load_memory()
    write_report(folder)
    images = [] if snapshot is None else [group.images for group in snapshot.groups]
    return continue_run(folder)[0], [group.numpy().tobytes() for group in images], features(folder)


def continue_learner(folder: Path, images: Path) -> Any:
    before = features(folder)
    teach(folder, images)
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    weights = [value.numpy().tobytes() for value in state["engine"]["network"].values()]
    identities = (folder / "learned.u64").read_bytes()
    return before, weights, identities, (folder / "model.safetensors").read_bytes()


def teach(folder: Path, images: Path, **options: Any) -> None:
    settings = {"image_size": 16, "passes": 1, "replay_batch": 8, "budget": 60, "workers": 1, "device": "cpu"}
    learn(images, out=folder, checkpoint_seconds=0.0, journal_seconds=0.0, **settings, **options)


def features(model: Path) -> bytes:
    return open_model(model, device="cpu").features(PROBE).numpy().tobytes()


def continue_model(folder: Path) -> Any:
    model = Climb.load(folder / "model.climb", device="cpu").partial_fit(STREAM)
    return model.transform(PROBE).tobytes()


def subjects(root: Path) -> dict[str, Subject]:
    """Folders to damage, each with another one of its kind."""
    images = write_images(root / "images", 60)
    for seed, name in enumerate(("", "other-")):
        execute(config_of(seed), Execution(device="cpu", checkpoint_seconds=0.0, keep=True), root / f"{name}finished")
        with suppress(Interrupted):
            continue_run(root / f"{name}interrupted", seed, observers=[Stop(9)])
        with suppress(Interrupted):
            teach(root / f"{name}learner", images, seed=seed, observers=[Stop(4)])
        (root / f"{name}model").mkdir()
        model = Climb(capacity=60, backbone="micro", replay_batch=8, passes=1, device="cpu", seed=seed)
        model.partial_fit(STREAM).save(root / f"{name}model" / "model.climb")
        export(open_model(root / f"{name}finished", device="cpu"), root / f"{name}export")
    states = (NEWEST, "checkpoint/previous.safetensors")
    run, learner = ("config.json", "journal.jsonl", *states), ("learned.u64", "model.safetensors")
    finished = ("config.json", "result.json", "journal.jsonl", "model.safetensors", "memory.safetensors")
    table: dict[str, tuple[tuple[str, ...], Callable[[Path], Any]]] = {
        "interrupted": (run, continue_run),
        "finished": (finished, show_run),
        "learner": ((*run, *learner), lambda folder: continue_learner(folder, images)),
        "model": (("model.climb",), continue_model),
        "export": (("model.safetensors", "config.json"), features),
    }
    return {name: Subject(root / name, root / f"other-{name}", *parts) for name, parts in table.items()}


def write_images(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((16, 16), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.png")
    return folder


# -- damage ------------------------------------------------------------------------------------------------------------


def flip(body: bytearray, dice: random.Random) -> bytes:
    """One bit, half of the time in the first bytes, which describe the rest."""
    place = dice.randrange(min(len(body), PAGE) if dice.random() < 0.5 else len(body))
    body[place] ^= 1 << dice.randrange(8)
    return bytes(body)


def truncate(body: bytearray, dice: random.Random) -> bytes:
    return bytes(body[: dice.randrange(len(body))])


def zero(body: bytearray, dice: random.Random) -> bytes:
    """A page, as after a power cut."""
    start = PAGE * dice.randrange(-(-len(body) // PAGE))
    return bytes(body[:start]) + bytes(len(body[start : start + PAGE])) + bytes(body[start + PAGE :])


def edit(body: bytearray, dice: random.Random) -> bytes:
    """Another value, no value, or another name, anywhere in a JSON object."""
    content = node = json.loads(bytes(body).splitlines()[0] if body[:10].startswith(b'{"batch"') else bytes(body))
    while True:
        key = dice.choice(list(node))
        if isinstance(node[key], dict) and node[key] and dice.random() < 0.8:
            node = node[key]
            continue
        value = node.pop(key)
        choice = dice.randrange(3)
        if choice == 0:
            node[key] = dice.choice([None, -1, 1e300, "text", [], {}, not value, [value]])
        elif choice == 1:
            node[f"{key}x"] = value
        return json.dumps(content, indent=2).encode()


DAMAGES: dict[str, Callable[[bytearray, random.Random], bytes]] = {"flip": flip, "truncate": truncate, "zero": zero}


def damage(file: Path, other: Path, kind: str, dice: random.Random) -> None:
    if kind == "swap":
        shutil.copyfile(other, file)
    else:
        file.write_bytes((edit if kind == "edit" else DAMAGES[kind])(bytearray(file.read_bytes()), dice))


# -- trials ------------------------------------------------------------------------------------------------------------


class Heard(logging.Handler):
    """Collects log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def outcome(subject: Subject, folder: Path, heard: Heard) -> Any:
    """What using the folder gives; an error as an instance."""
    heard.text = ""
    try:
        return subject.use(folder)
    except Exception as error:
        return error


def fault(expected: Any, got: Any, file: Path, heard: str, *, changed: bool) -> str:
    """What is wrong with an outcome; "" if nothing is."""
    if isinstance(got, ClimbError):
        text = str(got)
        # A whole config.json of another run means that the folder is another run's.
        named = file.parent if file.name == "config.json" else file
        return "" if str(named) in text and "\n" not in text else f"does not name {file.name} in one line: {text}"
    if isinstance(got, Exception):
        return f"{type(got).__name__}: {got}"
    if got != expected:
        return "the outcome differs"
    if changed and str(file).endswith(NEWEST) and str(file) not in heard:
        return "the damaged checkpoint is not named in the log"
    return ""


def main() -> None:
    arguments = parse_arguments(__doc__, trials=1000)
    dice, trials, heard = random.Random(arguments.seed), Trials("damaged files"), Heard()
    torch.set_num_threads(1)
    logging.getLogger("climb").addHandler(heard)
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary:
        root = Path(temporary)
        every = subjects(root)
        expected = {}
        for name, subject in every.items():
            whole = Path(shutil.copytree(subject.folder, root / f"whole-{name}"))
            expected[name] = outcome(subject, whole, heard)
            if isinstance(expected[name], Exception):
                raise SystemExit(f"{name}: the whole folder cannot be used: {expected[name]}")
        places = [(name, file) for name, subject in every.items() for file in subject.files]
        for number in range(arguments.trials):
            name, file = places[number % len(places)]
            kinds = [*DAMAGES, *(["edit"] if file.endswith(".json") else [])]
            if name != "model":  # another whole model in a file by itself is just that
                kinds.append("swap")
            kind = kinds[number // len(places) % len(kinds)]
            subject = every[name]
            copy = Path(shutil.copytree(subject.folder, root / "copy"))
            damage(copy / file, subject.other / file, kind, dice)
            changed = (copy / file).read_bytes() != (subject.folder / file).read_bytes()
            got = outcome(subject, copy, heard)
            text = fault(expected[name], got, copy / file, heard.text, changed=changed)
            trials.add(f"{name} {file} {kind}", ok=not text, detail=text)
            shutil.rmtree(copy)
    trials.finish(arguments.out)


if __name__ == "__main__":
    main()
