"""Osiris: learn the present, keep the past, and tell them apart, on two heads (Zhang et al., 2024)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from climb.errors import ClimbError, InputError
from climb.nets import Encoded
from climb.objectives.contract import Objective
from climb.objectives.simclr import SimCLR


class Osiris(Objective):
    """Three contrastive losses on one encoder f: plasticity on the projector g, the other two on a second head h.

    Let Z be the stream rows and U the replay rows, two views each, all similarities cosines over the temperature::

        L_cur   = NT-Xent of g(f(Z))                      the present, on the head that is free to follow it
        L_past  = NT-Xent of h(f(U))                      the past, on the head that consolidates
        L_cross = 1/2 [C(Z, U) + C(U, Z)] of h(f(.))      the present apart from the past
        L       = L_cur + 1/2 (L_cross + L_past)

    where C(A, B) is the mean over all views a of A, whose other view is a', of
    -log(e^(a.a') / (e^(a.a') + sum over all views b of B of e^(a.b))): other images of A are no negatives there.
    Before replay starts, L = L_cur, on g alone.

    The original knows tasks and starts h at the second one; a stream has none, so h starts when replay does, as a
    copy of g in weights and statistics, and is trained from then on. h sees all rows, both views, in one call, so that
    its batch norms take their statistics over present and past together, as g's do; called on Z and U one by one
    it would centre each on its own and hide the very difference L_cross learns from. (The original has no batch norm.)

    Args:
        head: h, from features (m, f) to embeddings, of the same layers as the network's ``projector``. Trained.
        temperature: of all three losses.
    """

    needs_stream: ClassVar[bool] = True
    needs_replay: ClassVar[bool] = True

    def __init__(self, head: nn.Module, temperature: float = 0.1) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"Osiris' temperature is {temperature}; allowed: above 0")
        self.head = head
        self.temperature = temperature
        self._contrast = SimCLR(temperature)

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch: all three parts where it has replay rows, else the first."""
        if len(encoded.stream_rows) == 0:
            raise InputError("Osiris learns the present from stream rows; this batch has replay rows only")
        current = self._contrast.loss(*encoded.embeddings.index_select(1, encoded.stream_rows))
        if len(encoded.replay_rows) == 0:
            return current
        consolidated = self.head(encoded.features.flatten(0, 1)).unflatten(0, encoded.features.shape[:2])
        present = consolidated.index_select(1, encoded.stream_rows)
        past = consolidated.index_select(1, encoded.replay_rows)
        cross = 0.5 * (self._apart(present, past) + self._apart(past, present))
        return current + 0.5 * (cross + self._contrast.loss(*past))

    def on_first_replay(self, student: nn.Module) -> None:
        """The second head starts as a copy of the projector, in place."""
        try:
            self.head.load_state_dict(student.get_submodule("projector").state_dict())
        except RuntimeError as error:
            raise ClimbError(f"Osiris' head must have the layers of the network's projector: {error}") from error

    def _apart(self, anchors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """C(anchors (2, a, d), others (2, b, d)): each anchor finds its other view among the others' views."""
        anchors, others = F.normalize(anchors, dim=2), F.normalize(others, dim=2)
        positive = (anchors[0] * anchors[1]).sum(1).repeat(2)
        negative = anchors.flatten(0, 1) @ others.flatten(0, 1).T
        logits = torch.cat([positive.unsqueeze(1), negative], dim=1) / self.temperature
        return -F.log_softmax(logits, dim=1)[:, 0].mean()
