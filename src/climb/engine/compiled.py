"""torch.compile, as this engine uses it: shapes are fixed, and what was compiled once is found again by later runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from climb.cache import cache_dir

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function`` through torch.compile, at its first call; its gradients too.

    What it cannot trace it runs as it is: a third party's part may do anything. Kernels are kept in the cache folder.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "compiled"))
    return torch.compile(function, dynamic=False)
