"""Pass hostile arguments to every verb and to every public class and function.

    python tests/soak/arguments.py                  # 3,000 calls
    python tests/soak/arguments.py --trials 300

A trial takes a call that works and replaces one or two of its arguments, or adds an option. A verb must end with exit
code 0, 1 or 2 and without a traceback. A message of climb has one line, one of the parser a paragraph. A Python call
must return, or raise `InputError` or another `ClimbError` of one line. Line breaks in the arguments themselves do not
count. A call that takes longer than a minute hangs.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import math
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from trials import Trials, parse_arguments

from climb import Climb, ClimbError
from climb.cli import run_command, verbs
from climb.datasets import load
from climb.export import embed, export, images_of, open_model, probe, search
from climb.memory import CentroidMemory, FifoMemory, MinRedMemory, PartAndSelectMemory, ReservoirMemory
from climb.methods import find_method
from climb.registry import load_file
from climb.session import execute, experiment, learn
from climb.settings.config import Execution, LearnerConfig, MemoryConfig
from climb.settings.fields import settings_of
from climb.sources import open_source
from climb.streams import make
from climb.testing import ContractViolation, check_memory, check_method

LONGEST = 60  # seconds
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
TENSOR = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).contiguous()
EMBEDDINGS = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))


class Hanging(BaseException):
    """A call took too long."""


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 10**12, 10**30, -0.5, 1e-30, 2.5, 1e300, math.nan, math.inf, -math.inf, 1j, "", "x",
    "auto", "\x00", "\ud800", "..", "a\nb", "x" * 5000, b"x", [], [[]], ["x"], (), {}, {"x": 1}, set(), object(),
    print, int, Path("nothing"), np.int64(3), np.float32("nan"), np.zeros(3), torch.zeros(2, 2), range(3),
)  # fmt: skip
PICTURES: tuple[Any, ...] = (
    IMAGES.astype(">u2"), IMAGES.astype(np.float32), IMAGES.astype(bool), IMAGES.astype(object), IMAGES[0], IMAGES[:0],
    IMAGES[:, :0], IMAGES[:, :7], IMAGES[..., :2], IMAGES[::-1], IMAGES.astype("V1"), IMAGES.tolist(), TENSOR.float(),
    TENSOR.to("meta"), TENSOR.to_sparse(), TENSOR[:, :, ::2], np.ma.masked_array(IMAGES), np.asfortranarray(IMAGES),
    IMAGES.view(">u1"), IMAGES.astype(np.int8), np.broadcast_to(IMAGES[:1], IMAGES.shape), "images", b"images", None,
)  # fmt: skip
TEXTS = (
    "", "x", "-1", "0", "3", "1e400", "nan", "inf", "1.5", "999999999999", "--", "-", "auto", "\x00", "a\nb", "cpu",
    "x" * 5000, "..", "/dev/null/x", "/dev/null", "[1]", "{}", "True", "climb", "\udcff", "~nobody", "*", "\u0661",
)  # fmt: skip


# -- Python ------------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """A call that works. ``then`` uses what it returns."""

    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    """Further arguments to try."""
    then: Callable[[Any], Any] = lambda value: value
    pictures: tuple[str, ...] = ()
    """Arguments that are images."""


def use_memory(memory: Any) -> None:
    memory.insert(TENSOR, EMBEDDINGS, embed=lambda images: torch.zeros(len(images), 8))
    memory.sample(4)
    memory.state_dict()


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.kind not in kinds)


def python_calls(root: Path) -> dict[str, Call]:
    """Every public class and function, with arguments that work."""
    small: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "passes": 1, "device": "cpu"}
    sizes: dict[str, Any] = {"capacity": 30, "image_shape": (3, 16, 16), "embedding_dim": 8}
    centroids = {**sizes, "stm_centroids": 6, "ltm_centroids": 3, "images_per_centroid": 5}
    fitted = Climb(**small).partial_fit(IMAGES)
    model = open_model(root / "learner", device="cpu")
    learned = {"image_size": 16, "passes": 1, "replay_batch": 8, "budget": 60, "method": "er-fifo", "device": "cpu"}
    tiny = {"image_size": 16, "tasks": 2, "replay_batch": 8, "capacity": 40, "passes": 1}
    settings = tuple(
        name
        for section in (LearnerConfig, MemoryConfig)
        for name, each in settings_of(section).items()
        if each.has_option
    )

    def learn_in(name: str = "out", **options: Any) -> Any:
        shutil.rmtree(root / "learned", ignore_errors=True)
        return learn(options.pop("images", root / "images"), out=options.pop("out", root / "learned"), **options)

    def execute_in(config: Any = None, execution: Any = None, out: Any = root / "executed", **options: Any) -> Any:
        with mock.patch("climb.session.experiments.open_session", side_effect=Stopped):
            return execute(config, execution, out, **options)

    calls = {
        "Climb": Call(Climb, small, parameters_of(Climb), lambda model: model.partial_fit(IMAGES).transform(IMAGES)),
        "Climb.partial_fit": Call(lambda X: Climb(**small).partial_fit(X), {"X": IMAGES}, pictures=("X",)),
        "Climb.fit": Call(lambda X: Climb(**small).fit(X), {"X": IMAGES}, pictures=("X",)),
        "Climb.transform": Call(lambda X: fitted.transform(X), {"X": IMAGES}, pictures=("X",)),
        "Climb.set_params": Call(lambda **values: Climb().set_params(**values).partial_fit(IMAGES), small, settings),
        "Climb.save": Call(lambda path: fitted.save(path), {"path": root / "saved"}),
        "Climb.load": Call(Climb.load, {"path": root / "model.climb", "device": "cpu"}),
        "experiment": Call(experiment, tiny, (*settings, "recipe", "out", "seed", "preset", "dataset", "scenario")),
        "execute": Call(
            execute_in, {"config": experiment("demo"), "execution": Execution(device="cpu")}, ("out", "observers")
        ),
        "Execution": Call(
            lambda **values: execute_in(experiment("demo"), Execution(**values)),
            {"device": "cpu"},
            tuple(name for name in settings_of(Execution) if name != "imports"),
        ),
        "learn": Call(
            learn_in,
            {"images": root / "images", **learned},
            (
                *settings,
                "out",
                "observers",
                "every",
                "workers",
                "journal_seconds",
                "checkpoint_seconds",
                "track",
                "size",
            ),
        ),
        "CentroidMemory": Call(CentroidMemory, centroids, parameters_of(CentroidMemory), use_memory),
        "FifoMemory": Call(FifoMemory, sizes, parameters_of(FifoMemory), use_memory),
        "ReservoirMemory": Call(ReservoirMemory, sizes, parameters_of(ReservoirMemory), use_memory),
        "MinRedMemory": Call(MinRedMemory, sizes, parameters_of(MinRedMemory), use_memory),
        "PartAndSelectMemory": Call(PartAndSelectMemory, sizes, parameters_of(PartAndSelectMemory), use_memory),
        "load_file": Call(load_file, {"path": root / "parts.py"}),
        "check_memory": Call(check_memory, {"factory": lambda: FifoMemory(20, (3, 8, 8), 16)}, ("seed",)),
        "check_method": Call(check_method, {"name_or_method": find_method("finetune")}, ("seed",)),
        "open_model": Call(open_model, {"path": root / "learner", "device": "cpu"}),
        "embed": Call(lambda model, pictures: list(embed(model, pictures)), {"model": model, "pictures": []}),
        "images_of": Call(lambda **values: list(images_of(**values)), {"images": root / "images", "image_size": 16}),
        "probe": Call(probe, {"model": model, "images": root / "classes"}, ("shots", "draws", "seed")),
        "search": Call(search, {"model": model, "image": root / "images" / "0.png"}, ("within", "top")),
        "export": Call(export, {"model": model, "out": root / "exported"}, ("formats", "pixels")),
        "datasets.load": Call(
            load,
            {"name": "synthetic", "classes": 3, "train_per_class": 5, "test_per_class": 2},
            ("root", "image_size", "seed", "normalisation"),
        ),
        "open_source": Call(open_source, {"images": root / "images", "image_size": 16}, parameters_of(open_source)),
        "streams.make": Call(make, {"kind": "regular", "classes": 6, "tasks": 3, "seed": 0}, parameters_of(make)),
    }
    for kind in (CentroidMemory, FifoMemory, ReservoirMemory, MinRedMemory, PartAndSelectMemory):
        memory = kind(**(centroids if kind is CentroidMemory else sizes))
        use_memory(memory)
        given = {"images": TENSOR, "embeddings": EMBEDDINGS}
        insert = memory.insert if kind is not PartAndSelectMemory else _with_embed(memory)
        calls[f"{kind.__name__}.insert"] = Call(insert, given, pictures=("images",))
        calls[f"{kind.__name__}.sample"] = Call(memory.sample, {"n": 4})
    return calls


def _with_embed(memory: Any) -> Callable[..., Any]:
    return lambda **given: memory.insert(**given, embed=lambda images: torch.zeros(len(images), 8))


class Stopped(ClimbError):
    """Everything was accepted; training is not needed."""


def python_trial(call: Call, dice: random.Random) -> tuple[str, str]:
    """Description of a call, and what is wrong with its outcome."""
    arguments = dict(call.arguments)
    for name in dice.sample(names := [*{*arguments, *call.more}], k=min(len(names), dice.choice((1, 1, 2)))):
        arguments[name] = dice.choice(PICTURES if name in call.pictures and dice.random() < 0.7 else VALUES)
    changed = {name: value for name, value in arguments.items() if value is not call.arguments.get(name)}
    text = ", ".join(f"{name}={short(value)}" for name, value in changed.items())
    try:
        call.then(call.function(**arguments))
    except (ClimbError, ContractViolation) as error:
        return text, f"several lines: {error!r}" if "\n" in str(error).replace("a\nb", "ab") else ""
    except Hanging:
        return text, f"hangs for {LONGEST} s"
    except BaseException as error:
        return text, f"{type(error).__name__}: {short(error, 200)}"
    return text, ""


def short(value: Any, most: int = 60) -> str:
    text = " ".join(repr(value).split()) if not isinstance(value, np.ndarray | torch.Tensor) else (
        f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    )  # fmt: skip
    return text[:most]


# -- command line ------------------------------------------------------------------------------------------------------


def command_lines(root: Path) -> dict[str, list[str]]:
    """Every verb, with arguments that work and take a moment."""
    tiny = ["--image-size", "16", "--tasks", "2", "--replay-batch", "8", "--capacity", "40", "--passes", "1"]
    tiny += ["--classes", "2", "--probe-epochs", "1", "--device", "cpu"]
    own = ["--image-size", "16", "--budget", "60", "--replay-batch", "8", "--passes", "1", "--device", "cpu"]
    model = str(root / "learner")
    return {
        "run": ["run", "demo", *tiny, "--out", str(root / "run")],
        "learn": ["learn", str(root / "images"), *own, "--method", "er-fifo", "--out", str(root / "learner")],
        "bench": ["bench", "smoke", "--dry-run", "--out", str(root / "bench")],
        "table": ["table", str(root / "run")],
        "tune": ["tune", "demo", "--over", "lr=0.1,0.3", "--dry-run", "--out", str(root / "tune")],
        "report": ["report", str(root / "run")],
        "serve": ["serve", str(root / "run"), "--port", "99999"],
        "embed": ["embed", model, str(root / "images"), "--out", str(root / "features.npy"), "--device", "cpu"],
        "probe": ["probe", model, str(root / "classes"), "--device", "cpu"],
        "search": ["search", model, str(root / "images" / "0.png"), "--device", "cpu"],
        "score": ["score", model, str(root / "images"), "--out", str(root / "scores.csv"), "--device", "cpu"],
        "select": ["select", model, str(root / "images"), "--n", "3", "--out", str(root / "select"), "--device", "cpu"],
        "duplicates": ["duplicates", model, str(root / "images"), "--out", str(root / "twins.csv"), "--device", "cpu"],
        "export": ["export", model, "--out", str(root / "export")],
        "methods": ["methods"],
        "recipes": ["recipes"],
        "data": ["data"],
        "doctor": ["doctor"],
    }


def options_of(verb: str) -> list[str]:
    """The options in the help of a verb."""
    with captured() as output, contextlib.suppress(SystemExit):
        run_command([verb, "--help"])
    words = output.getvalue().replace("│", " ").replace(",", " ").split()
    # A learner that watches a folder never ends; an imported file is code.
    return sorted({word for word in words if word[:2] == "--" and word.strip("-") not in ("", "watch", "import")})


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output


def command_trial(words: list[str], options: list[str], dice: random.Random) -> tuple[str, str]:
    """A command line, and what is wrong with its outcome."""
    words = list(words)
    for _ in range(dice.choice((1, 1, 2))):
        choice = dice.randrange(3)
        if choice == 0 and len(words) > 1:
            words[dice.randrange(1, len(words))] = dice.choice(TEXTS)
        elif choice == 1 and options:
            words += [dice.choice(options), dice.choice(TEXTS)]
        else:
            words.insert(dice.randrange(1, len(words) + 1), dice.choice((*TEXTS, "--nonsense", "--out", "-h")))
    words += ["--port", "99999"] if words[0] == "serve" else []  # a valid port would serve for ever
    text = short(words, 400)
    error: BaseException | None = None
    with captured() as output:
        try:
            code: Any = run_command(words)
        except SystemExit as ended:
            code = ended.code
        except Hanging:
            return text, f"hangs for {LONGEST} s"
        except BaseException as raised:
            code, error = None, raised
    said = output.getvalue().replace("a\nb", "ab")
    if error is not None:
        return text, f"{type(error).__name__}: {short(error, 200)}"
    if "Traceback (most recent" in said:
        return text, "a traceback is printed"
    if code not in (0, None, 1, 2):
        return text, f"exit code {code}"
    lines = said.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith("climb: ")]
    if code in (1, 2) and ours and ours[-1] != len(lines) - 1:
        return text, f"several lines: {lines[ours[-1] :][:3]}"
    if code == 2 and not said.strip():
        return text, "no message"
    return text, ""


# -- both --------------------------------------------------------------------------------------------------------------


def write_material(root: Path) -> None:
    """Images, images by class, a learner, a saved model, a file with parts."""
    for number in range(24):
        for folder in (root / "images", root / "classes" / "ab"[number % 2]):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(IMAGES[number]).save(folder / f"{number}.png")
    options = {"image_size": 16, "passes": 1, "replay_batch": 8, "budget": 60, "method": "er-fifo", "device": "cpu"}
    learn(root / "images", out=root / "learner", **options)
    model = Climb(capacity=60, backbone="micro", replay_batch=8, passes=1, device="cpu").partial_fit(IMAGES)
    model.save(root / "model.climb")
    (root / "parts.py").write_text("part = 1\n")


def stop_hanging(number: int, frame: FrameType | None) -> None:
    raise Hanging


def main() -> None:
    arguments = parse_arguments(__doc__, trials=3000)
    dice, trials = random.Random(arguments.seed), Trials("hostile arguments")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, stop_hanging)
    signal.signal(signal.SIGPROF, stop_hanging)
    logging.getLogger("climb").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary:
        root = Path(temporary)
        (root / "work").mkdir()
        os.chdir(root / "work")
        write_material(root)
        lines = command_lines(root)
        if set(lines) != set(verbs()):
            raise SystemExit(f"verbs without a command line here: {set(verbs()) ^ set(lines)}")
        with captured():
            run_command(lines["run"])
        options, calls = {verb: options_of(verb) for verb in lines}, python_calls(root)
        kinds = [*(f"climb {verb}" for verb in lines), *calls]
        for number in range(arguments.trials):
            kind = kinds[number % len(kinds)]
            signal.setitimer(signal.ITIMER_PROF, LONGEST)  # of processor time: a machine may be busy, or pause this
            signal.alarm(20 * LONGEST)
            with open(os.devnull) as nothing, mock.patch("sys.stdin", nothing):
                if kind in calls:
                    with captured():
                        text, fault = python_trial(calls[kind], dice)
                else:
                    verb = kind.removeprefix("climb ")
                    text, fault = command_trial(lines[verb], options[verb], dice)
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            trials.add(kind, ok=not fault, detail=f"{text}: {fault}")
        os.chdir("/")
    trials.finish(arguments.out)


if __name__ == "__main__":
    sys.setrecursionlimit(2000)
    main()
