"""torch.compile, as this engine uses it: shapes are fixed, and what was compiled once is found again by later runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch

from climb.cache import cache_dir

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

VERSIONS = 200
"""Of one function, by shapes and by what it belongs to: a process may train many methods one after another."""


def compiled(
    function: Callable[Arguments, Result], options: Mapping[str, Any] | None = None
) -> Callable[Arguments, Result]:
    """``function`` through torch.compile, at its first call; its gradients too.

    What it cannot trace it runs as it is: a third party's part may do anything. Kernels are kept in the cache folder.
    ``options`` are the compiler's own, and hold while the function is one graph: in pieces, it is compiled without.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "compiled"))
    in_pieces = torch.compile(function, dynamic=False)
    whole = None if options is None else torch.compile(function, dynamic=False, fullgraph=True, options=dict(options))

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal whole
        # torch counts versions over all objects that share a method, and gives up on it, silently, at eight.
        with torch._dynamo.config.patch(recompile_limit=VERSIONS):
            if whole is not None:
                try:
                    return whole(*args, **kwargs)
                except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
                    # It is no one graph, or has more than enough versions: found before anything is computed.
                    log.warning("a step is compiled in pieces, and slower: %s", str(error).strip().partition("\n")[0])
                    whole = None
            return in_pieces(*args, **kwargs)

    return call
