"""Evaluation of a run: probes of its networks on the dataset, and measures of the images in its memory."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from climb.datasets import Dataset
from climb.engine import Engine
from climb.engine.health import Health, feature_health, feature_numbers
from climb.engine.inference import inference
from climb.evaluation import (
    Labelled,
    LinearProbeConfig,
    Row,
    by_task,
    evaluate,
    extract_features,
    fit_linear_probe,
    knn_accuracy,
    ridge_accuracy,
    summarize,
)
from climb.evaluation.diversity import SUBSAMPLE, measure_diversity
from climb.evaluation.features import batch_size
from climb.memory.snapshot import MemorySnapshot, take_snapshot
from climb.nets import Network
from climb.session.observer import Observer
from climb.settings.config import RunConfig
from climb.settings.presets import NETWORK
from climb.streams import Stream

if TYPE_CHECKING:
    from climb.session.session import Session

HEALTH_FEATURES, HEALTH_IMAGES = 1000, 100
"""Numbers of test images, spread over all of them, that show whether the features have collapsed."""
NEIGHBOURS = 50
"""k of the k-nearest-neighbour probe; fewer if there are fewer training images."""
log = logging.getLogger("climb.session")


class Evaluator(Observer):
    """Probes the student, the teacher or both: before training, and at the end of each segment, on all groups.

    It changes no network and draws no random numbers of training.
    """

    def __init__(self, config: RunConfig, data: Dataset, stream: Stream) -> None:
        self.data = data
        self.groups, self.shown = stream.groups, stream.shown
        self.listed = stream.manifest.is_listed
        self.measured: dict[str, list[dict[str, Any]]] = {}
        """For each network, one row per finished segment."""
        self.floor: dict[str, float] = {}
        """For each network, the accuracy of the random encoder."""
        self.floor_by_group: dict[str, list[float]] = {}
        """The same on each group."""
        self._config = config

    # -- an observer of the session --------------------------------------------------------------------------------

    def start(self, session: Session) -> None:
        """Evaluate the random encoder, once per run."""
        if self.floor:
            return
        session.line.note("evaluating the random encoder")
        rows = self._timed_rows(session, len(self.shown) - 1)
        self.floor_by_group = {name: list(row.per_task) for name, (row, _) in rows.items()}
        self.floor = {name: sum(row.per_task) / len(row.per_task) for name, (row, _) in rows.items()}
        session.write("floor", **self.floor)

    def at_boundary(self, session: Session, segment: int) -> None:
        """Evaluate the networks."""
        session.line.note(f"evaluating task {segment + 1} of {len(self.shown)}")
        rows = self._timed_rows(session, segment)
        for name, (row, state) in rows.items():
            self.measured.setdefault(name, []).append(row_to_json(row))
            features = feature_numbers(state)
            session.write("evaluation", network=name, task=segment, **features, **row_to_json(row))
            session.warn(*session.watchdog.check(features, features_of=f"test images, of the {name},"))
        main, _ = next(iter(rows.values()))
        text = "after task %d: %.2f %% on all tasks, %.2f %% on the tasks seen so far"
        log.info(text, segment + 1, main.joint, main.upto)
        session.line.note(f"task {segment + 1}: {main.joint:.1f} %")

    def state_dict(self) -> dict[str, Any]:
        """Rows and floor."""
        return {"rows": self.measured, "floor": self.floor, "floor_by_group": self.floor_by_group}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore rows and floor from a checkpoint."""
        self.measured, self.floor = state["rows"], state["floor"]
        self.floor_by_group = state.get("floor_by_group", {})  # absent in older checkpoints

    def _timed_rows(self, session: Session, segment: int) -> dict[str, tuple[Row, Health | None]]:
        began = time.monotonic()
        rows = self.rows(session.engine, after=segment)
        session.timer.seconds["evaluate"] += time.monotonic() - began
        return rows

    # -- measurements ----------------------------------------------------------------------------------------------

    def networks(self, engine: Engine) -> dict[str, Network]:
        """The networks to probe, the main one first; the student for a method without a teacher."""
        networks = {"student": engine.parts.network}
        if engine.parts.teacher is not None:
            networks["teacher"] = engine.parts.teacher
        if engine.parts.average is not None:
            networks["average"] = engine.parts.average.network
        wanted = self._config.evaluation.network
        if wanted == "both":
            main = NETWORK[self._config.learner.preset]
            return dict(sorted(networks.items(), key=lambda item: item[0] != main))
        return {wanted: networks[wanted]} if wanted in networks else {"student": networks["student"]}

    def rows(self, engine: Engine, after: int) -> dict[str, tuple[Row, Health | None]]:
        """For each network, its row of the accuracy matrix after segment ``after``, and the health of its features."""
        return {name: self._row(engine, network, after) for name, network in self.networks(engine).items()}

    def _row(self, engine: Engine, network: Network, after: int) -> tuple[Row, Health | None]:
        features = self._features(engine, network)
        seen = 1 + max(max(shown) for shown in self.shown[: after + 1])  # groups are numbered as they are shown first
        row = evaluate(features, self.groups, after=seen - 1, **self._probe_settings())
        images = _some(self.data.test.images, HEALTH_IMAGES).to(engine.device)
        return row, feature_health(_some(features.test_features, HEALTH_FEATURES), engine.augment.plain(images))

    def accuracies(self, network: str) -> dict[str, Any]:
        """The accuracies of a network, as `result.json` has them."""
        rows = self.measured[network]
        matrix = [row["per_task"] for row in rows]
        upto = [row["upto"] for row in rows]
        images, shown = [len(group.test) for group in self.groups], [list(groups) for groups in self.shown]
        accuracies = {
            **summarize(matrix, upto, images, upto_per_image=[row["upto_per_image"] for row in rows], shown=shown),
            "random_encoder_accuracy": self.floor[network],
            "accuracy_matrix": matrix,
            "accuracy_upto": upto,
        }
        if not self.listed:  # task t is that of segment t
            return accuracies
        floors = self.floor_by_group.get(network, [None] * len(self.groups))
        groups = [
            {"name": group.name, **own, "random_encoder_accuracy": floor}
            for group, own, floor in zip(self.groups, by_task(matrix, shown), floors, strict=True)
        ]
        return {**accuracies, "groups": groups, "shown": shown}

    def final_probes(self, engine: Engine) -> dict[str, float]:
        """The other probes of the main network, in percent: on the held-out images, and on all test images."""
        features = self._features(engine, next(iter(self.networks(engine).values())))
        rows = torch.cat([group.train for group in self.groups]).to(features.train_features.device)
        held_out = torch.cat([group.validation for group in self.groups]).to(rows.device)
        train = features.train_features[rows], features.train_labels[rows]
        test = features.test_features, features.test_labels
        accuracies: dict[str, float] = {}
        if len(held_out) > 0:  # small tasks hold none out
            # Settings are chosen by this accuracy, so that they are not chosen by test images.
            validation = features.train_features[held_out], features.train_labels[held_out]
            probe = fit_linear_probe(*train, *validation, **self._probe_settings())
            accuracies["validation_accuracy"] = probe.accuracy(*validation)
        if self._config.evaluation.knn:
            accuracies["knn_accuracy"] = knn_accuracy(*train, *test, k=min(NEIGHBOURS, len(rows)))
        if self._config.evaluation.ridge:
            accuracies["ridge_accuracy"] = ridge_accuracy(*train, *test)
        return accuracies

    def memory_snapshot(self, engine: Engine) -> MemorySnapshot | None:
        """The stored images, with features of the main network if it accepts images of their size."""
        memory = engine.parts.memory
        snapshot = None if memory is None else take_snapshot(type(memory), memory.state_dict())
        if snapshot is None or snapshot.images.shape[-1] != engine.config.image_size:  # patches
            return snapshot
        network = next(iter(self.networks(engine).values()))
        return snapshot.with_embeddings(self.encoded(engine, network, snapshot.images).cpu())

    def encoded(self, engine: Engine, network: Network, images: torch.Tensor) -> torch.Tensor:
        """Features (n, d) of uint8 images (n, 3, H, W), as the probes get them."""
        return extract_features(
            network.encoder,
            images,
            engine.augment.plain,
            batch_size=batch_size(images.shape[-1]),
            device=engine.device,
            precision=engine.precision,
        )

    def _probe_settings(self) -> dict[str, Any]:
        config = LinearProbeConfig(epochs=self._config.evaluation.epochs)
        return {"classes": len(self.data.classes), "config": config, "seed": self._config.seed}

    def _features(self, engine: Engine, network: Network) -> Labelled:
        return Labelled(
            train_features=self.encoded(engine, network, self.data.train.images),
            train_labels=self.data.train.labels.to(engine.device),
            test_features=self.encoded(engine, network, self.data.test.images),
            test_labels=self.data.test.labels.to(engine.device),
        )


def _some(rows: torch.Tensor, most: int) -> torch.Tensor:
    """At most ``most`` rows, spread evenly."""
    return rows[:: max(1, -(-len(rows) // most))]


def row_to_json(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    return {**asdict(row), "per_task": list(row.per_task)}


def memory_diversity(engine: Engine, *, classes: int, seed: int) -> dict[str, Any] | None:
    """Diversity of all stored images, in the measures of the paper's appendix; None for fewer than two images.

    Measured on the projector's embeddings and, under ``features``, on the encoder's features.
    """
    # The paper writes "encoder embeddings". Its printed cosines are only possible in the projector's space: features
    # after a ReLU are never further apart than orthogonal.
    memory = engine.parts.memory
    stored = memory.sample(len(memory)) if memory is not None and len(memory) > 1 else None
    if memory is None or stored is None:
        return None
    images = stored.images[stored.ids.argsort().to(stored.images.device)]  # an order that does not depend on replay
    network = engine.parts.network
    # An encoder that cuts images into pieces has another one for the pieces that are stored.
    encoder: nn.Module = getattr(network.encoder, "stored_encoder", network.encoder)
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
