from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

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
