"""The start of a model, beside it: the encoder that its training began with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from climb.errors import ClimbError
from climb.evaluation.start import start_name, start_network
from climb.export.model_loader import OpenModel
from climb.runs import RunFolder
from climb.settings.config import LearnerConfig, from_dict
from climb.state import load_tree

THUMBNAIL = 8
"""Side of a thumbnail in pixels."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """An encoder as it was before training."""

    name: str
    """Its network and its weights, in a few words."""
    model: OpenModel
    """The encoder, computed like the one that it became."""

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Features (n, f), float32 on the CPU, of uint8 images (n, 3, S, S)."""
        return self.model.features(images)


def start_of(model: OpenModel) -> Start | str:
    """The start of a model, or the reason why it cannot be rebuilt."""
    stored = _configuration(model)
    if stored is None:
        return "a file of weights alone does not say what it started from; give the folder of its run or learner"
    config, seed = stored
    try:
        encoder = start_network(config, seed=seed).encoder
    except ClimbError as error:  # its weights are not on this machine
        return f"its start cannot be rebuilt: {error}"
    opened = replace(model, saved=replace(model.saved, encoder=encoder))
    return Start(name=start_name(config, seed=seed), model=opened)


def _configuration(model: OpenModel) -> tuple[LearnerConfig, int] | None:
    """The configuration of the learner and its seed."""
    if model.kind == "model":
        params = load_tree(model.file, kind="model", at=("params",))
        return from_dict(LearnerConfig, load_tree(model.file, kind="model", at=("config",))), params["seed"]
    run = RunFolder(model.file.parent).stored_config()
    return None if run is None else (run.learner, run.seed)


def thumbnails(images: torch.Tensor) -> torch.Tensor:
    """The pixels of 8 x 8 thumbnails, float32 (n, 192), of uint8 images (n, 3, S, S): features without a network.

    >>> thumbnails(torch.full((2, 3, 32, 32), 7, dtype=torch.uint8)).shape
    torch.Size([2, 192])
    """
    return torch.nn.functional.adaptive_avg_pool2d(images.float(), THUMBNAIL).flatten(1)
