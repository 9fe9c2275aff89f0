from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from climb.errors import InputError
from climb.nets import start_weights
from climb.nets.vit import WIDTH, Attention, Block, VisionTransformer, vit_tiny


def made(image_size: int = 32, seed: int = 0) -> VisionTransformer:
    return vit_tiny(image_size, generator=torch.Generator().manual_seed(seed))


def images(n: int, side: int = 32) -> torch.Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize(
    ("image_size", "patch", "tokens"), [(8, 4, 4), (32, 4, 64), (64, 8, 64), (96, 16, 36), (224, 16, 196)]
)
def test_patches_follow_the_image_size(image_size: int, patch: int, tokens: int) -> None:
    encoder = made(image_size).eval()
    assert encoder.patch_embed.proj.kernel_size == encoder.patch_embed.proj.stride == (patch, patch)
    assert encoder.pos_embed.shape == (1, tokens, 192)
    with torch.no_grad():
        features = encoder(images(1, image_size))
    assert features.shape == (1, 192) == (1, encoder.feature_dim)
    assert features.isfinite().all()


def test_layout_is_vit_tinys() -> None:
    encoder = made(224)
    assert len(encoder.blocks) == 12
    assert {block.attn.heads for block in encoder.blocks} == {3}
    # 5,524,416 of the usual ViT-tiny/16 without classifier, less its class token and that token's position.
    assert sum(weights.numel() for weights in encoder.parameters()) == 5_524_416 - 2 * 192
    block = {f"norm{i}.{part}" for i in (1, 2) for part in ("weight", "bias")} | {
        f"{layer}.{part}" for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2") for part in ("weight", "bias")
    }
    assert encoder.state_dict().keys() == {
        "pos_embed",
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
        "norm.weight",
        "norm.bias",
        *(f"blocks.{index}.{name}" for index in range(12) for name in block),
    }


def test_attention_is_the_formula() -> None:
    torch.manual_seed(0)
    part = Attention(12, 3).double()
    tokens = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = part.qkv(tokens).split(12, dim=-1)
    heads = []
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        scores = q[..., rows] @ k[..., rows].transpose(1, 2) / math.sqrt(4)
        heads.append(scores.softmax(-1) @ v[..., rows])
    torch.testing.assert_close(part(tokens), part.proj(torch.cat(heads, dim=-1)))


def test_a_block_is_torchs_encoder_layer() -> None:
    """Norms before each part, and exact GELU, which timm's oracle is not always there to say."""
    generator = torch.Generator().manual_seed(0)
    part = Block(12, 3).double()
    oracle = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    ).double()
    for weights in part.parameters():
        nn.init.normal_(weights, generator=generator)
    theirs = {
        "self_attn.in_proj_": part.attn.qkv,
        "self_attn.out_proj.": part.attn.proj,
        "linear1.": part.mlp.fc1,
        "linear2.": part.mlp.fc2,
        "norm1.": part.norm1,
        "norm2.": part.norm2,
    }
    oracle.load_state_dict(
        {f"{name}{own}": value for name, ours in theirs.items() for own, value in ours.state_dict().items()}
    )
    tokens = 1e-3 * torch.randn(2, 5, 12, dtype=torch.float64, generator=generator)  # so small that epsilon counts
    torch.testing.assert_close(part(tokens), oracle(tokens))


def test_gradient_by_finite_differences() -> None:
    torch.manual_seed(0)
    encoder = VisionTransformer(4, 2, width=6, depth=2, heads=3).double()
    nn.init.normal_(encoder.pos_embed)
    pixels = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder, (pixels,))


def test_features_are_the_mean_over_normed_tokens() -> None:
    encoder = made().eval()
    seen: list[torch.Tensor] = []
    encoder.norm.register_forward_hook(lambda _, __, tokens: seen.append(tokens))
    features = encoder(images(2))
    assert seen[0].shape == (2, 64, 192)
    torch.testing.assert_close(features, seen[0].mean(1))


def test_only_positions_tell_patches_apart() -> None:
    encoder = made().double().eval()
    x = images(2).double()
    swapped = torch.cat([x[..., 4:8], x[..., :4], x[..., 8:]], dim=-1)  # the first two columns of patches
    assert not torch.allclose(encoder(x), encoder(swapped))
    nn.init.zeros_(encoder.pos_embed)
    torch.testing.assert_close(encoder(x), encoder(swapped))


