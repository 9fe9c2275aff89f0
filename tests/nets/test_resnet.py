from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets import ResNet, load_torchvision, resnet18, resnet34, resnet50
from climb.nets.resnet import BasicBlock, BottleneckBlock

Make = Callable[..., ResNet]


def made(make: Make, image_size: int, seed: int = 0) -> ResNet:
    return make(image_size, generator=torch.Generator().manual_seed(seed))


def torchvision_names(depths: tuple[int, ...], convolutions: int) -> set[str]:
    """Every entry of a torchvision checkpoint, less fc, from the rule of its names."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {"conv1.weight"} | {f"bn1.{part}" for part in norm}
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            here = f"layer{stage}.{block}"
            for index in range(1, convolutions + 1):
                names |= {f"{here}.conv{index}.weight"} | {f"{here}.bn{index}.{part}" for part in norm}
            if block == 0 and (stage > 1 or convolutions == 3):
                names |= {f"{here}.downsample.0.weight"} | {f"{here}.downsample.1.{part}" for part in norm}
    return names


@pytest.mark.parametrize(
    ("make", "depths", "convolutions", "parameters"),
    [
        (resnet18, (2, 2, 2, 2), 2, 11_176_512),
        (resnet34, (3, 4, 6, 3), 2, 21_284_672),
        (resnet50, (3, 4, 6, 3), 3, 23_508_032),
    ],
)
def test_layout_is_torchvisions(make: Make, depths: tuple[int, ...], convolutions: int, parameters: int) -> None:
    encoder = made(make, 224)
    assert encoder.state_dict().keys() == torchvision_names(depths, convolutions)
    assert sum(weights.numel() for weights in encoder.parameters()) == parameters


def test_shapes_of_a_few_weights() -> None:
    basic, bottleneck = made(resnet18, 224).state_dict(), made(resnet50, 224).state_dict()
    assert len(list(made(resnet18, 224).parameters())) == 60  # torchvision's 62 less the weight and bias of fc
    assert basic["conv1.weight"].shape == (64, 3, 7, 7)
    assert basic["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert basic["layer4.1.conv2.weight"].shape == (512, 512, 3, 3)
    assert bottleneck["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert bottleneck["layer3.0.conv2.weight"].shape == (256, 256, 3, 3)
    assert bottleneck["layer4.2.conv3.weight"].shape == (2048, 512, 1, 1)


def test_bottleneck_strides_in_its_3x3_convolution() -> None:
    block = made(resnet50, 224).layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


@pytest.mark.parametrize(("image_size", "small"), [(32, True), (64, True), (65, False), (224, False)])
def test_stem_follows_the_image_size(image_size: int, small: bool) -> None:
    encoder = made(resnet18, image_size)
    assert encoder.conv1.kernel_size == ((3, 3) if small else (7, 7))
    assert encoder.conv1.stride == ((1, 1) if small else (2, 2))
    assert isinstance(encoder.maxpool, nn.Identity if small else nn.MaxPool2d)


@pytest.mark.parametrize(
    ("make", "image_size", "dim"),
    [
        (resnet18, 32, 512),
        (resnet18, 64, 512),
        (resnet18, 224, 512),
        (resnet34, 32, 512),
        (resnet50, 32, 2048),
    ],
)
def test_features(make: Make, image_size: int, dim: int) -> None:
    encoder = made(make, image_size).eval()
    with torch.no_grad():
        features = encoder(torch.randn(1, 3, image_size, image_size))
    assert encoder.feature_dim == dim
    assert features.shape == (1, dim)
    assert features.isfinite().all()


@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_blocks_start_as_their_shortcut(make: Make) -> None:
    encoder = made(make, 32)
    blocks = [part for part in encoder.modules() if isinstance(part, BasicBlock | BottleneckBlock)]
    assert len(blocks) == {resnet18: 8, resnet50: 16}[make]
    last_norms = [block.bn2 if isinstance(block, BasicBlock) else block.bn3 for block in blocks]
    assert all((norm.weight == 0).all() for norm in last_norms)
    plain = encoder.layer3[1]
    x = torch.randn(4, 256 * plain.expansion, 5, 5)
    assert torch.equal(plain(x), x.relu())


def test_convolutions_start_with_the_fan_out_normal() -> None:
    weight = made(resnet18, 32).layer4[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert abs(weight.mean().item()) < 1e-4


def test_checkpoint_with_a_classifier_loads() -> None:
    source, target = made(resnet18, 224, seed=1), made(resnet18, 224, seed=2)
    state = {name: value.clone() for name, value in source.state_dict().items()}
    state |= {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    load_torchvision(target, state)
    assert all(torch.equal(value, source.state_dict()[name]) for name, value in target.state_dict().items())


def test_checkpoint_without_batch_counters_loads() -> None:
    source, target = made(resnet18, 224, seed=1), made(resnet18, 224, seed=2)
    old = {k: v.clone() for k, v in source.state_dict().items() if not k.endswith("num_batches_tracked")}
    load_torchvision(target, old)
    assert torch.equal(target.conv1.weight, source.conv1.weight)


def test_checkpoint_of_the_wrong_stem_is_rejected() -> None:
    with pytest.raises(InputError, match=r"conv1.weight is \(64, 3, 7, 7\), expected .* above 64 pixels"):
        load_torchvision(made(resnet18, 32), made(resnet18, 224).state_dict())


def test_checkpoint_of_another_network_is_rejected_without_changes() -> None:
    target = made(resnet18, 224)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(InputError, match=r"[0-9]+ unexpected \(layer1.2.*and [0-9]+ more"):
        load_torchvision(target, made(resnet34, 224, seed=1).state_dict())
    with pytest.raises(InputError, match=r"missing \(conv1\.weight, bn1\.weight"):
        load_torchvision(target, {})
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


@pytest.mark.parametrize(("block", "norms"), [(BasicBlock, 2), (BottleneckBlock, 3)])
@pytest.mark.parametrize(("inputs", "stride"), [(8, 2), (None, 1)])
def test_a_block_is_its_formula(
    block: type[BasicBlock | BottleneckBlock], norms: int, inputs: int | None, stride: int
) -> None:
    """Convolution, norm and relu in turn, the last relu after the sum with the shortcut."""
    generator = torch.Generator().manual_seed(0)
    inputs = inputs or 4 * block.expansion
    part = block(inputs, 4, stride).double().eval()
    with torch.no_grad():
        for tensor in part.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, dtype=tensor.dtype, generator=generator) - 0.3)
        for norm in (module for module in part.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.running_var.add_(1)  # type: ignore[union-attr]
    x = torch.randn(2, inputs, 6, 6, dtype=torch.float64, generator=generator)
    weights = part.state_dict()

    def normed(y: torch.Tensor, name: str) -> torch.Tensor:
        mean, variance, scale, shift = (
            weights[f"{name}.{own}"].view(-1, 1, 1) for own in ("running_mean", "running_var", "weight", "bias")
        )
        return (y - mean) / (variance + 1e-5).sqrt() * scale + shift

    strided = 1 if block is BasicBlock else 2
    branch = x
    for number in range(1, norms + 1):
        weight = weights[f"conv{number}.weight"]
        step = stride if number == strided else 1
        branch = functional.conv2d(branch, weight, stride=step, padding=weight.shape[-1] // 2)
        branch = normed(branch, f"bn{number}")
        if number < norms:
            branch = branch.clamp(min=0)
    shortcut = x
    if "downsample.0.weight" in weights:
        shortcut = normed(functional.conv2d(x, weights["downsample.0.weight"], stride=stride), "downsample.1")
    torch.testing.assert_close(part(x), (branch + shortcut).clamp(min=0))


def test_the_large_stem_pools_as_imagenets() -> None:
    pool = resnet18(224, generator=torch.Generator().manual_seed(0)).maxpool
    assert isinstance(pool, nn.MaxPool2d)
    assert (pool.kernel_size, pool.stride, pool.padding) == (3, 2, 1)
