"""The average of start and student."""

from __future__ import annotations

import pytest
import torch

from climb.nets import Network, StartAverage, build_network


@pytest.fixture
def student() -> Network:
    return build_network("micro", 32, generator=torch.Generator().manual_seed(0))


def moved(student: Network) -> None:
    """Change all weights and statistics, as training does."""
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter))
    student(torch.randn(8, 3, 32, 32))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_weights_and_statistics_are_averaged(student: Network, share: float) -> None:
    start = {name: value.clone() for name, value in student.encoder.state_dict().items()}
    average = StartAverage(student, share)
    moved(student)
    average.update(student)
    now, mean = student.encoder.state_dict(), average.network.encoder.state_dict()
    for name, value in mean.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, start[name] + share * (now[name] - start[name]))
    assert any("running_mean" in name and not torch.equal(mean[name], start[name]) for name in mean) == (share > 0)


def test_the_projector_is_the_students(student: Network) -> None:
    average = StartAverage(student, 0.5)
    moved(student)
    average.update(student)
    for ours, theirs in zip(average.network.projector.parameters(), student.projector.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_updates_do_not_accumulate(student: Network) -> None:
    average = StartAverage(student, 0.5)
    moved(student)
    average.update(student)
    once = {name: value.clone() for name, value in average.network.state_dict().items()}
    average.update(student)
    assert all(torch.equal(value, once[name]) for name, value in average.network.state_dict().items())


def test_fixed_statistics_survive_train_mode_and_training() -> None:
    network = build_network("micro", 32, generator=torch.Generator().manual_seed(0), fixed_statistics=True).train()
    before = {name: value.clone() for name, value in network.encoder.named_buffers()}
    network(torch.randn(8, 3, 32, 32))
    assert all(torch.equal(value, before[name]) for name, value in network.encoder.named_buffers())
    norms = [module for module in network.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    assert {module.training for module in norms} == {True, False}  # the projector's keep their own mode
