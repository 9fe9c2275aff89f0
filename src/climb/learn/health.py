"""Is it still learning something? Measured on images of the memory, without a label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from climb.engine import Engine
from climb.engine.health import COLLAPSED, ONE_DIRECTION, feature_health, feature_numbers
from climb.engine.inference import inference
from climb.seeds import torch_generator

PANEL = 64  # stored images that are looked at
DRIFTED = 0.5  # half the way from one image to another, between two checkpoints


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """Some stored images, and what the encoder made of them when they were chosen."""

    images: torch.Tensor
    """uint8 (n, 3, H, W)."""
    features: torch.Tensor
    """float32 (n, f), of length 1."""


def choose_panel(engine: Engine, encoder: nn.Module, stored: torch.Tensor) -> Panel | None:
    """A panel spread evenly over the stored images (n, 3, H, W); None where there are fewer than two.

    They are given, not drawn: a draw from the memory would change what is replayed next.
    """
    if len(stored) < 2:
        return None
    rows = torch.linspace(0, len(stored) - 1, min(PANEL, len(stored))).round().long()
    images = stored[rows].to(engine.device)
    return Panel(images=images, features=_features(engine, encoder, engine.augment.plain(images)))


def measure(engine: Engine, encoder: nn.Module, panel: Panel) -> dict[str, float]:
    """Alignment and uniformity (Wang and Isola, 2020) of the encoder on a panel, under the same views every time, and,
    where the panel can tell, whether its features are still alive."""
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
    """How far the features of a panel have moved since it was chosen, as a share of the way from one image to another.

    At 1, what was embedded then is no nearer to its own image than to any other. Both ways are mean cosine distances.
    """
    now = _features(engine, encoder, engine.augment.plain(panel.images))
    moved = 1 - (now * panel.features).sum(dim=1).mean()
    apart = torch.pdist(panel.features).square().mean() / 2  # of unit vectors, half the squared distance is 1 - cosine
    return float(moved.clamp(min=0) / apart.clamp(min=1e-3))


def _features(engine: Engine, encoder: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    with inference(encoder, engine.device, engine.precision):
        return F.normalize(encoder(inputs).float(), dim=1)


class Watchdog:
    """Warns once when something goes wrong, and again if it does so after having been well."""

    def __init__(self) -> None:
        self._ill: set[str] = set()

    def check(self, values: dict[str, float | None], *, young: bool = False) -> list[str]:
        """What to tell a person about the numbers of a journal line. Features of a young network move, and should,
        and it takes a while until they spread.

        >>> dog = Watchdog()
        >>> [len(dog.check({"embedding_spread": spread})) for spread in (0.9, 0.01, 0.01, 0.9, 0.01)]
        [0, 1, 0, 0, 1]
        """
        said = []
        spreads = ("embedding_spread",) if young else ("embedding_spread", "feature_spread")
        ranks = ("effective_rank",) if young else ("effective_rank", "feature_rank")
        for kind, ill, text in (
            (
                "collapse",
                any(_number(values, name, 1.0) < COLLAPSED for name in spreads)
                or any(_number(values, name, 2.0) < ONE_DIRECTION for name in ranks),
                "all images are nearly one point, or one line, to the network: it has collapsed and does not recover "
                "by itself. Start again in another folder with a lower --lr, or with more images per step "
                "(--replay-batch)",
            ),
            (
                "drift",
                _number(values, "drift", 0.0) > DRIFTED and not young,
                "the features of stored images have moved far between two checkpoints: embed again what was embedded "
                "before. If this goes on, start again in another folder with a lower --lr or a larger "
                "--alignment-weight",
            ),
        ):
            if ill and kind not in self._ill:
                said.append(text)
            (self._ill.add if ill else self._ill.discard)(kind)
        return said


def _number(values: dict[str, float | None], name: str, otherwise: float) -> float:
    value = values.get(name)
    return otherwise if value is None else value
