"""The compiled step of the optimiser is the optimiser's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from climb.engine.descent import CompiledDescent

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_it_goes_where_torch_goes(momentum: float) -> None:
    """Also with a parameter that has no gradient at first, as an aligner before replay, and in channels-last; without
    momentum it is torch's own."""
    generator = torch.Generator().manual_seed(0)
    network = nn.ModuleList([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(5, 2)])
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    twin = copy.deepcopy(network)
    settings = {"lr": 0.3, "momentum": momentum, "weight_decay": 0.01}
    theirs, ours = (torch.optim.SGD(each.parameters(), **settings) for each in (network, twin))  # type: ignore[arg-type]
    step = CompiledDescent(ours)
    for number in range(5):
        for one, other in zip(network.parameters(), twin.parameters(), strict=True):
            late = one.shape[0] == 2
            one.grad = None if late and number < 2 else torch.randn(one.shape, generator=generator)
            other.grad = None if one.grad is None else one.grad.clone()
        theirs.step()
        step()
        for one, other in zip(network.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6, msg=f"after step {number}")
            held = [optimizer.state[each].get("momentum_buffer") for optimizer, each in ((theirs, one), (ours, other))]
            if held[0] is None:
                assert held[1] is None
            else:
                torch.testing.assert_close(held[1], held[0], rtol=1e-6, atol=1e-6)
