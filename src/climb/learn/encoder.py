"""The encoder that a learner is asked for, and its file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from climb.config import RunConfig
from climb.engine import Engine
from climb.learner import IMAGENET_MEAN, IMAGENET_STD
from climb.nets import SavedEncoder, save_encoder
from climb.presets import NETWORK


def chosen_encoder(engine: Engine) -> tuple[str, nn.Module]:
    """The preset's choice of student or teacher, by name; a method without a teacher has its student."""
    alignment = engine.parts.alignment
    teacher = alignment.teacher if alignment is not None else None
    wanted = NETWORK[engine.config.preset] == "teacher" and teacher is not None
    name, network = ("teacher", teacher) if wanted else ("student", engine.parts.network)
    encoder: nn.Module = network.encoder  # type: ignore[union-attr, assignment]
    return name, encoder


def write_encoder(path: Path, engine: Engine, config: RunConfig) -> None:
    """Write the chosen encoder, whole or not at all: others may read it while learning goes on."""
    name, encoder = chosen_encoder(engine)
    saved = SavedEncoder(
        encoder=encoder,
        backbone=config.learner.backbone,
        image_size=config.learner.image_size,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )
    images = engine.budget.images
    save_encoder(path, saved, evaluated=name, config_hash=config.config_hash(), images=images)
