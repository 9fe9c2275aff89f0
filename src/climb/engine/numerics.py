"""Choice of device, arithmetic and kind of engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch

from climb.arguments import shown
from climb.errors import InputError
from climb.parallel import SINGLE, Group
from climb.precision import bf16_gain, missing_for_kernels

log = logging.getLogger(__name__)

Precision = Literal["float32", "tf32", "bf16"]
EngineKind = Literal["eager", "captured", "compiled"]

WORTHWHILE = 1.3
"""Gain in speed from which on bf16 is worth its rounding."""

MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"  # of NVIDIA's MPS; torch's "mps" is Apple's


def resolve_device(name: str) -> torch.device:
    """The device called ``name``; "auto" takes a GPU when there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if not isinstance(name, str):
        raise InputError(f"device must be text; given {shown(name)}. Allowed: auto, cpu, cuda, cuda:N, mps")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"  # mps on request only: it is untested
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device '{name}'. Allowed: auto, cpu, cuda, cuda:N, mps") from None
    if device.type == "cuda" and torch.cuda.is_available() and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device '{name}' was asked for, but torch sees {torch.cuda.device_count()} CUDA device(s)")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device '{name}' was asked for, but torch sees no CUDA device; type --device cpu")
    if device.type == "cuda" and os.environ.get(MPS_SHARE, "100") != "100":
        log.warning("%s is set: runs on a part of a GPU have diverged to NaN. Unset it, or watch the loss.", MPS_SHARE)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' was asked for, but torch sees none; type --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device '{name}' is not supported. Allowed: auto, cpu, cuda, cuda:N, mps")
    return device


def resolve_precision(name: str, device: torch.device) -> Precision:
    """The precision called ``name``; "auto" is bf16 on a GPU that supports it in hardware and on a CPU where it is
    faster, else float32."""
    if name == "auto":
        if device.type == "cpu":
            return "bf16" if bf16_gain() >= WORTHWHILE else "float32"
        if device.type != "cuda":
            return "float32"
        with torch.cuda.device(device):
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if name not in get_args(Precision):
        raise InputError(f"unknown precision '{name}'. Allowed: auto, {', '.join(get_args(Precision))}")
    if name == "tf32" and device.type != "cuda":
        raise InputError(f"tf32 exists on CUDA devices only; the device is {device}")
    return name  # type: ignore[return-value]


def resolve_engine(name: str, device: torch.device, group: Group = SINGLE) -> EngineKind:
    """The engine called ``name``. "auto" is compiled on a CUDA device that can build kernels, else captured; eager on
    other devices and for several processes. `choose` compiles on a CPU, too, if that pays.
    """
    # Several processes exchange numbers within a step, which a graph cannot hold.
    if group.size > 1 and name in ("captured", "compiled"):
        raise InputError(f"the {name} engine works in one process; across processes type --engine eager")
    if name == "auto":
        if device.type != "cuda" or group.size > 1:
            return "eager"
        if torch.are_deterministic_algorithms_enabled():
            return "captured"  # a resumed run takes its first steps uncompiled, which round differently
        if missing := missing_for_kernels():
            log.warning("%s. Steps are captured, not compiled, and take about half as long again.", missing)
            return "captured"
        return "compiled"
    if name not in get_args(EngineKind):
        raise InputError(f"unknown engine '{name}'. Allowed: auto, {', '.join(get_args(EngineKind))}")
    if name == "captured" and device.type != "cuda":
        raise InputError(f"the captured engine needs a CUDA device; the device is {device}: type --engine eager")
    if name == "compiled" and device.type != "mps" and (missing := missing_for_kernels(device.type)):
        other = "captured" if device.type == "cuda" else "eager"
        raise InputError(f"the compiled engine cannot build its kernels: {missing}. Or type --engine {other}")
    return name  # type: ignore[return-value]


@contextmanager
def numerics(device: torch.device, precision: Precision, *, tuned: bool = False) -> Iterator[None]:
    """A context for forward and backward under ``precision``; `autocast` is for the forward alone.

    With ``tuned``, cuDNN benchmarks its convolutions on each new shape, unless algorithms must be deterministic.
    """
    if device.type != "cuda":
        yield
        return
    # torch creates the second attribute at import, invisible to type checkers.
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before, trials = [switch.fp32_precision for switch in switches], torch.backends.cudnn.benchmark
    if precision != "bf16":
        for switch in switches:
            switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cudnn.benchmark = tuned and not torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = trials
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context for a forward in bf16 if that is the precision. Losses and statistics stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