def test_images_of_a_batch_do_not_mix() -> None:
    encoder = made().double().train()
    x = images(3).double()
    torch.testing.assert_close(encoder(x)[1:2], encoder(x[1:2]))


def test_initial_weights() -> None:
    encoder = made(224)
    for weights in (encoder.pos_embed, encoder.blocks[3].attn.qkv.weight, encoder.blocks[11].mlp.fc2.weight):
        assert weights.abs().max() <= 0.04
        # A standard normal cut at two deviations has a deviation of 0.8796.
        assert weights.std().item() == pytest.approx(0.02 * 0.8796, rel=0.02)
    bound = math.sqrt(6 / (3 * 16 * 16 + 192))
    assert 0.99 * bound < encoder.patch_embed.proj.weight.abs().max() <= bound
    assert all((bias == 0).all() for name, bias in encoder.named_parameters() if name.endswith("bias"))


def test_no_weight_is_left_uninitialised() -> None:
    was = torch.are_deterministic_algorithms_enabled()
    # Torch then fills fresh memory with NaN.
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        encoder = made()
    finally:
        torch.use_deterministic_algorithms(was)
    assert all(value.isfinite().all() for value in encoder.state_dict().values())


def test_a_step_needs_no_value_on_the_host() -> None:
    """On tensors without values whatever reads one fails: so a CUDA graph can hold the pass and its gradient."""
    encoder = copy.deepcopy(made()).to("meta").train()
    encoder(torch.empty(4, 3, 32, 32, device="meta")).sum().backward()
    assert all(weights.grad is not None for weights in encoder.parameters())


def test_impossible_sizes() -> None:
    with pytest.raises(InputError, match=r"image_size is 100; .* a multiple of 16: 96 or 112"):
        made(100)
    with pytest.raises(InputError, match=r"images are 64 x 64 pixels; .* built for 32 x 32"):
        made(32)(images(1, 64))


def test_learns_to_tell_two_textures_apart() -> None:
    encoder = made(16)
    head = nn.Linear(192, 2)
    optimiser = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
    stripes = torch.zeros(1, 3, 16, 16)
    stripes[..., ::2] = 1.0
    x = torch.cat([stripes.expand(8, -1, -1, -1), stripes.transpose(2, 3).expand(8, -1, -1, -1)])
    x = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    y = torch.arange(2).repeat_interleave(8)
    losses = []
    for _ in range(25):
        loss = nn.functional.cross_entropy(head(encoder(x)), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_timms_file_loses_its_class_token_and_fits_other_sizes(tmp_path: Path) -> None:
    source = vit_tiny(224, generator=torch.Generator().manual_seed(1))
    rows = torch.linspace(-1, 1, 14).repeat_interleave(14)  # the position of a patch: its row
    source.pos_embed.data = rows[None, :, None].expand(1, 196, WIDTH).clone()
    token = torch.full((1, 1, WIDTH), 9.0)
    positions = torch.cat([token, source.pos_embed.data], dim=1)
    state = {**source.state_dict(), "cls_token": token, "pos_embed": positions, "head.bias": torch.ones(1000)}
    torch.save(state, tmp_path / "vit.pth")
    same = start_weights("vit-tiny", str(tmp_path / "vit.pth"), 224)
    assert torch.equal(same.state["pos_embed"], source.pos_embed)
    assert same.mean == (0.5, 0.5, 0.5)
    smaller = start_weights("vit-tiny", str(tmp_path / "vit.pth"), 112).state["pos_embed"]
    assert smaller.shape == (1, 49, WIDTH)
    found = smaller[0, :, 0].view(7, 7)
    assert torch.allclose(found, found[:, :1].expand(7, 7), atol=1e-5)  # still one value a row, increasing
    assert (found[:, 0].diff() > 0.2).all()
    with pytest.raises(InputError, match=r"patch_embed.proj.weight is \(192, 3, 16, 16\), expected \(192, 3, 8, 8\)"):
        start_weights("vit-tiny", str(tmp_path / "vit.pth"), 64)
