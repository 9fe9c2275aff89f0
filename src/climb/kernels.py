"""Whether kernels can be built on this machine while a program runs, as torch.compile and Triton do."""

from __future__ import annotations

import os
import shlex
import sysconfig
from pathlib import Path
from shutil import which

from torch.utils._triton import has_triton


def missing_for_kernels() -> str | None:
    """What building kernels for the GPU lacks here, and what to do about it; None where it lacks nothing.

    Triton builds a small C extension of Python at its first kernel. Slim images of containers have the GPU's libraries
    but neither a compiler nor Python's headers, and it would fail there in the middle of a run.
    """
    if not has_triton():
        return "torch finds no Triton that knows this GPU: install triton"
    if os.name == "nt":  # Triton for Windows brings its compiler along
        return None
    named = shlex.split(os.environ.get("CC", ""))[:1]
    if not any(which(compiler) for compiler in (named or ("gcc", "clang"))):
        return "no C compiler is found: install gcc, or name one in the variable CC"
    headers = _headers()
    if not (headers / "Python.h").exists():
        return f"Python's headers are not in {headers}: install python3-dev, or the like"
    return None


def _headers() -> Path:
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme names a folder for what users add, where Python's headers are not.
    return Path(sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"])
