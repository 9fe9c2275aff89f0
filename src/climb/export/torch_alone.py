"""The encoder's network as a Python file that needs torch and safetensors, and no climb.

The file is put together from the source of the classes that were trained, so that it cannot come to differ from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from climb.export.from_pixels import FromPixels
from climb.nets import MicroNet, ResNet, VisionTransformer, micro, resnet, vit

_HEAD = '''"""The encoder of this folder for torch alone: `load()` gives it. Written by climb."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
'''

_LOAD = '''def load(folder: str | Path = Path(__file__).parent) -> FromPixels:
    """The encoder in eval mode: images (n, 3, S, S), uint8 or floats in 0 to 1, to features (n, f)."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    encoder = {construction}
    encoder.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return FromPixels(encoder, mean=config["mean"], std=config["std"]).eval()
'''


def torch_source(encoder: nn.Module) -> str | None:
    """The file's text; None for a network that is not ours to write down."""
    described = _described(encoder)
    if described is None:
        return None
    constants, parts, construction = described
    sources = [inspect.getsource(part).rstrip() for part in (*parts, FromPixels)]
    blocks = [*sources, _LOAD.format(construction=construction).rstrip()]
    return _HEAD + constants + "\n\n" + "\n\n\n".join(blocks) + "\n"


def _described(encoder: nn.Module) -> tuple[str, list[Callable[..., Any]], str] | None:
    """Further imports and constants, the functions and classes a network is made of, and the call that makes it."""
    if isinstance(encoder, ResNet):
        stages = (encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4)
        depths = tuple(len(stage) for stage in stages)
        block = type(encoder.layer1[0])
        small = isinstance(encoder.maxpool, nn.Identity)
        parts: list[Callable[..., Any]] = [resnet._shortcut, resnet.BasicBlock, resnet.BottleneckBlock, ResNet]
        return "", parts, f"ResNet({block.__name__}, {depths}, small_stem={small})"
    if isinstance(encoder, MicroNet):
        return "", [micro._stage, MicroNet], "MicroNet()"
    if isinstance(encoder, VisionTransformer):
        constants = (
            "from torch.nn import functional\n\n"
            f"WIDTH, DEPTH, HEADS = {vit.WIDTH}, {vit.DEPTH}, {vit.HEADS}\n"
            "InputError = ValueError\n"
        )
        parts = [vit.Attention, vit.Mlp, vit.Block, vit.PatchEmbedding, VisionTransformer]
        return constants, parts, f"VisionTransformer({encoder.image_size}, {encoder.patch_embed.proj.kernel_size[0]})"
    return None
