"""A small vision transformer."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets.build import backbone
from climb.nets.network import Pretrained, initialised

WIDTH, DEPTH, HEADS = 192, 12, 3
"""ViT-tiny of Touvron et al. (2021)."""


class Attention(nn.Module):
    """Self-attention: ``softmax(q k^T / sqrt(d)) v`` in each head of width d."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        n, length, width = tokens.shape
        # (n, t, 3 w) -> three times (n, heads, t, w / heads)
        q, k, v = self.qkv(tokens).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(n, length, width))
        return out


class Block(nn.Module):
    """Attention and an MLP of two layers, each after a layer norm and with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        layers = OrderedDict(fc1=nn.Linear(width, 4 * width), act=nn.GELU(), fc2=nn.Linear(4 * width, width))
        self.mlp = nn.Sequential(layers)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out


class VisionTransformer(nn.Module):
    """Maps normalised images ``(n, 3, S, S)`` to features ``(n, feature_dim)`` (Dosovitskiy et al. 2021).

    The features are the mean of the patch tokens after the last layer norm. There is no class token: with a mean,
    every patch has a gradient from the first step on, and Chen et al. (2021) find that self-supervised transformers
    learn as well without one. Positions are learned. A forward pass is deterministic: no dropout, no stochastic depth.

    Parameters have the names and shapes of timm's ``VisionTransformer``.
    """

    def __init__(self, image_size: int, patch: int, *, width: int = WIDTH, depth: int = DEPTH, heads: int = HEADS):
        super().__init__()
        self.image_size, self.patch = image_size, patch
        self.patch_embed = nn.Sequential(OrderedDict(proj=nn.Conv2d(3, width, patch, patch), flatten=nn.Flatten(2)))
        self.pos_embed = nn.Parameter(torch.zeros(1, (image_size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.feature_dim = width
        """Length of a feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.image_size, self.image_size):
            height, width = images.shape[-2:]
            built = f"this transformer was built for {self.image_size} x {self.image_size}"
            raise InputError(f"images are {height} x {width} pixels; {built}. Build it with image_size={height}")
        tokens = self.patch_embed(images).transpose(1, 2)  # (n, patches, width), row by row
        tokens = self.blocks(tokens + self.pos_embed)
        return torch.mean(self.norm(tokens), dim=1)


def patch_size(image_size: int) -> int:
    """Side of a patch in pixels: 4 for images up to 32 pixels, 8 up to 64, else 16.

    Images of 32 and 64 pixels have 8 x 8 patches, images of 224 pixels 14 x 14.

    >>> [patch_size(side) for side in (32, 64, 224)]
    [4, 8, 16]
    """
    return 4 if image_size <= 32 else 8 if image_size <= 64 else 16


def check_patches(image_size: int) -> None:
    """Reject an image size that is not a multiple of the patch size."""
    patch = patch_size(image_size)
    if image_size % patch:
        below = image_size - image_size % patch
        allowed = f"a multiple of {patch}: {below} or {below + patch}"
        raise InputError(f"image_size is {image_size}; vit-tiny has patches of {patch} pixels, so type {allowed}")


def fit_positions(state: Mapping[str, Tensor], encoder: nn.Module) -> Mapping[str, Tensor]:
    """Tensors of timm's transformer for ours: without the class token, with positions for our number of patches."""
    state = {name: value for name, value in state.items() if name != "cls_token"}
    positions, side = state.get("pos_embed"), math.isqrt(encoder.state_dict()["pos_embed"].shape[1])
    if positions is None or positions.ndim != 3:
        return state
    own = math.isqrt(positions.shape[1])
    patches = positions[:, positions.shape[1] - own**2 :]  # without that of the class token
    if own != side:
        grid = patches.transpose(1, 2).reshape(1, -1, own, own)
        grid = functional.interpolate(grid, (side, side), mode="bicubic", antialias=True)
        patches = grid.flatten(2).transpose(1, 2)
    return {**state, "pos_embed": patches}


def pretrained() -> Pretrained:
    """What timm publishes of its transformers: files, trained on pixels in -1..1."""
    return Pretrained(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@backbone("vit-tiny", check=check_patches, pretrained=pretrained, adapt=fit_positions)
def vit_tiny(image_size: int, *, generator: torch.Generator) -> VisionTransformer:
    """ViT-tiny for square images of ``image_size`` pixels, 192 features, weights from ``generator`` (a CPU one).

    Linear weights and positions start from a normal of standard deviation 0.02 truncated at two deviations (Touvron
    et al. 2021), and biases at zero. The patch embedding starts from Xavier's uniform over the pixels of a patch (He et
    al. 2022).

    >>> encoder = vit_tiny(32, generator=torch.Generator().manual_seed(0))
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 192])
    """
    check_patches(image_size)
    return initialised(lambda: VisionTransformer(image_size, patch_size(image_size)), generator, fill=_fill)


def _fill(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, VisionTransformer | nn.Linear):
        weights = part.weight if isinstance(part, nn.Linear) else part.pos_embed
        nn.init.trunc_normal_(weights, std=0.02, a=-0.04, b=0.04, generator=generator)
    elif isinstance(part, nn.Conv2d):
        nn.init.xavier_uniform_(part.weight.flatten(1), generator=generator)
    elif isinstance(part, nn.LayerNorm):
        part.reset_parameters()
    if isinstance(part, nn.Linear | nn.Conv2d) and part.bias is not None:
        nn.init.zeros_(part.bias)
