"""A network that is only looked through."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.nets import frozen


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
