from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from climb.evaluation.probe_epoch import ProbeEpoch, captured_epoch


def test_every_step_is_that_of_autograd_and_torch_adam(blobs) -> None:
    features, labels = blobs(70)
    features[:, 3] = 0.0  # a dead feature: its gradient and its moments stay zero
    features[:, 4] *= 1e-7  # a faint one: its gradient is no larger than Adam's epsilon
    epoch = ProbeEpoch(features, labels, classes=5, batch_size=16)
    epoch.start(torch.Generator().manual_seed(3))
    linear = nn.Linear(16, 5)
    with torch.no_grad():
        linear.weight.copy_(epoch.weight)
        linear.bias.copy_(epoch.bias)
    adam = torch.optim.Adam(linear.parameters(), lr=0.05)
    # Batches of one epoch each, so that the trajectory can be compared step by step.
    for step in range(40):
        lr = 0.05 if step < 25 else 0.05 / 3
        order = torch.randperm(70, generator=torch.Generator().manual_seed(step))[:16]
        single = ProbeEpoch(features[order], labels[order], classes=5, batch_size=16)
        for name in ("parameters", "first_moment", "second_moment", "steps_taken"):
            getattr(single, name).copy_(getattr(epoch, name))
        single.lr.fill_(lr)
        single.run()
        for name in ("parameters", "first_moment", "second_moment", "steps_taken"):
            getattr(epoch, name).copy_(getattr(single, name))
        adam.param_groups[0]["lr"] = lr
        adam.zero_grad()
        F.cross_entropy(linear(features[order]), labels[order]).backward()
        adam.step()
        torch.testing.assert_close(epoch.weight, linear.weight.detach(), atol=1e-5, rtol=0)
        torch.testing.assert_close(epoch.bias, linear.bias.detach(), atol=1e-5, rtol=0)


def test_epochs_in_a_row_follow_torch_adam(blobs) -> None:
    features, labels = blobs(70)
    epoch = ProbeEpoch(features, labels, classes=5, batch_size=16)
    assert (epoch.steps, len(epoch.order)) == (4, 64)
    epoch.start(torch.Generator().manual_seed(3))
    epoch.lr.fill_(0.05)
    linear = nn.Linear(16, 5)
    with torch.no_grad():
        linear.weight.copy_(epoch.weight)
        linear.bias.copy_(epoch.bias)
    adam = torch.optim.Adam(linear.parameters(), lr=0.05)
    for number in range(10):
        order = torch.randperm(70, generator=torch.Generator().manual_seed(number))[:64]
        epoch.order.copy_(order)
        epoch.run()
        for rows in order.split(16):
            adam.zero_grad()
            F.cross_entropy(linear(features[rows]), labels[rows]).backward()
            adam.step()
        torch.testing.assert_close(epoch.weight, linear.weight.detach(), atol=1e-5, rtol=0)
        torch.testing.assert_close(epoch.bias, linear.bias.detach(), atol=1e-5, rtol=0)
    assert epoch.steps_taken.item() == 40


def test_the_start_is_that_of_a_linear_layer() -> None:
    epoch = ProbeEpoch(torch.zeros(4, 7), torch.zeros(4, dtype=torch.int64), classes=3, batch_size=2)
    epoch.start(torch.Generator().manual_seed(11))
    with torch.random.fork_rng():
        torch.manual_seed(11)
        linear = nn.Linear(7, 3)
    torch.testing.assert_close(epoch.weight, linear.weight.detach(), atol=1e-7, rtol=0)
    torch.testing.assert_close(epoch.bias, linear.bias.detach(), atol=1e-7, rtol=0)


def test_a_second_start_knows_nothing_of_the_first(blobs) -> None:
    features, labels = blobs(64)
    epoch = ProbeEpoch(features, labels, classes=5, batch_size=16)
    epoch.lr.fill_(0.05)
    trained = []
    for _ in range(2):
        epoch.start(torch.Generator().manual_seed(3))
        epoch.run()
        trained.append(epoch.parameters.clone())
    assert torch.equal(*trained)


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    epoch = ProbeEpoch(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), classes=2, batch_size=256)
    assert (epoch.steps, epoch.batch_size) == (1, 5)


def test_addresses_never_change(blobs) -> None:
    features, labels = blobs(64)
    epoch = ProbeEpoch(features, labels, classes=5, batch_size=16)
    before = {name: value.data_ptr() for name, value in vars(epoch).items() if isinstance(value, torch.Tensor)}
    epoch.start(torch.Generator().manual_seed(0))
    epoch.lr.fill_(0.05)
    epoch.run()
    after = {name: value.data_ptr() for name, value in vars(epoch).items() if isinstance(value, torch.Tensor)}
    assert after == before


@pytest.mark.gpu
def test_a_captured_epoch_is_the_eager_one(blobs) -> None:
    features, labels = (part.cuda() for part in blobs(600, classes=9, width=64))

    def train(captured: bool) -> torch.Tensor:
        epoch = ProbeEpoch(features, labels, classes=9, batch_size=256)
        epoch.lr.fill_(0.05)
        run = captured_epoch(epoch.run, features.device) if captured else epoch.run
        epoch.start(torch.Generator("cuda").manual_seed(0))
        for number in range(6):
            epoch.lr.fill_(0.05 if number < 3 else 0.01)
            order = torch.randperm(600, generator=torch.Generator().manual_seed(number))
            epoch.order.copy_(order[: len(epoch.order)])
            run()
        return epoch.parameters.clone()

    torch.testing.assert_close(train(captured=True), train(captured=False), atol=1e-6, rtol=1e-5)
