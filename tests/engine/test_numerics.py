from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from climb.engine import resolve_device, resolve_precision
from climb.engine.numerics import autocast, numerics, resolve_engine
from climb.errors import InputError

CPU = torch.device("cpu")


def test_auto_takes_what_is_there() -> None:
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_engine("auto", CPU) == "eager"


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x", "cuda:-1"])
def test_names_that_are_no_device(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown device '{name}'. Allowed: auto, cpu, cuda, cuda:N, mps"):
        resolve_device(name)


def test_devices_that_torch_has_but_climb_has_not() -> None:
    with pytest.raises(InputError, match=r"device 'meta' is not supported\. Allowed: auto, cpu"):
        resolve_device("meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present")
def test_a_missing_gpu_says_what_to_type() -> None:
    with pytest.raises(InputError, match="torch sees no CUDA device; type --device cpu"):
        resolve_device("cuda")


@pytest.mark.parametrize(("share", "warned"), [(None, False), ("100", False), ("60", True)])
def test_a_part_of_a_card_is_warned_of(
    share: str | None, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)
    if share is not None:
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share)
    assert resolve_device("cuda").type == "cuda"
    assert ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is set" in caplog.text) is warned


def test_precisions_and_engines_the_device_has_not() -> None:
    with pytest.raises(InputError, match="tf32 exists on CUDA devices only"):
        resolve_precision("tf32", CPU)
    with pytest.raises(InputError, match="unknown precision 'half'"):
        resolve_precision("half", CPU)
    with pytest.raises(InputError, match="captured engine needs a CUDA device"):
        resolve_engine("captured", CPU)
    with pytest.raises(InputError, match="unknown engine 'fast'"):
        resolve_engine("fast", CPU)


@pytest.mark.parametrize(("native", "expected"), [(True, "bf16"), (False, "float32")])
def test_a_gpu_that_only_emulates_bf16_computes_in_float32(
    native: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A T4 says that it supports bf16, if asked in general; kernels for it are slow, or do not exist."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    assert resolve_precision("auto", torch.device("cuda")) == expected


@pytest.mark.parametrize(("deterministic", "expected"), [(False, "compiled"), (True, "captured")])
def test_a_run_that_is_to_repeat_its_bits_is_not_compiled(
    deterministic: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continued, it would take its first steps uncompiled."""
    monkeypatch.setattr("climb.engine.numerics.missing_for_kernels", lambda: None)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    assert resolve_engine("auto", torch.device("cuda")) == expected


def test_where_kernels_cannot_be_built_steps_are_captured_and_it_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing = "there is no C compiler: install gcc"
    monkeypatch.setattr("climb.engine.numerics.missing_for_kernels", lambda device="cuda": missing)
    gpu = torch.device("cuda")
    assert resolve_engine("auto", gpu) == "captured"
    assert "there is no C compiler: install gcc. Steps are captured" in caplog.text
    with pytest.raises(InputError, match=r"install gcc\. Or type --engine captured"):
        resolve_engine("compiled", gpu)
    with pytest.raises(InputError, match=r"install gcc\. Or type --engine eager"):
        resolve_engine("compiled", CPU)


@pytest.mark.parametrize(("gain", "expected"), [(4.0, "bf16"), (1.1, "float32"), (0.02, "float32")])
def test_a_cpu_computes_in_bf16_where_that_is_faster(
    gain: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.engine.numerics.bf16_gain", lambda: gain)
    assert resolve_precision("auto", CPU) == expected
    assert resolve_precision("float32", CPU) == "float32"


def test_bf16_reaches_products_and_only_inside() -> None:
    a = torch.rand(4, 4)
    with numerics(CPU, "bf16"), autocast(CPU, "bf16"):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32
    with numerics(CPU, "float32"), autocast(CPU, "float32"):
        assert (a @ a).dtype == torch.float32
