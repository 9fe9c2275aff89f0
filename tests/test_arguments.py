"""Invalid arguments of public classes and functions end in one line with the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb import Climb, InputError
from climb.arguments import check_room, check_value, checked, shown
from climb.datasets import load
from climb.export import open_model, search
from climb.memory import CentroidMemory, FifoMemory, MinRedMemory
from climb.registry import load_file
from climb.session import execute, experiment, learn
from climb.settings.config import Execution
from climb.sources import open_source
from climb.streams import make

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
SMALL: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "device": "cpu"}
SIZES: dict[str, Any] = {"capacity": 30, "image_shape": (3, 16, 16), "embedding_dim": 8}


def learned(**changes: Any) -> Climb:
    return Climb(**{**SMALL, **changes}).partial_fit(IMAGES)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: learned(capacity=10**12), "takes .* GB; this machine has .* GB: give a smaller --budget or capacity"),
        (lambda: learned(capacity=10**30), "capacity must be a whole number; given 10+"),
        (lambda: learned(device=None), "device must be text; given None"),
        (lambda: learned(device=5), "device must be text; given 5"),
        (lambda: learned(seed="x"), "seed must be a whole number; given 'x'"),
        (lambda: learned(seed=None), "seed must be a whole number; given None"),
        (lambda: learned(lr=float("nan")), "lr must be above 0 and finite; given nan"),
        (lambda: learned(lr=np.zeros(3)), r"lr must be a number; given a ndarray of float64, shape \(3,\)"),
        (lambda: learned(backbone=5), "backbone must be text; given 5"),
        (lambda: learned(objective=["x"]), r"objective must be text; given \['x'\]"),
        (lambda: learned(method=np.zeros(3)), "method must be text; given a ndarray"),
        (lambda: learned(image_size=0), "image_size must be at least 8; given 0"),
        (lambda: learned(prune=True), "unknown prune 'True'"),
        (lambda: Climb().partial_fit(IMAGES.astype(">u2")), "images must be uint8, values 0 to 255; given >u2"),
        (lambda: Climb().partial_fit(IMAGES.astype(object)), "images must be uint8, values 0 to 255; given object"),
        (lambda: Climb().partial_fit(torch.from_numpy(IMAGES).to_sparse()), "must be a dense tensor with values"),
        (lambda: Climb().partial_fit(IMAGES[:, :0, :0]), r"images must have pixels; the shape is \(10, 0, 0, 3\)"),
        (lambda: Climb().partial_fit(None), r"images must have shape \(n, H, W, 3\) .*; given NoneType"),
        (lambda: learned().save(""), "it is the name of a folder"),
        (lambda: learned().save("\0"), "path must be a path, without null characters"),
        (lambda: learned().save(1.5), "path must be text or a path; given 1.5"),
        (lambda: Climb.load(None), "path must be text or a path; given None"),
        (lambda: FifoMemory(**{**SIZES, "capacity": -1}), "capacity must be at least 1; given -1"),
        (lambda: FifoMemory(**{**SIZES, "capacity": 10**12}), "take .* GB; this machine has"),
        (lambda: FifoMemory(**{**SIZES, "image_shape": 3}), "image_shape must be a list; given 3"),
        (lambda: FifoMemory(**{**SIZES, "image_shape": (3, "x", 16)}), r"image_shape must be a list of a whole number"),
        (lambda: FifoMemory(**{**SIZES, "embedding_dim": 2.5}), "embedding_dim must be a whole number; given 2.5"),
        (lambda: FifoMemory(**SIZES, device="nothing"), "unknown device 'nothing'. Allowed: cpu"),
        (lambda: FifoMemory(**SIZES).sample(-1), "n must be at least 0; given -1"),
        (lambda: FifoMemory(**SIZES).sample("x"), "n must be a whole number; given 'x'"),
        (lambda: FifoMemory(**SIZES).insert("x"), "the memory stores dense uint8 tensors; given 'x'"),
        (lambda: MinRedMemory(**SIZES, inserts="a"), "unknown inserts 'a'. Allowed: after, before"),
        (lambda: CentroidMemory(**SIZES, seed=[]), r"seed must be a whole number; given \[\]"),
        (lambda: experiment(recipe=3), "recipe must be text; given 3"),
        (lambda: experiment("demo", preset=type), "preset must be text; given <class 'type'>"),
        (lambda: execute("demo", Execution(), "out"), "config must be a RunConfig; given 'demo'"),
        (lambda: execute(experiment("demo"), Execution(), 3), "out must be text or a path; given 3"),
        (lambda: learn([], out=b"x"), "out must be text or a path; given b'x'"),
        (lambda: learn([], out="out", workers="2"), "workers must be a whole number; given '2'"),
        (lambda: open_model(3), "path must be text or a path; given 3"),
        (lambda: search("model", "image"), "model must be a OpenModel; given 'model'"),
        (lambda: open_source([], image_size=16, workers=0), "workers must be at least 1; given 0"),
        (lambda: make("regular", 6, -3, seed=0), "tasks must be 1 or more, not -3"),
        (lambda: make("regular", 10**12, 3, seed=0), "classes must be at most 1,000,000; given 10+"),
        (lambda: load("synthetic", test_per_class=10**12), "take .* GB; this machine has"),
        (lambda: load(3), "name must be text; given 3"),
        (lambda: load_file(None), "path must be text or a path; given None"),
    ],
)
def test_the_value_and_what_is_allowed_are_named(act: Callable[[], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as raised:
        act()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [IMAGES.view(">u1"), IMAGES[::-1], np.asfortranarray(IMAGES), np.broadcast_to(IMAGES[:1], IMAGES.shape),
     np.ma.masked_array(IMAGES)],
    ids=["byte order", "reversed", "fortran", "read-only", "masked"],
)  # fmt: skip
def test_unusual_arrays_of_bytes_are_images_too(given: Any) -> None:
    plain = np.ascontiguousarray(np.array(given))
    assert np.array_equal(learned().transform(given), learned().transform(plain))


def test_numbers_of_numpy_are_numbers() -> None:
    check_value("n", np.int64(3), int)
    check_value("n", np.float32(0.5), float | None)
    check_value("sizes", [np.int64(3), 4], tuple[int, ...], least=3)
    check_value("anything", object(), Any)
    check_value("function", print, Callable[..., None])
    with pytest.raises(InputError, match="n must be a whole number; given True"):
        check_value("n", True, int)
    with pytest.raises(InputError, match="function must be a function or text; given 3"):
        check_value("function", 3, Callable[..., None] | str)


def test_a_checked_function_is_otherwise_itself() -> None:
    @checked(n=1)
    def draw(n: int, *more: Any, seed: int = 0, **options: Any) -> tuple[Any, ...]:
        """Draw."""
        return n, more, seed, options

    assert draw(2, "x", seed=3, other=None) == (2, ("x",), 3, {"other": None})
    assert (draw.__name__, draw.__doc__) == ("draw", "Draw.")
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        draw()  # type: ignore[call-arg]
    with pytest.raises(InputError, match="n must be at least 1; given nan"):
        checked(n=1)(lambda_with_float)(float("nan"))


def lambda_with_float(n: float) -> float:
    return n


def test_long_values_are_shortened() -> None:
    assert shown("x" * 1000) == "'" + "x" * 59 + "..."
    assert shown({"a": "b\nc"}) == "{'a': 'b\\nc'}"
    check_room(10**18, "images", "meta")  # elsewhere than in main memory
