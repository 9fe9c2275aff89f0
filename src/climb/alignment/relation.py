"""Distillation of how images relate to each other (SCALE; Yu et al., 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment
from climb.alignment.frozen_copy import copy_state, frozen_copy
from climb.nets import Encoded

FEWEST = 3
"""Images below which there is no relation to keep: two have one, which is always the whole of it."""


class Relation(Alignment):
    """To each image, the others of the batch stay as near as the network found them before the mini-batch.

    Instance-wise relation distillation (Cha et al., 2021), as in SCALE. With u the unit embedding of the first view
    of a row by the student, u' that by the past network, and T = 0.1, T' = 0.01 the temperatures::

        q_ij = exp(u_i . u_j / T) / sum over k != i of exp(u_i . u_k / T),     p_ij alike from u' and T'
        L = c * mean over i of - sum over j != i of p_ij log q_ij

    It is not about positions but about relations, so it needs no head, and it covers all rows, of the stream too.
    c is set once, in the first batch, such that the loss then is ``power`` times the objective: c = power *
    |objective| / relation loss. So an alignment weight of 1 is SCALE's own.

    Where sources disagree:

    - The past network is copied once per stream mini-batch, before the passes over it, as in the original. Its port
      to online streams copies it before every pass, and so compares the network with itself.
    - The past network runs in eval mode, by the running statistics copied with it, and leaves them alone.
    - The original sends past features through the current projector. Here the projector is copied with the rest: the
      same weights in the first pass, and in later ones older by the steps of that mini-batch. An alignment that held
      the student's own would train it twice.
    - Embeddings are brought to unit length first: the temperatures are made for cosines.
    - c follows the size of the objective, not its sign, since objectives like SimSiam's are negative.

    Args:
        student: the network to take copies of.
        power: size of the loss, relative to the objective's, in the first batch.
        past_temperature: of the past network's similarities.
        temperature: of the student's similarities.
    """

    needs_replay: ClassVar[bool] = False

    weight: torch.Tensor
    """Scalar buffer, c: nan until the first batch has set it."""

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
        """The past network stays in eval mode."""
        super().train(mode)
        self.past.eval()
        return self

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """The weighted relation loss of the first views; 0 for one or two images, which have no relation to keep."""
        present = encoded.embeddings[0]
        if present.shape[0] < FEWEST:
            return torch.zeros_like(objective)
        past = encoded.embedded_by(self.past, views=1)[0]
        # The past temperature magnifies rounding a hundred times: no half precision here.
        with torch.autocast(present.device.type, enabled=False):
            wanted = (_similarities(past.to(present.dtype)) / self.past_temperature).softmax(dim=1)
            relation = F.cross_entropy(_similarities(present) / self.temperature, wanted)
        first = self.power * objective.abs() / relation.detach()
        weight = torch.where(self.weight.isnan() & first.isfinite(), first, self.weight)
        self.weight.copy_(weight)
        return weight.nan_to_num() * relation

    def forwards(self, rows: int, replay_rows: int) -> int:
        """The first view of every row, where there are relations."""
        return rows if rows >= FEWEST else 0

    def before_batch(self, student: nn.Module) -> None:
        """Remember the network as it is before the passes over this mini-batch."""
        copy_state(student, into=self.past)


def _similarities(embeddings: torch.Tensor) -> torch.Tensor:
    """Cosines (n, n - 1) of each row of (n, d) with all the others."""
    unit = F.normalize(embeddings, dim=1)
    n = unit.shape[0]
    # Without its first element, every row of n + 1 ends in an element of the diagonal.
    return (unit @ unit.T).flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
