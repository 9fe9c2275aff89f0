"""A small vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from climb.errors import InputError

WIDTH, DEPTH, HEADS = 192, 12, 3
"""ViT-tiny of Touvron et al. (2021)."""


class Attention(nn.Module):
    """Every token looks at every other: ``softmax(q k^T / sqrt(d)) v`` in each head of d numbers."""

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


class Mlp(nn.Module):
    """Each token by itself through a layer four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.fc2(functional.gelu(self.fc1(tokens)))
        return out


class Block(nn.Module):
    """Attention, then the two layers, each beside a shortcut and behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out


class PatchEmbedding(nn.Module):
    """Images ``(n, 3, H, W)`` to one token a patch, ``(n, patches, width)``, row by row."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.proj(images).flatten(2).transpose(1, 2)
        return tokens


class VisionTransformer(nn.Module):
    """Images ``(n, 3, S, S)``, normalised, in; features ``(n, feature_dim)`` out (Dosovitskiy et al. 2021).

    The features are the mean over the patches' tokens after the last layer norm, and there is no class token: a
    mean gives every patch a gradient from the first step on, it is what the convolutional encoders here do with
    their maps, and Chen et al. (2021) find self-supervised transformers to learn as well without a class token.
    Positions are learned. Nothing is random in a pass: no dropout, no dropped paths.

    Parameters are named and laid out as timm names those of its ``VisionTransformer``.
    """

    feature_dim: int
    """Length of a feature vector."""

    def __init__(self, image_size: int, patch: int, *, width: int = WIDTH, depth: int = DEPTH, heads: int = HEADS):
        super().__init__()
        self.image_size = image_size
        self.patch_embed = PatchEmbedding(patch, width)
        self.pos_embed = nn.Parameter(torch.zeros(1, (image_size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.feature_dim = width

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.image_size, self.image_size):
            height, width = images.shape[-2:]
            raise InputError(
                f"images are {height} x {width} pixels; this transformer was built for {self.image_size} x "
                f"{self.image_size}, since it learns one vector a position. Build it with image_size={height}"
            )
        tokens = self.blocks(self.patch_embed(images) + self.pos_embed)
        features: Tensor = self.norm(tokens).mean(dim=1)
        return features


def patch_size(image_size: int) -> int:
    """The side of a patch, in pixels: 4 for images up to 32 pixels, 8 up to 64, 16 above.

    So images of 32 and 64 pixels have 8 x 8 patches and images of 224 pixels 14 x 14.

    >>> [patch_size(side) for side in (32, 64, 224)]
    [4, 8, 16]
    """
    return 4 if image_size <= 32 else 8 if image_size <= 64 else 16


def check_patches(image_size: int) -> None:
    """Refuse images that patches would not cover."""
    patch = patch_size(image_size)
    if image_size % patch:
        below = image_size - image_size % patch
        raise InputError(
            f"image_size is {image_size}; vit-tiny cuts images of that size into patches of {patch} pixels, so it "
            f"must be a multiple of {patch}: {below} or {below + patch}"
        )


def vit_tiny(image_size: int, *, generator: torch.Generator) -> VisionTransformer:
    """ViT-tiny for square images of ``image_size`` pixels, 192 features, weights from ``generator`` (a CPU one).

    Linear weights and positions start from a normal of standard deviation 0.02 cut at two deviations, as those of
    Touvron et al. (2021); biases at zero; the patch embedding from Xavier's uniform over the pixels of a patch, as
    a linear layer would (He et al. 2022).

    >>> encoder = vit_tiny(32, generator=torch.Generator().manual_seed(0))
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 192])
    """
    check_patches(image_size)
    # Without storage at first, so that the constructors' own initialisation draws nothing from the global generator.
    with torch.device("meta"):
        encoder = VisionTransformer(image_size, patch_size(image_size))
    encoder.to_empty(device="cpu")
    for part in encoder.modules():
        _fill(part, generator)
    return encoder


def _fill(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, VisionTransformer):
        _cut_normal(part.pos_embed, generator)
    elif isinstance(part, nn.Linear):
        _cut_normal(part.weight, generator)
        nn.init.zeros_(part.bias)
    elif isinstance(part, nn.Conv2d):
        nn.init.xavier_uniform_(part.weight.flatten(1), generator=generator)
        assert part.bias is not None
        nn.init.zeros_(part.bias)
    elif isinstance(part, nn.LayerNorm):
        part.reset_parameters()


def _cut_normal(weights: Tensor, generator: torch.Generator) -> None:
    nn.init.trunc_normal_(weights, std=0.02, a=-0.04, b=0.04, generator=generator)
