"""What the memory holds at the end of a run, in the measures of the paper's appendix."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from climb.engine import Engine
from climb.engine.inference import inference
from climb.engine.patching import PatchEncoder
from climb.evaluation import extract_features
from climb.evaluation.diversity import SUBSAMPLE, measure_diversity


def memory_diversity(engine: Engine, *, classes: int, seed: int) -> dict[str, Any] | None:
    """Measures of all stored images, or None without any; the student's forward of them is not part of the budget.

    The measures are of the projector's embeddings, the space in which the paper's memory decides and, though it writes
    "encoder embeddings", the only one of the two whose cosines its printed values can come from: features after a ReLU
    are never further apart than orthogonal. Those of the encoder's features stand beside, under ``features``.
    """
    memory = engine.parts.memory
    stored = memory.sample(len(memory)) if memory is not None and len(memory) > 1 else None
    if memory is None or stored is None:
        return None
    images = stored.images[stored.ids.argsort().to(stored.images.device)]  # an order that replay has no part in
    network = engine.parts.network
    # PCMC stores patches: its encoder takes images apart, the backbone inside takes a patch.
    encoder: nn.Module = network.encoder.backbone if isinstance(network.encoder, PatchEncoder) else network.encoder
    features = extract_features(
        encoder, images, engine.augment.plain, batch_size=256, device=engine.device, precision=engine.precision
    )
    with inference(network.projector, engine.device, engine.precision):
        embeddings = network.projector(features)
    sizes = {"clusters": max(2, classes), "subsample": max(2, round(SUBSAMPLE * memory.capacity))}
    return {
        **asdict(measure_diversity(embeddings.float(), **sizes, seed=seed)),
        "features": asdict(measure_diversity(features, **sizes, seed=seed)),
    }
