"""The surface: which names there are, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import climb
import climb.memory


def test_the_public_names() -> None:
    assert climb.__all__ == ["Climb", "ClimbError", "InputError", "__version__"]
    assert climb.memory.__all__ == [
        "MEMORIES",
        "CentroidMemory",
        "FifoMemory",
        "Group",
        "InsertReport",
        "Memory",
        "MemorySnapshot",
        "MinRedMemory",
        "PartAndSelectMemory",
        "ReplayBatch",
        "ReservoirMemory",
        "ShowsGroups",
        "Tier",
        "memory",
    ]
    for module in (climb, climb.memory):
        assert all(hasattr(module, name) for name in module.__all__)


def test_errors_are_value_errors_where_the_input_is_at_fault() -> None:
    assert issubclass(climb.InputError, ValueError)
    assert issubclass(climb.InputError, climb.ClimbError)
    assert not issubclass(climb.ClimbError, ValueError)


def test_importing_brings_no_library_that_only_commands_need() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import climb; new = set(sys.modules) - before;"
        "print(sorted({'matplotlib', 'tyro', 'rich', 'PIL', 'scipy', 'sklearn', 'kornia'} & new))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_importing_costs_little_beyond_torch() -> None:
    """In time of the processor, and by what torch itself takes: whatever machine this is, and who else is on it."""
    code = (
        "from time import process_time as t; a = t(); import torch, numpy; b = t(); import climb; c = t();"
        "print((c - b) / (b - a))"
    )
    shares = []
    for _ in range(5):  # the first time climb may have to be compiled
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        shares.append(float(found.stdout))
        if shares[-1] <= 0.25:
            return
    raise AssertionError(f"import climb took {min(shares):.2f} of the time that torch takes; a quarter is allowed")
