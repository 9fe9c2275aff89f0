"""The network, its outputs for a batch, and reference networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.nets import Encoded, frozen


class Reference(nn.Module):
    """Returns the mean of each image."""

    def forward(self, images: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, images.mean((1, 2, 3)).unsqueeze(1)


def test_another_network_embeds_the_requested_rows_and_views() -> None:
    views = torch.rand(2, 3, 3, 4, 4)
    empty, rows = torch.zeros(2, 3, 1), torch.arange(3)
    encoded = Encoded(views=views, features=empty, embeddings=empty, stream_rows=rows[:1], replay_rows=rows[1:])
    means = views.mean((2, 3, 4)).unsqueeze(2)
    torch.testing.assert_close(encoded.embedded_by(Reference()), means)
    torch.testing.assert_close(encoded.embedded_by(Reference(), "replay"), means[:, 1:])
    torch.testing.assert_close(encoded.embedded_by(Reference(), views=1), means[:1])


def test_every_part_evaluates_inside_and_has_its_mode_back_after_an_error() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval(), nn.Dropout())

    def fail_inside() -> None:
        with frozen(network):
            assert not any(part.training for part in network.modules())
            assert not network(torch.ones(3, 2)).requires_grad
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert [part.training for part in network] == [True, False, True]
    assert network.training
