from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from climb.engine.health import health
from climb.evaluation.probe_epoch import ProbeEpoch
from climb.evaluation.standardize import standardize
from climb.memory.minred import MinRedMemory
from climb.memory.part_and_select import part_and_select
from climb.precision import full_float32


def backends() -> tuple[str, str]:
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


def general() -> str:
    """The older switch as torch reads it, or the fact that torch refuses to."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "refused"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"


def nothing() -> None:
    pass


def older_cuda_switch() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True


def newer_cuda_switch() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def older_general_switch() -> None:
    torch.set_float32_matmul_precision("medium")


def newer_general_switch() -> None:
    torch.backends.fp32_precision = "tf32"


@pytest.mark.parametrize(
    "choose", [nothing, older_cuda_switch, newer_cuda_switch, older_general_switch, newer_general_switch]
)
def test_is_full_inside_and_as_the_user_chose_after(choose: Callable[[], None]) -> None:
    choose()
    chosen = backends(), general()
    with full_float32():
        assert backends() == ("ieee", "ieee")
        assert general() == "highest"
        assert torch.backends.cuda.matmul.allow_tf32 is False
    assert (backends(), general()) == chosen


def test_is_restored_after_an_error() -> None:
    torch.set_float32_matmul_precision("high")
    with pytest.raises(ZeroDivisionError), full_float32():
        _ = 1 / 0
    assert torch.get_float32_matmul_precision() == "high"


class NoDoubles(TorchDispatchMode):
    """Refuses what a device without float64 would refuse."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            assert not (isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64), f"{func} makes float64"
        return out


@pytest.mark.parametrize(
    "module",
    ["engine.health", "memory.minred", "memory.part_and_select", "evaluation.probe_epoch", "evaluation.standardize"],
)
def test_a_device_without_float64_is_not_asked_for_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"climb.{module}.widest", lambda device: torch.float32)
    points, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2

    def redundant() -> list[int]:
        memory = MinRedMemory(4, (3, 1, 1), 4)
        memory.insert(torch.zeros(4, 3, 1, 1, dtype=torch.uint8), points[:4])
        return memory._redundant(2)

    def trained() -> torch.Tensor:
        epoch = ProbeEpoch(points, labels, classes=2, batch_size=2)
        epoch.start(torch.Generator().manual_seed(0))
        epoch.lr.fill_(0.01)
        epoch.run()
        return epoch.parameters

    work: dict[str, Callable[[], object]] = {
        "engine.health": lambda: health(points).spread,
        "memory.minred": redundant,
        "memory.part_and_select": lambda: len(part_and_select(points, 3)),  # which of a pair it takes is rounding
        "evaluation.probe_epoch": trained,
        "evaluation.standardize": lambda: standardize(points, points, dtype=torch.float32)[0],
    }
    with NoDoubles():
        found = work[module]()
    monkeypatch.undo()
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(work[module]()), rtol=1e-4, atol=1e-5)
