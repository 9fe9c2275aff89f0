"""The encoder's weights as a safetensors file under their plain names, which `load_encoder` reads too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save

from climb.files import write_atomic
from climb.nets import SavedEncoder, TimmModel
from climb.state.tree import FORMAT_VERSION


def plain_weights(saved: SavedEncoder) -> dict[str, torch.Tensor]:
    """The encoder's parameters and statistics on the CPU, named as timm and torchvision name them."""
    return {
        _plain(saved, name): value.detach().to("cpu", copy=True).contiguous()
        for name, value in saved.encoder.state_dict().items()
    }


def write_weights(path: Path, saved: SavedEncoder) -> None:
    """Write the weights. The file's header tells climb which network they are of; others need not read it."""
    encoder = {name: {"$tensor": _plain(saved, name)} for name in saved.encoder.state_dict()}
    tree = {
        "backbone": saved.backbone,
        "image_size": saved.image_size,
        "mean": list(saved.mean),
        "std": list(saved.std),
        "encoder": encoder,
    }
    header = {"format_version": FORMAT_VERSION, "kind": "encoder", "tree": tree}
    # As bytes: safetensors' own files can be read by nobody but their owner, and this one is for others.
    body = save(plain_weights(saved), metadata={"climb": json.dumps(header)})
    write_atomic(path, lambda temporary: temporary.write_bytes(body))


def fingerprint(saved: SavedEncoder) -> str:
    """The same for the same weights, whatever file they are in."""
    digest = hashlib.sha256()
    for name, value in sorted(plain_weights(saved).items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def _plain(saved: SavedEncoder, name: str) -> str:
    # A model of timm's lies one level down here.
    return name.removeprefix("model.") if isinstance(saved.encoder, TimmModel) else name
