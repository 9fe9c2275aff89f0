"""Several batches at once against one after another."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from climb.engine.groups import ByGroups, can_go_by_groups
from climb.nets import micronet, projector, resnet18, vit_tiny
from climb.nets.network import Network


def network() -> Network:
    draws = torch.Generator().manual_seed(0)
    encoder = micronet(generator=draws)
    head = projector(encoder.feature_dim, 16, 8, generator=draws)
    return Network(encoder, head, feature_dim=encoder.feature_dim, embedding_dim=8, bottleneck_dim=4)


@pytest.mark.parametrize("train", [True, False])
def test_groups_are_as_one_after_another(train: bool) -> None:
    one = network().train(train)
    other = deepcopy(one)
    groups = torch.randn(5, 6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = ByGroups(other)(groups)
        apart = [torch.stack(outputs) for outputs in zip(*(one(group) for group in groups), strict=True)]
    for ours, theirs in zip(together, apart, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)
    moved = not torch.equal(one.state_dict()["projector.1.running_mean"], torch.zeros(16))
    assert moved == train


def test_it_follows_the_network() -> None:
    """Its weights, and whether it evaluates, are looked up anew in each call."""
    one = network()
    by_groups = ByGroups(one)
    group = torch.randn(1, 6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = by_groups(group)[1]
        for parameter in one.parameters():
            parameter.add_(0.1)
        one.eval()
        after = by_groups(group)[1]
        torch.testing.assert_close(after[0], one(group[0])[1])
    assert not torch.allclose(before, after)


def test_a_group_of_many_numbers_is_rounded_once_in_bf16() -> None:
    norm = nn.Sequential(nn.BatchNorm2d(3))
    inputs = torch.randn(2, 4, 3, 5, 5).add(3).to(torch.bfloat16)
    with torch.no_grad():
        together, exact = ByGroups(norm)(inputs), ByGroups(norm)(inputs.float())
    assert together.dtype is torch.bfloat16
    assert torch.equal(together, exact.to(torch.bfloat16))


class Own(nn.Module):
    """Someone's own layer, in which images of a batch meet."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


def test_only_networks_whose_images_meet_in_usual_batch_norms_alone() -> None:
    draws = torch.Generator().manual_seed(0)
    assert can_go_by_groups(network())
    assert can_go_by_groups(resnet18(32, generator=draws))
    assert can_go_by_groups(vit_tiny(32, generator=draws))
    for other in (
        Own(),
        nn.Dropout(0.1),
        nn.SyncBatchNorm(3),
        nn.BatchNorm2d(3, momentum=None),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.InstanceNorm2d(3, track_running_stats=True),
        nn.Softmax(dim=0),
        nn.FractionalMaxPool2d(2, 2),
        nn.MultiheadAttention(4, 2, dropout=0.1),
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 3, 1)),
    ):
        assert not can_go_by_groups(nn.Sequential(nn.Conv2d(3, 3, 1), other)), other
    norm = nn.BatchNorm2d(3)
    assert can_go_by_groups(nn.Sequential(norm, nn.ReLU()))
    assert not can_go_by_groups(nn.Sequential(norm, nn.ReLU(), norm))
