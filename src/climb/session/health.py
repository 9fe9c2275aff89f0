"""Health of a network without labels: alignment, uniformity and drift on stored images, and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from climb.engine import Engine, Observation
from climb.engine.health import COLLAPSED, ONE_DIRECTION, feature_health, feature_numbers
from climb.engine.inference import inference
from climb.seeds import torch_generator
from climb.session.feeds import Batch
from climb.session.observer import Observer

if TYPE_CHECKING:
    from climb.session.session import Session

PANEL = 64  # stored images that are measured
DRIFTED = 0.5  # half the distance between two images, between two checkpoints
COLLAPSE = (
    "all {what} are nearly one point, or one line: the network has collapsed and does not recover by itself. "
    "Start again in another folder with a lower --lr, or with more images per step (--replay-batch)"
)
DRIFT = (
    "the features of stored images have moved far between two checkpoints: embed again what was embedded before. "
    "If this goes on, start again in another folder with a lower --lr or a larger --alignment-weight"
)


class GuardLines(Observer):
    """Writes a line for each intervention of the engine's guard, which logs them itself."""

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Write the line, if the guard restored an encoder after this mini-batch."""
        guard = session.engine.guard
        if guard is not None and guard.event is not None:
            session.write("guard", **asdict(guard.event))


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """A sample of stored images, and their features when the sample was chosen."""

    images: torch.Tensor
    """uint8 (n, 3, H, W)."""
    features: torch.Tensor
    """float32 (n, f), of length 1."""


def choose_panel(engine: Engine, encoder: nn.Module, stored: torch.Tensor) -> Panel | None:
    """A panel spread evenly over the stored images (n, 3, H, W); None for fewer than two images.

    The caller passes the images: drawing them from the memory would change later replay.
    """
    if len(stored) < 2:
        return None
    rows = torch.linspace(0, len(stored) - 1, min(PANEL, len(stored))).round().long()
    images = stored[rows].to(engine.device)
    return Panel(images=images, features=_features(engine, encoder, engine.augment.plain(images)))


def measure(engine: Engine, encoder: nn.Module, panel: Panel) -> dict[str, float]:
    """Alignment and uniformity (Wang and Isola, 2020) of the encoder on a panel, and the health of its features.

    The views are the same at every call.
    """
    views = engine.augment(panel.images, torch_generator(0, "health", engine.device))
    first, second = (_features(engine, encoder, view) for view in views)
    inputs = engine.augment.plain(panel.images)
    plain = _features(engine, encoder, inputs)
    return {
        "view_alignment": float((first - second).square().sum(dim=1).mean()),
        "uniformity": float(torch.pdist(plain).square().mul(-2).exp().mean().log()),
        **feature_numbers(feature_health(plain, inputs)),
    }


def drift(engine: Engine, encoder: nn.Module, panel: Panel) -> float:
    """Distance that the features of a panel have moved, relative to the distance between two of its images.

    Both are mean cosine distances. At 1, an old feature is no closer to its own image than to any other image.
    """
    now = _features(engine, encoder, engine.augment.plain(panel.images))
    moved = 1 - (now * panel.features).sum(dim=1).mean()
    apart = torch.pdist(panel.features).square().mean() / 2  # of unit vectors, half the squared distance is 1 - cosine
    return float(moved.clamp(min=0) / apart.clamp(min=1e-3))


def _features(engine: Engine, encoder: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    with inference(encoder, engine.device, engine.precision):
        return F.normalize(encoder(inputs).float(), dim=1)


class Watchdog:
    """Chooses the warnings for a network that collapses or drifts, each once.

    Args:
        repeat: warn again of a problem that had gone away.
    """

    def __init__(self, *, repeat: bool) -> None:
        self._repeat = repeat
        self._warned: set[str] = set()

    def check(
        self, values: Mapping[str, float | None], *, features_of: str = "stored images", young: bool = False
    ) -> list[str]:
        """New warnings about the values of a journal line.

        Args:
            values: the fields of the line; others than those of health are ignored.
            features_of: the images of the feature fields.
            young: ignore the features, which move and spread in a young network.

        >>> dog = Watchdog(repeat=True)
        >>> [len(dog.check({"embedding_spread": spread})) for spread in (0.9, 0.01, 0.01, 0.9, 0.01)]
        [0, 1, 0, 0, 1]
        """
        collapsed = ""
        if _collapsed(values.get("embedding_spread"), values.get("effective_rank")):
            collapsed = "embeddings"
        elif not young and _collapsed(values.get("feature_spread"), values.get("feature_rank")):
            collapsed = f"features of {features_of}"
        drifted = not young and (values.get("drift") or 0.0) > DRIFTED
        problems = [COLLAPSE] * bool(collapsed) + [DRIFT] * drifted
        warnings = [problem.format(what=collapsed) for problem in problems if problem not in self._warned]
        self._warned = {*problems, *(() if self._repeat else self._warned)}
        return warnings


def _collapsed(spread: float | None, rank: float | None) -> bool:
    return (spread is not None and spread < COLLAPSED) or (rank is not None and rank < ONE_DIRECTION)
