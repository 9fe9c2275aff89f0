"""The contract of an alignment: a loss that keeps the network close to a reference. Helpers for copies of it."""

from __future__ import annotations

import copy
from itertools import chain
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from climb.nets import Encoded
from climb.registry import Registry


class Alignment(nn.Module):
    """Base class of alignments. Its parameters with ``requires_grad`` are trained."""

    settings: ClassVar[tuple[str, ...] | None] = None
    """Settings of the learner that it depends on, such as ``ema_decay``; None: it does not say."""
    replaces: ClassVar[tuple[type[Alignment], str] | None] = None
    """The alignment whose place it takes in every method, and the setting of the learner that switches it on."""
    needs_replay: ClassVar[bool] = True
    """Whether it uses replay rows only. Batches without replay rows then skip it."""
    needs_boundaries: ClassVar[bool] = False
    """Whether it needs task boundaries. Tables mark methods that do."""

    @property
    def teacher(self) -> nn.Module | None:
        """A reference network that can be evaluated instead of the student; None without one. It changes in place."""
        return None

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """The scalar loss. ``objective`` is the objective's loss of the same batch, without gradient."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded, objective)")

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Views that `forward` encodes with a reference network, given so many rows. The budget counts them."""
        return 0

    def before_batch(self, student: nn.Module) -> None:
        """Called when a stream mini-batch arrives, before the passes over it."""

    def after_step(self, student: nn.Module) -> None:
        """Called after each gradient step of the student, which must not be changed."""

    def after_batch(self, student: nn.Module) -> None:
        """Called after all passes over a stream mini-batch."""

    def on_boundary(self, student: nn.Module) -> None:
        """Called when a task ends, if ``needs_boundaries``."""


ALIGNMENTS = Registry[type[Alignment]](
    "alignment",
    builtin=["climb.alignment"],
    accepts=lambda part: isinstance(part, type) and issubclass(part, Alignment),
    expects="a class derived from climb.alignment.Alignment",
)
"""The alignments by name."""

alignment = ALIGNMENTS.register
"""Decorator ``@alignment("name")`` that registers a class."""


def alignment_loss(aligner: nn.Module, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean of -cos(aligner(z), target) over all pairs of ``embeddings`` and ``targets``, (views, n, d) each.

    >>> alignment_loss(nn.Identity(), torch.ones(2, 3, 4), torch.ones(2, 3, 4)).item()
    -1.0
    """
    predicted = aligner(embeddings.flatten(0, 1)).to(embeddings.dtype)
    return -F.cosine_similarity(predicted, targets.flatten(0, 1).to(embeddings.dtype), dim=1).mean()


Copied = TypeVar("Copied", bound=nn.Module)


def frozen_copy(student: Copied) -> Copied:
    """A copy of the student without gradients.

    >>> student = nn.Linear(2, 2)
    >>> past = frozen_copy(student)
    >>> torch.equal(past.weight, student.weight), past.weight is student.weight, past.weight.requires_grad
    (True, False, False)
    """
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def copy_state(student: nn.Module, into: nn.Module) -> None:
    """Copy parameters and buffers of the student into an older copy, in place."""
    # In place because a captured step holds the addresses.
    older, newer = chain(into.parameters(), into.buffers()), chain(student.parameters(), student.buffers())
    for old, new in zip(older, newer, strict=True):
        old.copy_(new)
