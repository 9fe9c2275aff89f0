"""The weights that an encoder starts from: none, published ones, or those of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from climb.errors import InputError
from climb.nets.build import BACKBONES, build_network, find_backbone, is_published
from climb.nets.fit import fitted
from climb.nets.foreign import MODULE
from climb.nets.network import Channels
from climb.nets.weight_files import WeightFile, read_weights, weight_file
from climb.settings.config import LearnerConfig

RANDOM, PUBLISHED, OWN = "none", "pretrained", "module"
"""Values of the setting ``weights`` that are no path; the last stands for the weights of a module of the caller."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StartWeights:
    """The weights that an encoder starts from."""

    state: Mapping[str, Tensor]
    """The encoder's state, complete and under its names."""
    mean: Channels | None
    """Mean of the channels that the weights expect, on the 0..1 scale; None if it is unknown."""
    std: Channels | None
    """Standard deviation of the channels; None if it is unknown."""
    sha256: str
    """Digest of the tensors and of both statistics."""


def start_weights(backbone: str, weights: str, image_size: int) -> StartWeights:
    """Load the weights that an encoder starts from, and check them against the network.

    The statistics are those stored in the file, else those of the network's published weights.

    Args:
        backbone: name of the network.
        weights: "pretrained" for its published weights, or the path of a file or folder.
        image_size: side of the images in pixels.

    Raises:
        InputError: there are no such weights, or they do not fit.
    """
    stamp = None
    if weights != PUBLISHED:
        stat = weight_file(weights).stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
    return _load(backbone, weights, image_size, stamp)


def weights_of(config: LearnerConfig) -> StartWeights | None:
    """The start weights of a configuration; None for random ones, and for those that a module of the caller has.

    Weights of another digest than the configuration's are refused.
    """
    if config.weights == RANDOM:
        return None
    if config.backbone.startswith(MODULE):
        if config.weights == OWN:
            return None
        raise InputError(f"load the weights '{config.weights}' into the module, and leave weights out")
    start = start_weights(config.backbone, config.weights, config.image_size)
    if config.weights_sha256 not in (None, start.sha256):
        raise InputError(
            f"the weights '{config.weights}' have changed (SHA-256 {start.sha256[:12]}, before "
            f"{config.weights_sha256[:12]}); put the former ones back, or give another --out"
        )
    return start


# Settings are resolved before an engine is built: the second look finds the weights in memory.
@lru_cache(maxsize=1)
def _load(backbone: str, weights: str, image_size: int, stamp: tuple[int, int] | None) -> StartWeights:
    entry = find_backbone(backbone)
    published = entry.pretrained() if entry.pretrained is not None else None
    if weights != PUBLISHED:
        content = read_weights(weights)
        _check_network(content, backbone, weights)
    elif published is None or published.state is None:
        having = sorted(name for name, other in BACKBONES.items() if is_published(other))
        raise InputError(
            f"backbone '{backbone}' comes without pretrained weights; give a file (--weights FILE), or a --backbone "
            f"that has some: {', '.join([*having, 'timm/NAME', 'hf:NAME'])}"
        )
    else:
        content = WeightFile(state=published.state(image_size))
    encoder = build_network(backbone, image_size, generator=torch.Generator().manual_seed(0)).encoder
    source = f"the pretrained state of {backbone}" if weights == PUBLISHED else weights
    network = f"'{backbone}' at {image_size} px"
    state = fitted(content.state, encoder, source=source, network=network, rename=entry.rename, adapt=entry.adapt)
    known = content if content.mean is not None else published
    mean, std = (None, None) if known is None else (known.mean, known.std)
    return StartWeights(state=state, mean=mean, std=std, sha256=digest(state, mean, std))


def _check_network(content: WeightFile, backbone: str, weights: str) -> None:
    if content.backbone not in (None, backbone):
        raise InputError(
            f"{weights} holds weights of another architecture: {content.backbone} at {content.image_size} px; the "
            f"network is '{backbone}'. Type --backbone {content.backbone} --image-size {content.image_size}"
        )


def digest(state: Mapping[str, Any], mean: Channels | None = None, std: Channels | None = None) -> str:
    """SHA-256 of tensors with their names, and of two statistics."""
    total = hashlib.sha256(repr((mean, std)).encode())
    for name, value in sorted(state.items()):
        if not isinstance(value, Tensor):  # what `get_extra_state` of some module gives
            continue
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(value.contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


def absolute(weights: str) -> str:
    """A value of the setting ``weights``. Paths become absolute: jobs of a cluster may start in another folder."""
    return weights if weights in (RANDOM, PUBLISHED, OWN) else str(Path(weights).expanduser().resolve())
