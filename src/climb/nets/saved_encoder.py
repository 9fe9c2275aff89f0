"""An encoder as a file: its weights, image size and normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from climb.errors import InputError
from climb.nets.build import build_network
from climb.state import load_tree, restoring, save_tree


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedEncoder:
    """A trained encoder in eval mode, and its normalisation: ``encoder((images / 255 - mean) / std)``."""

    encoder: nn.Module
    backbone: str
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def save_encoder(path: Path, saved: SavedEncoder, **notes: Any) -> None:
    """Write an encoder to a file. ``notes`` are plain data stored with it."""
    save_tree(path, {**facts(saved), "encoder": saved.encoder.state_dict(), **notes}, kind="encoder")


def facts(saved: SavedEncoder) -> dict[str, Any]:
    """What a file says of an encoder, besides its weights."""
    known = {name: value for name, value in vars(saved).items() if name != "encoder"}
    architecture = getattr(saved.encoder, "architecture", None)
    # With it, a network of transformers can be rebuilt without the folder or the hub that it came from.
    return known if architecture is None else {**known, "architecture": architecture}


def load_encoder(
    path: str | Path, *, device: torch.device | str = "cpu", owner: Mapping[str, Any] | None = None
) -> SavedEncoder:
    """Load the encoder of a run's ``model.safetensors``, in eval mode.

    Args:
        path: the file.
        device: where to load it.
        owner: values, such as the ``config_hash`` of a run, that must agree with those in the file, if it has them.

    Raises:
        InputError: the file holds the encoder of another run, or PCMC's patch encoder, which cannot be rebuilt from its
            weights alone.
    """
    path = Path(path)
    tree = load_tree(path, kind="encoder")
    with restoring(path):
        for name, value in (owner or {}).items():
            if tree.get(name, value) != value:
                raise InputError(
                    f"{path} is the encoder of another run ({name} {tree[name]}; its config.json says {value}); "
                    "put its own back, or copy this one to another folder"
                )
        plain = {name: tree[name] for name in ("architecture",) if name in tree}
        generator = torch.Generator().manual_seed(0)
        network = build_network(tree["backbone"], tree["image_size"], generator=generator, **plain)
        try:
            network.encoder.load_state_dict(tree["encoder"])
        except RuntimeError as error:  # from torch: the names in the file are not those of the network
            reason = "holds an encoder that cannot be rebuilt from its weights alone (PCMC's patch encoder)"
            raise InputError(f"{path} {reason}; give a file that Climb.save wrote") from error
        return SavedEncoder(
            encoder=network.encoder.to(device).eval(),
            backbone=tree["backbone"],
            image_size=tree["image_size"],
            mean=_channels(tree["mean"]),
            std=_channels(tree["std"]),
        )


def _channels(values: Any) -> tuple[float, float, float]:
    red, green, blue = map(float, values)
    return red, green, blue
