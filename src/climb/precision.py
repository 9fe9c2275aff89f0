"""What the hardware computes: full float32 products, the widest float, usable cores, reused memory, the gain of bf16,
and whether kernels can be built."""

from __future__ import annotations

import ctypes
import os
import shlex
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import which

import torch
from torch.utils._triton import has_triton


def widest(device: torch.device) -> torch.dtype:
    """The most precise floating-point type of a device.

    >>> widest(torch.device("cpu")), widest(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 matrix products without TF32 and bfloat16 inside the context.

    Novelty thresholds and probes depend on differences that a ten-bit mantissa cannot represent.

    >>> torch.set_float32_matmul_precision("high")
    >>> with full_float32():
    ...     torch.get_float32_matmul_precision()
    'highest'
    >>> torch.get_float32_matmul_precision()
    'high'
    >>> torch.set_float32_matmul_precision("highest")
    """
    cuda = torch.backends.cuda.matmul
    cpu = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # defined at runtime
    saved = cuda.fp32_precision, cpu.fp32_precision
    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:
        # torch has two generations of switches. It cannot read the older one in exactly one case: it is "highest", and
        # a backend switch is lower.
        general = "highest"
    # The older switch sets both generations. Setting only the newer could leave a mixture that torch rejects.
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(general)
        cuda.fp32_precision, cpu.fp32_precision = saved


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, at most the CPU limit of its container."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, int(min(cores, _container_limit())))


def _container_limit(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Cores that the control groups of this process allow; infinite without a limit."""
    limit = float("inf")
    try:
        names = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:  # not on Linux
        return limit
    for _, controllers, name in names:
        if controllers == "":  # version 2
            folder, files = root / name.strip("/"), ["cpu.max"]
        elif "cpu" in controllers.split(","):
            folder, files = root / "cpu" / name.strip("/"), ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        for group in (folder, *folder.parents):  # a limit holds for all groups below; inside a container, names differ
            try:
                quota, period = " ".join((group / file).read_text() for file in files).split()
            except (OSError, ValueError):
                continue
            if quota not in ("max", "-1"):
                limit = min(limit, int(quota) / int(period))
    return limit


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Inside, torch computes with this number of CPU threads. It decides the last bits of long sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt, in malloc.h


@cache
def reuse_memory() -> bool:
    """Have the C library reuse the memory of freed tensors. By default, it returns large blocks to the system, which
    clears every page before a step gets it again. Once per process; only with glibc. Variables such as
    ``MALLOC_TRIM_THRESHOLD_`` take precedence.

    Returns:
        Whether the C library accepted it.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**28)) and bool(mallopt(_TRIM_THRESHOLD, 2**30))


@cache
def bf16_gain() -> float:
    """How many times faster one core computes in bf16 than in float32: the smaller of the gains of a matrix product and
    of a convolution with its gradient. Measured once per process, in some 20 ms."""

    def product(kind: torch.dtype) -> Callable[[], object]:
        matrix = torch.ones(384, 384, dtype=kind)
        return lambda: matrix @ matrix

    def convolution(kind: torch.dtype) -> Callable[[], object]:
        images = torch.ones(8, 64, 16, 16, dtype=kind, requires_grad=True)
        kernel = torch.ones(64, 64, 3, 3, dtype=kind, requires_grad=True)

        def gradient() -> object:
            out = torch.nn.functional.conv2d(images, kernel, padding=1)
            return torch.autograd.grad(out, (images, kernel), torch.ones_like(out))

        return gradient

    def seconds(work: Callable[[], object]) -> float:
        began = time.thread_time()  # of this thread alone: other programs may use the core
        work()
        return time.thread_time() - began

    def gain(make: Callable[[torch.dtype], Callable[[], object]]) -> float:
        full, half = make(torch.float32), make(torch.bfloat16)
        times = [(seconds(full), seconds(half))]
        while len(times) < 8 and sum(map(sum, times)) < 0.05:  # without hardware for it, bf16 takes seconds
            times.append((seconds(full), seconds(half)))
        ours, theirs = zip(*times, strict=True)
        return float(min(ours) / min(theirs))

    with threads(1), torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        return min(gain(product), gain(convolution))


def missing_for_kernels(device: str = "cuda") -> str | None:
    """What is missing on this machine to compile kernels for a device, with a remedy; None if nothing is.

    Triton compiles a small C extension of Python at its first kernel, and kernels for a CPU are C++. Slim container
    images have neither a compiler nor Python's headers, so compilation would fail in the middle of a run.
    """
    if device == "cuda" and not has_triton():
        return "torch finds no Triton for this GPU: install triton"
    if device == "cuda" and os.name == "nt":  # Triton for Windows includes a compiler
        return None
    if device == "cuda":
        language, variable, compilers = "C", "CC", ["gcc", "clang"]
    else:
        language, variable, compilers = "C++", "CXX", ["clang++" if sys.platform == "darwin" else "g++"]
    configured = shlex.split(os.environ.get(variable, ""))[:1]
    if not any(which(compiler) for compiler in configured or compilers):
        return f"there is no {language} compiler: install {compilers[0]}, or set the variable {variable}"
    headers = _headers()
    if not (headers / "Python.h").exists():
        return f"Python's headers are not in {headers}: install python3-dev or a similar package"
    return None


def _headers() -> Path:
    scheme = sysconfig.get_default_scheme()
    # Debian's default scheme has the folder for local packages, which has no headers of Python.
    return Path(sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"])
