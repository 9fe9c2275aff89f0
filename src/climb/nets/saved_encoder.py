"""An encoder as a file: its weights, and what one must know to feed it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from climb.errors import InputError
from climb.nets.build import build_network
from climb.state import load_tree, save_tree


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedEncoder:
    """A trained encoder, ready to use: ``encoder((images / 255 - mean) / std)`` in eval mode."""

    encoder: nn.Module
    backbone: str
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def save_encoder(path: Path, saved: SavedEncoder, **notes: Any) -> None:
    """Write an encoder; ``notes`` is plain data kept beside it."""
    tree = {
        "backbone": saved.backbone,
        "image_size": saved.image_size,
        "mean": list(saved.mean),
        "std": list(saved.std),
        "encoder": saved.encoder.state_dict(),
        **notes,
    }
    save_tree(path, tree, kind="encoder")


def load_encoder(path: str | Path, *, device: torch.device | str = "cpu") -> SavedEncoder:
    """The encoder of a run's ``model.safetensors``, in eval mode.

    Raises:
        InputError: PCMC's encoder of patches is not rebuilt from a file.
    """
    tree = load_tree(Path(path), kind="encoder")
    network = build_network(tree["backbone"], tree["image_size"], generator=torch.Generator().manual_seed(0))
    try:
        network.encoder.load_state_dict(tree["encoder"])
    except RuntimeError as error:  # torch's, where the names in the file are not the network's
        raise InputError(
            f"{path} holds an encoder that is not rebuilt from its weights alone (pcmc's, of patches); "
            "give a file that Climb.save wrote"
        ) from error
    return SavedEncoder(
        encoder=network.encoder.to(device).eval(),
        backbone=tree["backbone"],
        image_size=tree["image_size"],
        mean=tuple(tree["mean"]),
        std=tuple(tree["std"]),
    )
