"""Which machine this is, in everything that decides the last bits, and the golden values that belong to it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch

BASE = "4b5022b83378a740842e6c3c14b928f70a1b7847"
"""The commit whose behaviour the stored values record."""

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GENERATE = HERE / "generate.py"
CACHE = ROOT / "build" / "golden"
CPU_FIELDS = ("vendor_id", "cpu family", "model", "model name", "cache size")
KERNEL_FLAGS = ("avx", "amx", "fma", "f16c", "sse4", "asimd", "sve", "bf16", "i8mm")


@cache
def machine() -> dict[str, str]:
    """Processor and libraries. Kernels differ by instruction set, and block their sums by the size of caches."""
    return {
        **_processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": ".".join(np.__version__.split(".")[:2]),
        "scipy": ".".join(scipy.__version__.split(".")[:2]),
        "libc": " ".join(platform.libc_ver()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> dict[str, str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return {"processor": platform.processor() or "unknown"}
    first = cpuinfo.read_text(encoding="utf-8").split("\n\n")[0]
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    kernels = sorted(flag for flag in flags if flag.startswith(KERNEL_FLAGS))
    return {**{name: fields.get(name, "") for name in CPU_FIELDS}, "flags": " ".join(kernels)}


def machine_name() -> str:
    """A short name of this machine, for files."""
    canonical = json.dumps(machine(), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def stored_path() -> Path:
    """File of the values of this machine, whether it exists or not."""
    return HERE / "values" / f"{machine_name()}.json"


def is_known() -> bool:
    """Whether values of this machine are stored."""
    return stored_path().exists()


def expected(methods: tuple[str, ...], presets: tuple[str, ...]) -> dict[str, Any]:
    """Golden values of some methods: the stored ones, or those that the base commit computes on this machine.

    Skips the test where the base commit is not at hand.
    """
    if is_known():
        values: dict[str, Any] = json.loads(stored_path().read_text(encoding="utf-8"))["values"]
        return values
    wanted = hashlib.sha256(repr((BASE, methods, presets, GENERATE.read_bytes())).encode()).hexdigest()[:12]
    cached = CACHE / f"{machine_name()}-{wanted}.json"
    if not cached.exists():
        _generate_from_base(cached, methods, presets)
    values = json.loads(cached.read_text(encoding="utf-8"))
    return values


def _generate_from_base(out: Path, methods: tuple[str, ...], presets: tuple[str, ...]) -> None:
    if _git("cat-file", "-e", f"{BASE}^{{commit}}") is None:
        pytest.skip(f"no golden values of this machine, and no git history with commit {BASE[:7]} to compute them from")
    tree = CACHE / f"base-{os.getpid()}"
    written = out.with_suffix(f".{os.getpid()}")
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        if _git("worktree", "add", "--detach", "--force", str(tree), BASE) is None:
            pytest.skip(f"git cannot make a worktree of commit {BASE[:7]} in {CACHE}")
        command = [sys.executable, str(GENERATE), str(written), "--methods", *methods, "--presets", *presets]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.fail(f"the generator fails on commit {BASE[:7]}:\n{done.stderr[-4000:]}")
        written.replace(out)  # at once: another test process may do the same
    finally:
        _git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(tree, ignore_errors=True)
        written.unlink(missing_ok=True)


def _git(*arguments: str) -> str | None:
    """What a git command prints; None if it fails or there is no git."""
    # Inside a git hook these name another index and folder.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def main() -> None:
    """Store values as those of this machine: ``python tests/golden/machine.py VALUES.json``."""
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    path = stored_path()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "values": values}, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
