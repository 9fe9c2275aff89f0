from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.errors import InputError
from climb.nets import BACKBONES, Network, bottleneck, build_network
from climb.nets.network import initialised


def built(backbone: str, image_size: int = 32, seed: int = 0) -> Network:
    return build_network(backbone, image_size, generator=torch.Generator().manual_seed(seed))


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("backbone", "feature_dim", "embedding_dim", "bottleneck_dim"),
    [
        ("resnet18", 512, 2048, 512),
        ("resnet34", 512, 2048, 512),
        ("resnet50", 2048, 2048, 512),
        ("vit-tiny", 192, 2048, 512),
        ("efficientnet-lite0", 1280, 2048, 512),
        ("micro", 128, 128, 64),
    ],
)
def test_sizes(backbone: str, feature_dim: int, embedding_dim: int, bottleneck_dim: int) -> None:
    network = built(backbone)
    features, embeddings = network(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, feature_dim) == (2, network.feature_dim)
    assert embeddings.shape == (2, embedding_dim) == (2, network.embedding_dim)
    assert network.bottleneck_dim == bottleneck_dim
    assert torch.equal(network.projector(features), embeddings)


def test_every_name_is_covered() -> None:
    assert set(BACKBONES) == {"efficientnet-lite0", "micro", "resnet18", "resnet34", "resnet50", "vit-tiny"}


def test_auto_is_resolved_before_a_network_is_built() -> None:
    with pytest.raises(InputError, match=r"unknown backbone 'auto'.*Allowed: .*timm/NAME, vit-tiny"):
        built("auto")


@pytest.mark.parametrize("backbone", ["micro", "vit-tiny"])
def test_without_the_final_norm_the_network_is_otherwise_the_same(backbone: str) -> None:
    normed = built(backbone)
    bare = build_network(backbone, 32, generator=torch.Generator().manual_seed(0), final_norm=False)
    assert isinstance(normed.projector[-1], nn.BatchNorm1d)
    assert isinstance(bare.projector[-1], nn.Linear)
    assert bare.embedding_dim == normed.embedding_dim
    assert same(bare.encoder, normed.encoder)
    assert same(bare.projector, normed.projector[:-1])


def test_unknown_name_and_impossible_size() -> None:
    with pytest.raises(InputError, match="unknown backbone 'resnet19'; did you mean 'resnet18'"):
        built("resnet19")
    with pytest.raises(InputError, match="image_size is 4; it must be at least 8"):
        built("micro", image_size=4)


@pytest.mark.parametrize("image_size", [8, 16, 33, 64])
def test_micro_takes_any_small_image(image_size: int) -> None:
    features, _ = built("micro", image_size)(torch.randn(2, 3, image_size, image_size))
    assert features.isfinite().all()


@pytest.mark.parametrize("backbone", ["micro", "resnet18", "vit-tiny"])
def test_weights_depend_on_the_generator_alone(backbone: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = built(backbone)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(first, built(backbone))
    assert not same(first, built(backbone, seed=1))


def test_one_generator_gives_different_parts_one_after_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    assert not same(bottleneck(8, 4, generator=generator), bottleneck(8, 4, generator=generator))


@pytest.mark.parametrize("backbone", ["micro", "resnet18", "vit-tiny"])
def test_every_parameter_gets_a_gradient(backbone: str) -> None:
    network = built(backbone)
    _, embeddings = network(torch.randn(8, 3, 32, 32))
    embeddings.pow(3).sum().backward()
    assert all(weights.grad is not None and weights.grad.isfinite().all() for weights in network.parameters())


def test_a_layer_without_a_rule_is_rejected() -> None:
    with pytest.raises(TypeError, match="no initialisation is defined for LayerNorm"):
        initialised(lambda: nn.LayerNorm(3), torch.Generator())


def test_micro_sees_a_quarter_of_the_resolution() -> None:
    network = built("micro")
    maps = network.encoder.stages(torch.randn(2, 3, 32, 32))
    assert maps.shape == (2, 128, 8, 8)
