"""torch.compile with fixed shapes and a kernel cache that later runs reuse."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from climb.files import cache_dir

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

VERSIONS = 200
"""Compiled versions of one function, by shapes and owner: a process may train many methods in turn."""


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function`` compiled at its first call, with its gradients. Code that cannot be traced, such as that of a
    third-party part, runs eagerly. Kernels are kept in the cache folder."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "compiled"))
    quick = torch.compile(function, dynamic=False)

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # torch counts versions over all objects that share a method, and silently stops compiling at eight.
        with torch._dynamo.config.patch(recompile_limit=VERSIONS):
            return quick(*args, **kwargs)

    return call
