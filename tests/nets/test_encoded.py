"""What a batch after the network says of other networks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from climb.nets import Beforehand, Encoded


class Reference(nn.Module):
    """Says the mean of each image, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, images: torch.Tensor) -> tuple[None, torch.Tensor]:
        self.asked += 1
        return None, images.mean((1, 2, 3)).unsqueeze(1)


@pytest.fixture
def encoded() -> Encoded:
    views = torch.rand(2, 3, 3, 4, 4)
    empty, rows = torch.zeros(2, 3, 1), torch.arange(3)
    return Encoded(views=views, features=empty, embeddings=empty, stream_rows=rows[:1], replay_rows=rows[1:])


def test_a_network_that_was_asked_beforehand_is_not_asked_again(encoded: Encoded) -> None:
    network = Reference()
    said = encoded.embedded_by(network)
    torch.testing.assert_close(said, encoded.views.mean((2, 3, 4)).unsqueeze(2))
    known = replace(encoded, beforehand=Beforehand(network=network, views=encoded.views, answer=lambda: said))
    assert known.embedded_by(network) is said
    assert network.asked == 1


def test_what_it_was_not_asked_is_not_answered_from_what_it_said(encoded: Encoded) -> None:
    """Of other views, of some rows, of one view; or another network."""
    network, other = Reference(), Reference()
    answer = Beforehand(network=network, views=encoded.views, answer=lambda: torch.full((2, 3, 1), 7.0))
    known = replace(encoded, beforehand=answer)
    said = [
        known.embedded_by(network, "replay"),
        known.embedded_by(network, views=1),
        replace(known, views=known.views.flip(1)).embedded_by(network),
        replace(known, views=known.views.clone()).embedded_by(network),
        known.embedded_by(other),
    ]
    assert network.asked == 4
    assert other.asked == 1
    assert all((each < 1).all() for each in said)
