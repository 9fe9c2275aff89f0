"""Device, arithmetic and engine: chosen once, stated, never silent."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch

from climb.errors import InputError
from climb.kernels import missing_for_kernels
from climb.parallel import current

log = logging.getLogger(__name__)

Precision = Literal["float32", "tf32", "bf16"]
EngineKind = Literal["eager", "captured", "compiled"]

MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"  # of NVIDIA's MPS, which is not the mps that torch calls Apple's


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
    if device.type == "cuda" and os.environ.get(MPS_SHARE, "100") != "100":
        log.warning("%s is set: on a part of a card trainings have become NaN. Unset it, or watch the loss.", MPS_SHARE)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' was asked for, but torch sees none; type --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device '{name}' is not supported. Allowed: auto, cpu, cuda, cuda:N, mps")
    return device


def resolve_precision(name: str, device: torch.device) -> Precision:
    """ "auto" is bf16 on a GPU that has it and float32 elsewhere: older GPUs only emulate it, slowly."""
    if name == "auto":
        if device.type != "cuda":
            return "float32"
        with torch.cuda.device(device):
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if name not in get_args(Precision):
        raise InputError(f"unknown precision '{name}'. Allowed: auto, {', '.join(get_args(Precision))}")
    if name == "tf32" and device.type != "cuda":
        raise InputError(f"tf32 exists on CUDA devices only; the device is {device}")
    return name  # type: ignore[return-value]


def resolve_engine(name: str, device: torch.device) -> EngineKind:
    """ "auto" is compiled on a CUDA device where kernels can be built, else captured; eager on other devices.

    Where the same bits are asked for every time, it is captured: a run that is continued takes its first steps
    uncompiled, and those round differently. Processes that train one learner together exchange numbers within a step,
    which is eager therefore.
    """
    if current().size > 1 and name in ("captured", "compiled"):
        raise InputError(f"the {name} engine works in one process; across processes type --engine eager")
    if name == "auto":
        if device.type != "cuda" or current().size > 1:
            return "eager"
        if torch.are_deterministic_algorithms_enabled():
            return "captured"
        if missing := missing_for_kernels():
            log.warning("%s. Steps are captured, not compiled, and take about half as long again.", missing)
            return "captured"
        return "compiled"
    if name not in get_args(EngineKind):
        raise InputError(f"unknown engine '{name}'. Allowed: auto, {', '.join(get_args(EngineKind))}")
    if name == "captured" and device.type != "cuda":
        raise InputError(f"the captured engine needs a CUDA device; the device is {device}: type --engine eager")
    if name == "compiled" and device.type == "cuda" and (missing := missing_for_kernels()):
        raise InputError(f"the compiled engine cannot build its kernels: {missing}. Or type --engine captured")
    return name  # type: ignore[return-value]


@contextmanager
def numerics(device: torch.device, precision: Precision, *, tuned: bool = False) -> Iterator[None]:
    """Forward and backward under ``precision``; `autocast` goes around the forward alone.

    With ``tuned``, cuDNN tries its convolutions on each new shape and keeps the fastest: worth it for shapes that
    keep coming, and left alone where the same bits are asked for every time.
    """
    if device.type != "cuda":
        yield
        return
    # torch makes the second attribute at import, where type checkers do not see it.
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
    """A forward in bf16 where that is the precision; losses and statistics stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
