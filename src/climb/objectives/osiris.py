"""Osiris: three contrastive losses for plasticity, consolidation and discrimination (Zhang et al., 2024)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from climb.errors import ClimbError, InputError
from climb.nets import Encoded
from climb.objectives.contract import Objective
from climb.objectives.simclr import SimCLR


class Osiris(Objective):
    """Three contrastive losses on one encoder f, with the projector g and a second head h.

    Z are the stream rows and U the replay rows, two views each. Similarities are cosines over the temperature::

        L_cur   = NT-Xent of g(f(Z))                      present: plasticity, on g
        L_past  = NT-Xent of h(f(U))                      past: consolidation, on h
        L_cross = 1/2 [C(Z, U) + C(U, Z)] of h(f(.))      present against past, on h
        L       = L_cur + 1/2 (L_cross + L_past)

    C(A, B) is the mean over all views a of A, with a' the other view of the same image, of
    -log(e^(a.a') / (e^(a.a') + sum over all views b of B of e^(a.b))). Other images of A are not negatives in C.
    Before replay starts, L = L_cur.

    Where sources disagree:

    - The original starts h at the second task. A stream has no tasks, so h starts with replay, as a copy of g.
    - h receives all rows and both views in one call, so its batch norms use statistics of present and past together.
      Separate calls would centre Z and U separately and hide the difference that L_cross learns from. The original has
      no batch norm.

    Args:
        head: h, from features (m, f) to embeddings, with the layers of the network's ``projector``. Trained.
        temperature: of all three losses.
    """

    settings = ()
    needs_stream = True
    needs_replay = True

    def __init__(self, head: nn.Module, temperature: float = 0.1) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"Osiris' temperature is {temperature}; allowed: above 0")
        self.head = head
        self.temperature = temperature
        self._contrast = SimCLR(temperature)

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch: all three parts if it has replay rows, else L_cur."""
        if len(encoded.stream_rows) == 0:
            raise InputError("Osiris needs stream rows; this batch has replay rows only")
        current = self._contrast.loss(*encoded.embeddings.index_select(1, encoded.stream_rows))
        if len(encoded.replay_rows) == 0:
            return current
        consolidated = self.head(encoded.features.flatten(0, 1)).unflatten(0, encoded.features.shape[:2])
        present = consolidated.index_select(1, encoded.stream_rows)
        past = consolidated.index_select(1, encoded.replay_rows)
        cross = 0.5 * (self._cross(present, past) + self._cross(past, present))
        return current + 0.5 * (cross + self._contrast.loss(*past))

    def on_first_replay(self, student: nn.Module) -> None:
        """Copy the projector into the second head, in place."""
        try:
            self.head.load_state_dict(student.get_submodule("projector").state_dict())
        except RuntimeError as error:
            raise ClimbError(f"Osiris' head must have the layers of the network's projector: {error}") from error

    def _cross(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """C(anchors (2, a, d), others (2, b, d)): the positive is the anchor's other view, negatives are the others."""
        anchors, others = F.normalize(anchors, dim=2), F.normalize(others, dim=2)
        positive = (anchors[0] * anchors[1]).sum(1).repeat(2)
        negative = anchors.flatten(0, 1) @ others.flatten(0, 1).T
        logits = torch.cat([positive.unsqueeze(1), negative], dim=1) / self.temperature
        return -F.log_softmax(logits, dim=1)[:, 0].mean()
