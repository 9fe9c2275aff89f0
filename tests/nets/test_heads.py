from __future__ import annotations

import torch
from torch import nn

from climb.nets import bottleneck, projector


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_projector_of_the_paper() -> None:
    head = projector(512, generator=generator())
    assert [type(layer) for layer in head] == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2 + [
        nn.Linear,
        nn.BatchNorm1d,
    ]
    assert [layer.weight.shape for layer in head if isinstance(layer, nn.Linear)] == [
        (512, 512),
        (512, 512),
        (2048, 512),
    ]
    assert all(layer.bias is None for layer in head if isinstance(layer, nn.Linear))
    assert not head[-1].affine


def test_embeddings_of_a_batch_are_standardised() -> None:
    head = projector(16, hidden=32, out=8, generator=generator())
    embeddings = head(torch.randn(200, 16, generator=generator()))
    torch.testing.assert_close(embeddings.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(embeddings.std(0, correction=0), torch.ones(8), atol=1e-3, rtol=0)


def test_without_the_final_norm_embeddings_are_the_last_layers() -> None:
    normed = projector(16, hidden=32, out=8, generator=generator())
    bare = projector(16, hidden=32, out=8, generator=generator(), final_norm=False)
    assert [type(layer) for layer in bare] == [type(layer) for layer in normed][:-1]
    assert bare[-1].bias is None
    features = torch.randn(50, 16, generator=generator())
    embeddings = bare(features)
    assert embeddings.std(0).max() < 0.9
    standard = (embeddings - embeddings.mean(0)) / (embeddings.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(normed(features), standard, atol=1e-5, rtol=1e-4)


def test_bottleneck_of_the_paper() -> None:
    head = bottleneck(generator=generator())
    assert [type(layer) for layer in head] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert (head[0].weight.shape, head[0].bias) == ((512, 2048), None)
    assert (head[3].weight.shape, head[3].bias.shape) == ((2048, 512), (2048,))


def test_linear_layers_start_uniform_within_the_fan_in_bound() -> None:
    head = bottleneck(generator=generator())
    for weights, fan_in in ((head[0].weight, 2048), (head[3].weight, 512), (head[3].bias, 512)):
        assert weights.abs().max() <= fan_in**-0.5
        assert weights.abs().max() > 0.95 * fan_in**-0.5
