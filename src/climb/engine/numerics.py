"""Device, arithmetic and engine: chosen once, stated, never silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from climb.errors import InputError

Precision = Literal["float32", "tf32", "bf16"]
EngineKind = Literal["eager", "captured"]


def resolve_device(name: str) -> torch.device:
    """The device called ``name``; "auto" takes a GPU when there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
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
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' was asked for, but torch sees none; type --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device '{name}' is not supported. Allowed: auto, cpu, cuda, cuda:N, mps")
    return device


def resolve_precision(name: str, device: torch.device) -> Precision:
    """ "auto" is bf16 on a GPU that has it and float32 elsewhere."""
    if name == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if name not in ("float32", "tf32", "bf16"):
        raise InputError(f"unknown precision '{name}'. Allowed: auto, float32, tf32, bf16")
    if name == "tf32" and device.type != "cuda":
        raise InputError(f"tf32 exists on CUDA devices only; the device is {device}")
    return name  # type: ignore[return-value]


def resolve_engine(name: str, device: torch.device) -> EngineKind:
    """ "auto" captures the step on a CUDA device and is eager elsewhere."""
    if name == "auto":
        return "captured" if device.type == "cuda" else "eager"
    if name not in ("eager", "captured"):
        raise InputError(f"unknown engine '{name}'. Allowed: auto, eager, captured")
    if name == "captured" and device.type != "cuda":
        raise InputError(f"the captured engine needs a CUDA device; the device is {device}: type --engine eager")
    return name  # type: ignore[return-value]


@contextmanager
def numerics(device: torch.device, precision: Precision) -> Iterator[None]:
    """Forward and backward under ``precision``; `autocast` goes around the forward alone."""
    if device.type != "cuda" or precision == "bf16":
        yield
        return
    # torch makes the second attribute at import, where type checkers do not see it.
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [switch.fp32_precision for switch in switches]
    for switch in switches:
        switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A forward in bf16 where that is the precision; losses and statistics stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
