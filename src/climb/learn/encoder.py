"""The file of the encoder that a learner is asked for."""

from __future__ import annotations

from pathlib import Path

from climb.config import RunConfig
from climb.engine import Engine
from climb.learner import IMAGENET_MEAN, IMAGENET_STD, chosen_network
from climb.nets import SavedEncoder, save_encoder


def write_encoder(path: Path, engine: Engine, config: RunConfig) -> None:
    """Write the chosen encoder, whole or not at all: others may read it while learning goes on."""
    name, network = chosen_network(engine)
    saved = SavedEncoder(
        encoder=network.encoder,
        backbone=config.learner.backbone,
        image_size=config.learner.image_size,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )
    images = engine.budget.images
    save_encoder(path, saved, evaluated=name, config_hash=config.config_hash(), images=images)
