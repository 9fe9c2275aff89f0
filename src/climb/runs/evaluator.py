"""Evaluation of a run: the networks that exist at the end of a task, on the dataset's images."""

from __future__ import annotations

from typing import Any

import torch

from climb.config import EvaluationConfig
from climb.config import Network as ProbedNetwork
from climb.datasets import Dataset
from climb.engine import Engine
from climb.engine.health import Health, feature_health
from climb.evaluation import (
    Labelled,
    LinearProbeConfig,
    Row,
    evaluate,
    extract_features,
    fit_linear_probe,
    knn_accuracy,
    ridge_accuracy,
)
from climb.evaluation.features import batch_size
from climb.nets import Network
from climb.runs.remembered import Remembered, remembered
from climb.streams import Stream

FEATURES_LOOKED_AT, IMAGES_LOOKED_AT = 1000, 100
"""For a collapse: test images, spread over all of them, whose features are held to how much some of them differ."""
NEIGHBOURS = 50
"""k of the k-nearest-neighbour probe; all of them where there are fewer training images."""


class Evaluator:
    """Probes the student, its teacher or both. Never changes a network or anyone's random numbers."""

    def __init__(
        self, config: EvaluationConfig, data: Dataset, stream: Stream, *, main: ProbedNetwork, seed: int
    ) -> None:
        self._config = config
        self._data = data
        self._stream = stream
        self._main = main  # which network comes first when both are probed
        self._seed = seed

    def networks(self, engine: Engine) -> dict[str, Network]:
        """The networks to probe, the main one first. A method without a teacher has its student probed."""
        found = {"student": engine.parts.network}
        if engine.parts.teacher is not None:
            found["teacher"] = engine.parts.teacher
        both = ["teacher", "student"] if self._main == "teacher" else ["student", "teacher"]
        wanted = both if self._config.network == "both" else [self._config.network]
        return {name: found[name] for name in wanted if name in found} or {"student": found["student"]}

    def rows(self, engine: Engine, after: int) -> dict[str, tuple[Row, Health | None]]:
        """One row of the accuracy matrix per network, after segment number ``after``, and how its features are."""
        return {name: self._row(engine, network, after) for name, network in self.networks(engine).items()}

    def _row(self, engine: Engine, network: Network, after: int) -> tuple[Row, Health | None]:
        features = self._features(engine, network)
        row = evaluate(
            features,
            self._stream.segments,
            after=after,
            classes=len(self._data.classes),
            config=LinearProbeConfig(epochs=self._config.epochs),
            seed=self._seed,
        )
        images = _some(self._data.test.images, IMAGES_LOOKED_AT).to(engine.device)
        return row, feature_health(_some(features.test_features, FEATURES_LOOKED_AT), engine.augment.plain(images))

    def final_probes(self, engine: Engine) -> dict[str, float]:
        """The other probes of the main network, in percent: on the held-out images, and on all test images."""
        features = self._features(engine, next(iter(self.networks(engine).values())))
        rows = torch.cat([segment.train for segment in self._stream.segments]).to(features.train_features.device)
        held_out = torch.cat([segment.validation for segment in self._stream.segments]).to(rows.device)
        arguments = (
            features.train_features[rows],
            features.train_labels[rows],
            features.test_features,
            features.test_labels,
        )
        found: dict[str, float] = {}
        if len(held_out) > 0:  # small tasks hold none out
            found["validation_accuracy"] = self._validation_accuracy(features, rows, held_out)
        if self._config.knn:
            found["knn_accuracy"] = knn_accuracy(*arguments, k=min(NEIGHBOURS, len(rows)))
        if self._config.ridge:
            found["ridge_accuracy"] = ridge_accuracy(*arguments)
        return found

    def _validation_accuracy(self, features: Labelled, train: torch.Tensor, held_out: torch.Tensor) -> float:
        """The linear probe on the images that neither it nor the network was trained on: what settings are chosen by,
        so that test images have no part in it."""
        validation = (features.train_features[held_out], features.train_labels[held_out])
        probe = fit_linear_probe(
            features.train_features[train],
            features.train_labels[train],
            *validation,
            classes=len(self._data.classes),
            config=LinearProbeConfig(epochs=self._config.epochs),
            seed=self._seed,
        )
        return probe.accuracy(*validation)

    def remembered(self, engine: Engine) -> Remembered | None:
        """What the memory holds, each image with its features where the network takes images of that size."""
        memory = engine.parts.memory
        content = None if memory is None else remembered(memory.state_dict())
        if content is None or content.images.shape[-1] != engine.config.image_size:  # patches
            return content
        network = next(iter(self.networks(engine).values()))
        return content.with_embeddings(self.encoded(engine, network, content.images).cpu())

    def encoded(self, engine: Engine, network: Network, images: torch.Tensor) -> torch.Tensor:
        """Features (n, d) of uint8 images (n, 3, H, W), as the probes see them."""
        return extract_features(
            network.encoder,
            images,
            engine.augment.plain,
            batch_size=batch_size(images.shape[-1]),
            device=engine.device,
            precision=engine.precision,
        )

    def _features(self, engine: Engine, network: Network) -> Labelled:
        return Labelled(
            train_features=self.encoded(engine, network, self._data.train.images),
            train_labels=self._data.train.labels.to(engine.device),
            test_features=self.encoded(engine, network, self._data.test.images),
            test_labels=self._data.test.labels.to(engine.device),
        )


def _some(rows: torch.Tensor, most: int) -> torch.Tensor:
    """At most so many of the rows, spread over all of them."""
    return rows[:: max(1, -(-len(rows) // most))]


def row_to_json(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    return {
        "per_task": list(row.per_task),
        "joint": row.joint,
        "upto": row.upto,
        "upto_per_image": row.upto_per_image,
    }
