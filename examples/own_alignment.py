"""An alignment of your own: embeddings of replayed images stay near those from before the mini-batch.

With unit embeddings u of the student and u' of its copy: ``L = mean |u - u'|^2`` over both views of the replay rows.
Run it: ``python examples/own_alignment.py``.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from climb import Climb
from climb.alignment import Alignment, alignment
from climb.alignment.contract import copy_state, frozen_copy
from climb.engine import Parts
from climb.memory import ReservoirMemory
from climb.methods import PartFactory, replay_method, with_replay
from climb.nets import Encoded
from climb.testing import check_method


@alignment("stay-near")
class StayNear(Alignment):
    """Holds embeddings to a copy taken once per stream mini-batch. The copy is frozen: it must not be trained."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.past = frozen_copy(student)

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean squared distance of unit embeddings over both views of the replay rows."""
        past = encoded.embedded_by(self.past, "replay")
        now = encoded.embeddings.index_select(1, encoded.replay_rows)
        return (F.normalize(now, dim=2) - F.normalize(past.float(), dim=2)).square().sum(2).mean()

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the replay rows go through the copy."""
        return 2 * replay_rows

    def before_batch(self, student: nn.Module) -> None:
        """Take a new copy, in place."""
        copy_state(student, into=self.past)


@replay_method("stay-near", ReservoirMemory, StayNear, paper="an example", lr=0.1, alignment_weight=1.0)
def stay_near(w: PartFactory) -> Parts:
    """A uniform sample, replay, embeddings held to those of the last mini-batch."""
    return with_replay(w, w.reservoir(), StayNear(w.network))


if __name__ == "__main__":
    check_method("stay-near")
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    model = Climb("stay-near", capacity=60, replay_batch=8, backbone="micro", device="cpu").partial_fit(images)
    print(f"stay-near: features of shape {model.transform(images).shape}")
