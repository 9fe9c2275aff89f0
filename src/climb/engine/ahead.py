"""For steps of few images: a reference network's forward beside the student's, not before or after it.

With ten images a forward leaves much of a GPU idle. Two of them side by side take less than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from climb.engine.second_stream import SecondStream

STREAM = SecondStream()


def start(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """``function`` of ``inputs``. On a GPU it is begun on a second stream and there only after `arrived`."""
    return STREAM.start(lambda: function(inputs), inputs)


@torch.library.custom_op("climb::arrived", mutates_args=())
def arrived(started: Tensor, after: Tensor) -> Tensor:
    """What was `start`ed, for the current stream to read.

    An operator, so that a compiled function waits here and not where it begins; ``after`` is what it has to do first.
    """
    STREAM.wait(started.device)
    return started.clone()


@arrived.register_fake
def _(started: Tensor, after: Tensor) -> Tensor:
    return torch.empty_like(started)
