from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets import build_network
from climb.nets.efficientnet_lite import EfficientNetLite, InvertedResidual, SameConv2d, efficientnet_lite0


def made(image_size: int = 32, seed: int = 0) -> EfficientNetLite:
    return efficientnet_lite0(image_size, generator=torch.Generator().manual_seed(seed))


def images(n: int, side: int) -> torch.Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("image_size", [32, 33, 47, 64, 97, 128])
def test_features_of_any_size(image_size: int) -> None:
    encoder = made(image_size).eval()
    sides: list[int] = []
    for stage in encoder.blocks:
        stage.register_forward_hook(lambda _, __, out: sides.append(out.shape[-1]))
    with torch.no_grad():
        features = encoder(images(2, image_size))
    assert features.shape == (2, 1280) == (2, encoder.feature_dim)
    assert features.isfinite().all()
    assert sides == [math.ceil(image_size / stride) for stride in (2, 4, 8, 16, 16, 32, 32)]


def test_layout_is_timms() -> None:
    encoder = made()
    # 4,652,008 with the classifier of 1,000 classes.
    assert sum(weights.numel() for weights in encoder.parameters()) == 4_652_008 - 1000 * 1281
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    separable, inverted = ("conv_dw", "conv_pw"), ("conv_pw", "conv_dw", "conv_pwl")
    names = ["conv_stem.weight", "conv_head.weight", *(f"{bn}.{part}" for bn in ("bn1", "bn2") for part in norm)]
    for stage, depth in enumerate((1, 2, 2, 3, 3, 4, 1)):
        for block in (f"blocks.{stage}.{index}" for index in range(depth)):
            layers = separable if stage == 0 else inverted
            names += [f"{block}.{layer}.weight" for layer in layers]
            names += [f"{block}.bn{number}.{part}" for number in range(1, len(layers) + 1) for part in norm]
    state = encoder.state_dict()
    assert state.keys() == set(names)
    shapes = {
        "conv_stem": (32, 3, 3, 3),
        "blocks.0.0.conv_dw": (32, 1, 3, 3),
        "blocks.0.0.conv_pw": (16, 32, 1, 1),
        "blocks.2.0.conv_pw": (144, 24, 1, 1),
        "blocks.2.0.conv_dw": (144, 1, 5, 5),
        "blocks.2.0.conv_pwl": (40, 144, 1, 1),
        "blocks.5.3.conv_dw": (1152, 1, 5, 5),
        "blocks.6.0.conv_pwl": (320, 1152, 1, 1),
        "conv_head": (1280, 320, 1, 1),
    }
    assert {name: tuple(state[f"{name}.weight"].shape) for name in shapes} == shapes
    assert {part.eps for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)} == {1e-3}


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (5, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("side", [1, 2, 5, 6, 7])
def test_padding_is_tensorflows(kernel: int, stride: int, side: int) -> None:
    layer = SameConv2d(4, 4, kernel, stride, groups=4).double()
    x = torch.randn(2, 4, side, side + 1, dtype=torch.float64)
    # Outputs are centred on a padded input in which the window of the last output ends at the last padding.
    height, width = math.ceil(side / stride), math.ceil((side + 1) / stride)
    expected = torch.zeros(2, 4, height, width, dtype=torch.float64)
    before = [max((out - 1) * stride + kernel - size, 0) // 2 for out, size in ((height, side), (width, side + 1))]
    for row in range(height):
        for column in range(width):
            for down in range(kernel):
                for right in range(kernel):
                    y, z = row * stride + down - before[0], column * stride + right - before[1]
                    if 0 <= y < side and 0 <= z < side + 1:
                        expected[:, :, row, column] += x[:, :, y, z] * layer.weight[:, 0, down, right]
    torch.testing.assert_close(layer(x), expected)


def test_a_block_is_the_formula() -> None:
    block = InvertedResidual(4, 4, 3, 1).double().eval()
    for weights in block.parameters():
        nn.init.normal_(weights, generator=torch.Generator().manual_seed(0))
    x = 5 * torch.randn(2, 4, 6, 6, dtype=torch.float64)
    scale = 1 / math.sqrt(1 + 1e-3)  # running statistics at their start
    norms = (block.bn1, block.bn2, block.bn3)
    scaled = [lambda y, n=n: y * scale * n.weight[:, None, None] + n.bias[:, None, None] for n in norms]
    inner = scaled[0](functional.conv2d(x, block.conv_pw.weight)).clamp(0, 6)
    inner = scaled[1](functional.conv2d(inner, block.conv_dw.weight, padding=1, groups=24)).clamp(0, 6)
    torch.testing.assert_close(block(x), x + scaled[2](functional.conv2d(inner, block.conv_pwl.weight)))


@pytest.mark.parametrize(("outputs", "stride"), [(2, 1), (3, 1), (2, 2)])
def test_gradient_by_finite_differences(outputs: int, stride: int) -> None:
    torch.manual_seed(0)
    block = InvertedResidual(2, outputs, 3, stride).double()
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(block, (x,))


def test_a_step_needs_no_value_on_the_host() -> None:
    encoder = copy.deepcopy(made()).to("meta").train()
    encoder(torch.empty(4, 3, 32, 32, device="meta")).sum().backward()
    assert all(weights.grad is not None for weights in encoder.parameters())


def test_initial_weights() -> None:
    encoder = made()
    depthwise, pointwise = encoder.blocks[5][1].conv_dw.weight, encoder.blocks[5][1].conv_pw.weight
    assert depthwise.std().item() == pytest.approx((2 / 25) ** 0.5, rel=0.02)
    assert pointwise.std().item() == pytest.approx((2 / 1152) ** 0.5, rel=0.02)
    assert torch.equal(made().conv_head.weight, encoder.conv_head.weight)
    assert not torch.equal(made(seed=1).conv_head.weight, encoder.conv_head.weight)


def test_a_signal_survives_the_first_forward() -> None:
    features = made(64)(images(8, 64))
    assert 0.01 < features.std(0).mean() < 10


def test_small_images_are_rejected() -> None:
    with pytest.raises(InputError, match=r"image_size is 31; efficientnet-lite0 needs at least 32 pixels"):
        build_network("efficientnet-lite0", 31, generator=torch.Generator().manual_seed(0))
