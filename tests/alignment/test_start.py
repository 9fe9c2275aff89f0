"""Distillation from the start's features."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment import StartTeacher
from climb.nets import Encoded, Network, build_network


def encoded(network: Network, stream: int = 3, replay: int = 5) -> Encoded:
    n = stream + replay
    views = torch.randn(2, n, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    features, embeddings = network(views.flatten(0, 1))
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    return Encoded(
        views=views,
        features=features.view(2, n, -1),
        embeddings=embeddings.view(2, n, -1),
        stream_rows=rows[:stream],
        replay_rows=rows[stream:],
    )


def student() -> Network:
    return build_network("micro", 32, generator=torch.Generator().manual_seed(0), fixed_statistics=True).train()


def test_the_loss_is_the_mean_cosine_to_the_starts_features() -> None:
    network = student()
    start = copy.deepcopy(network.encoder).eval()
    teacher = StartTeacher(network, nn.Identity()).train()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = encoded(network)
    expected = []
    for view in range(2):
        for row in batch.replay_rows:
            target = start(batch.views[view, row].unsqueeze(0))[0]
            expected.append(-F.cosine_similarity(batch.features[view, row], target, dim=0))
    torch.testing.assert_close(teacher(batch, torch.zeros(())), torch.stack(expected).mean())


def test_the_start_never_changes() -> None:
    network = student()
    teacher = StartTeacher(network, nn.Identity()).train()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    teacher(encoded(network), torch.zeros(()))
    teacher.after_step(network)
    teacher.after_batch(network)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not any(parameter.requires_grad for parameter in teacher.start.parameters())


def test_all_rows_for_methods_without_a_memory() -> None:
    network = student()
    batch = encoded(network, stream=4, replay=0)
    loss = StartTeacher(network, nn.Identity(), needs_replay=False)(batch, torch.zeros(()))
    torch.testing.assert_close(loss, torch.tensor(-1.0))
    assert StartTeacher(network, nn.Identity(), needs_replay=False).forwards(4, 0) == 8
    assert StartTeacher(network, nn.Identity()).forwards(8, 5) == 10
