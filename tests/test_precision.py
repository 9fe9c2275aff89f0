"""Full float32 precision, and what a machine lacks to compile kernels."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from climb.engine.health import health
from climb.evaluation.probe_epoch import ProbeEpoch
from climb.evaluation.simple_probes import standardize
from climb.memory.minred import MinRedMemory
from climb.memory.part_and_select import part_and_select
from climb.precision import (
    _container_limit,
    bf16_gain,
    full_float32,
    missing_for_kernels,
    threads,
    usable_cores,
)


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
    """Rejects float64 tensors, like a device without float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            assert not (isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64), f"{func} makes float64"
        return out


@pytest.mark.parametrize(
    "module",
    ["engine.health", "memory.minred", "memory.part_and_select", "evaluation.probe_epoch", "evaluation.simple_probes"],
)
def test_float64_is_not_used_on_a_device_without_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"climb.{module}.widest", lambda device: torch.float32)
    points, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2

    def redundant() -> list[int]:
        memory = MinRedMemory(4, (3, 1, 1), 4)
        memory.insert(torch.zeros(4, 3, 1, 1, dtype=torch.uint8), points[:4])
        return memory._redundant(2, torch.ones((), dtype=torch.bool))

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
        "evaluation.simple_probes": lambda: standardize(points, points, dtype=torch.float32)[0],
    }
    with NoDoubles():
        found = work[module]()
    monkeypatch.undo()
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(work[module]()), rtol=1e-4, atol=1e-5)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Triton, but no compiler on its PATH and no header of Python; its one folder."""
    monkeypatch.setattr("climb.precision.has_triton", lambda: True)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    return tmp_path


def put(compiler: Path) -> None:
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_and_the_headers_are_needed(bare: Path, compiler: str) -> None:
    missing = missing_for_kernels()
    assert missing is not None
    assert "there is no C compiler: install gcc, or set the variable CC" in missing
    put(bare / compiler)
    assert missing_for_kernels() == f"Python's headers are not in {bare}: install python3-dev or a similar package"
    (bare / "Python.h").touch()
    assert missing_for_kernels() is None


def test_a_compiler_may_be_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "Python.h").touch()
    monkeypatch.setenv("CC", f"{bare}/theirs -O2")
    assert "there is no C compiler" in str(missing_for_kernels())
    put(bare / "theirs")
    assert missing_for_kernels() is None


def test_kernels_for_a_cpu_need_another_compiler(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.precision.has_triton", lambda: False)
    put(bare / "gcc")
    (bare / "Python.h").touch()
    missing = str(missing_for_kernels("cpu"))
    assert "there is no C++ compiler: install " in missing
    assert "set the variable CXX" in missing
    put(bare / "theirs")
    monkeypatch.setenv("CXX", f"{bare}/theirs")
    assert missing_for_kernels("cpu") is None


def test_without_triton_nothing_else_helps(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.precision.has_triton", lambda: False)
    put(bare / "gcc")
    (bare / "Python.h").touch()
    assert missing_for_kernels() == "torch finds no Triton for this GPU: install triton"


def test_the_headers_of_this_python_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Python names a folder of its own, which has none."""
    include = Path(sysconfig.get_paths("posix_prefix")["include"])
    if shutil.which("gcc") is None or not (include / "Python.h").exists():
        pytest.skip("this machine has no compiler, or no headers")
    monkeypatch.setattr("climb.precision.has_triton", lambda: True)
    monkeypatch.setattr(sysconfig, "get_default_scheme", lambda: "posix_local")
    assert missing_for_kernels() is None


def group(root: Path, name: str, **files: str) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (root / name / file.replace("_", ".", 1)).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("limits", "own", "expected"),
    [
        ({"": "max 100000", "a/b": "max 100000"}, "0::/a/b", float("inf")),
        ({"": "max 100000", "a/b": "150000 100000"}, "0::/a/b", 1.5),
        ({"": "300000 100000"}, "0::/", 3.0),  # a container with a name space of its own
        ({"": "400000 100000"}, "0::/docker/f00", 4.0),  # a container that sees its name on the host
        ({"a": "200000 100000", "a/b": "800000 100000"}, "0::/a/b", 2.0),
        ({}, "0::/", float("inf")),
    ],
)
def test_the_limit_of_a_container(limits: dict[str, str], own: str, expected: float, tmp_path: Path) -> None:
    for name, text in limits.items():
        group(tmp_path, name, cpu_max=text)
    (tmp_path / "own").write_text(f"{own}\n")
    assert _container_limit(tmp_path, tmp_path / "own") == expected


@pytest.mark.parametrize(("quota", "expected"), [("250000", 2.5), ("-1", float("inf"))])
def test_the_limit_of_an_older_container(quota: str, expected: float, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("5:memory:/x\n4:cpu,cpuacct:/x\n")
    group(tmp_path, "cpu", cpu_cfs_quota_us=quota, cpu_cfs_period_us="100000")
    assert _container_limit(tmp_path, tmp_path / "own") == expected
    assert _container_limit(tmp_path, tmp_path / "none") == float("inf")


def test_usable_cores_follow_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    monkeypatch.setattr("climb.precision._container_limit", lambda: 2.5)
    assert usable_cores() == 2
    monkeypatch.setattr("climb.precision._container_limit", lambda: 0.5)
    assert usable_cores() == 1
    monkeypatch.setattr("climb.precision._container_limit", lambda: float("inf"))
    assert usable_cores() == 3


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with threads(3):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), threads(3):
        _ = 1 / 0
    assert torch.get_num_threads() == before


def test_the_gain_of_bf16_is_a_ratio_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured with a clock that runs three times as fast during bf16 convolutions, and ten times during products."""
    state, now = torch.random.get_rng_state(), 0.0
    ticks: list[float] = []

    def clock() -> float:
        nonlocal now
        # full, half, full, half, ...: first sixteen products, then convolutions
        call = len(ticks)
        ticks.append(now)
        if call % 2 == 0:
            now += 1e-3 / (1 if call // 2 % 2 == 0 else 10 if call < 32 else 3)
        return ticks[-1]

    monkeypatch.setattr("climb.precision.time.thread_time", clock)
    with torch.inference_mode():
        assert bf16_gain.__wrapped__() == pytest.approx(3.0)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_gain_of_bf16_here() -> None:
    assert 0 < bf16_gain() < 100
    assert bf16_gain() == bf16_gain()


FAULTS = """
import resource, sys, torch
from climb.precision import reuse_memory
if sys.argv[1] == "reuse":
    print(reuse_memory())
big = torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    big * 2
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_of_freed_tensors_is_reused() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def faults(mode: str, **more: str) -> list[str]:
        command = [sys.executable, "-c", FAULTS, mode]
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, check=True)
        return done.stdout.split()

    pages = 2**26 // resource.getpagesize()
    (plain,) = map(int, faults("plain"))
    accepted, reused = faults("reuse")
    assert plain > 4 * pages  # 64 MB, five times
    assert accepted == "True"
    assert int(reused) < 2 * pages
    assert faults("reuse", MALLOC_ARENA_MAX="1")[0] == "False"
