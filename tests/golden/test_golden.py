"""Every method learns to the bit as it did at the base commit, and every configuration keeps its hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import generate
import pytest
import torch
from machine import BASE, expected, machine_name

QUICK = ("climb", "cla-e", "minred", "scale", "cassle-r", "pcmc")
"""Together they have all kinds of memory, batch and alignment; recorded under ``default`` in the fast tests."""

REST = (
    "climb-selective", "climb-memory-only", "climb-previous-step", "climb-fifo", "climb-minred", "climb-reservoir",
    "cla-r", "cla-b", "osiris-r", "lump", "er-fifo", "er-reservoir", "finetune", "iid",
)  # fmt: skip
"""The other methods. Named here, so that one that disappears is missed."""

NEWER = {"climb-none"}
"""Methods that the base commit does not have. `tests/methods/test_methods.py` compares this one with CLA-b."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums of several threads differ in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def differences(expected: Any, actual: Any, name: str = "") -> Iterator[str]:
    """Lines that say where two trees of values differ. Of losses only the first difference counts."""
    if name == "/losses" and len(expected) == len(actual):
        for number, (before, now) in enumerate(zip(expected, actual, strict=True)):
            if before != now:
                yield f"losses differ first in mini-batch {number}: {_losses(before)} expected, {_losses(now)} computed"
                return
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            yield from differences(expected.get(key), actual.get(key), f"{name}/{key}")
    elif expected != actual:
        yield f"{name[1:]}: {expected} expected, {actual} computed"


def _losses(hexadecimal: str) -> str:
    objective, alignment = hexadecimal.split()
    return f"{hexadecimal} ({float.fromhex(objective):.9g}, {float.fromhex(alignment):.9g})"


def check(method: str, preset: str, values: dict[str, Any]) -> dict[str, Any]:
    key = f"{method} {preset}"
    actual: dict[str, Any] = generate.golden([method], (preset,))[key]
    found = list(differences(values[key], actual))
    if found:
        where = f"method {method}, preset {preset}, machine {machine_name()}, commit {BASE[:7]}"
        pytest.fail("\n".join([f"other values than the golden ones: {where}", *found]), pytrace=False)
    return actual


@pytest.mark.parametrize("method", QUICK)
def test_values_of_the_main_methods(method: str) -> None:
    actual = check(method, "default", expected(QUICK, ("default",)))
    if method == "climb":
        assert min(actual["tally"][event] for event in ("promoted", "merged", "pruned", "evicted")) > 0


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("method", QUICK)
def test_values_of_the_main_methods_as_printed(method: str) -> None:
    actual = check(method, "paper", expected(QUICK, ("paper",)))
    if method == "climb":
        assert min(actual["tally"][event] for event in ("promoted", "merged", "pruned", "evicted")) > 0


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("preset", generate.PRESETS)
@pytest.mark.parametrize("method", REST)
def test_values_of_the_other_methods(method: str, preset: str) -> None:
    check(method, preset, expected(REST, generate.PRESETS))


def test_no_method_is_missed() -> None:
    assert set(QUICK) | set(REST) | NEWER == set(generate.shared("METHODS"))


def test_a_difference_is_named() -> None:
    before = {"losses": ["0x1p+0 nan", "0x1p+1 nan", "0x1p+2 nan"], "budget": {"cbp": 3, "steps": 1}}
    after = {"losses": ["0x1p+0 nan", "0x1p+3 nan", "0x1p+4 nan"], "budget": {"cbp": 4, "steps": 1}}
    assert list(differences(before, after)) == [
        "losses differ first in mini-batch 1: 0x1p+1 nan (2, nan) expected, 0x1p+3 nan (8, nan) computed",
        "budget/cbp: 3 expected, 4 computed",
    ]
    assert list(differences(before, before)) == []
