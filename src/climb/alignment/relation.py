"""Distillation of the similarities between images (SCALE; Yu et al., 2023)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment, alignment, copy_state, frozen_copy
from climb.nets import Encoded

FEWEST = 3
"""Fewest images with a loss. With two, each has one other image, and the softmax is always 1."""


@alignment("relation")
class Relation(Alignment):
    """Keeps the similarities within a batch as the network had them before the mini-batch.

    Instance-wise relation distillation (Cha et al., 2021), as in SCALE. u is the student's unit embedding of the first
    view of a row, u' that of the past network, and T = 0.1, T' = 0.01 are the temperatures::

        q_ij = exp(u_i . u_j / T) / sum over k != i of exp(u_i . u_k / T),     p_ij likewise from u' and T'
        L = c * mean over i of - sum over j != i of p_ij log q_ij

    The loss compares similarities, not embeddings, so it needs no head. It covers stream rows and replay rows.
    c is set in the first batch, so that the loss is ``power`` times the objective there: c = power * |objective| /
    relation loss. An alignment weight of 1 is therefore SCALE's.

    Where sources disagree:

    - The past network is copied once per stream mini-batch, before the passes over it, as in the original. The port
      to online streams copies it before every pass, and so compares the network with itself.
    - The past network runs in eval mode, with the running statistics that were copied with it.
    - The original projects past features with the current projector. Here the projector is copied as well: equal
      weights in the first pass, older ones in later passes. An alignment that held the student's projector would train
      it twice.
    - Embeddings are normalised first, because the temperatures are meant for cosines.
    - c uses the absolute value of the objective, because objectives such as SimSiam's are negative.

    Args:
        student: the network to copy.
        power: size of the loss relative to the objective in the first batch.
        past_temperature: of the past network's similarities.
        temperature: of the student's similarities.
    """

    settings = ()
    needs_replay = False

    weight: torch.Tensor
    """Scalar buffer c; NaN before the first batch."""

    def __init__(
        self, student: nn.Module, power: float = 0.15, past_temperature: float = 0.01, temperature: float = 0.1
    ) -> None:
        super().__init__()
        self.past = frozen_copy(student).eval()
        self.power = power
        self.past_temperature = past_temperature
        self.temperature = temperature
        self.register_buffer("weight", torch.tensor(float("nan")))

    def train(self, mode: bool = True) -> Relation:
        """Set the mode of this module; the past network stays in eval mode."""
        super().train(mode)
        self.past.eval()
        return self

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """The weighted relation loss of the first views; 0 with fewer than three images."""
        present = encoded.embeddings[0]
        if present.shape[0] < FEWEST:
            return torch.zeros_like(objective)
        past = encoded.embedded_by(self.past, views=1)[0]
        # The past temperature magnifies rounding errors a hundred times, so no half precision.
        with torch.autocast(present.device.type, enabled=False):
            target = (_similarities(past.to(present.dtype)) / self.past_temperature).softmax(dim=1)
            relation = F.cross_entropy(_similarities(present) / self.temperature, target)
        first = self.power * objective.abs() / relation.detach()
        weight = torch.where(self.weight.isnan() & first.isfinite(), first, self.weight)
        self.weight.copy_(weight)
        return weight.nan_to_num() * relation

    def forwards(self, rows: int, replay_rows: int) -> int:
        """The first view of every row, with at least three rows."""
        return rows if rows >= FEWEST else 0

    def before_batch(self, student: nn.Module) -> None:
        """Copy the network before the passes over this mini-batch."""
        copy_state(student, into=self.past)


def _similarities(embeddings: torch.Tensor) -> torch.Tensor:
    """Cosines (n, n - 1) of each row of (n, d) with all other rows."""
    unit = F.normalize(embeddings, dim=1)
    n = unit.shape[0]
    # Without the first element, the diagonal is the last column of a view with n + 1 columns.
    return (unit @ unit.T).flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
