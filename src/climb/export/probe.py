"""What the features are worth on labelled images: a linear, a nearest-neighbour and a ridge probe."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from climb.datasets.listing import Listing
from climb.errors import InputError
from climb.evaluation import Labelled, evaluate, fit_linear_probe, knn_accuracy, ridge_accuracy
from climb.export.embed import embed
from climb.export.image_files import images_of
from climb.export.labelled import read_labelled
from climb.export.opened import OpenModel
from climb.runs import Result
from climb.runs.evaluator import NEIGHBOURS
from climb.seeds import derive, numpy_generator
from climb.streams import Stream, regular

DRAWS = 10
"""Draws of few-shot training images, whose accuracies are averaged."""


def probe(
    model: OpenModel, images: str | Path, *, shots: int | None = None, draws: int = DRAWS, seed: int = 0
) -> Result:
    """Accuracies, in percent, of three probes of a frozen encoder on a folder with one sub-folder a class.

    With ``train`` and ``test`` (or ``val``) folders these are the parts; without, 20 % of each class, drawn with
    ``seed``, are the test part. The probes are those of `climb run`, held-out images and all, but for the neighbours:
    50, or as many as the smallest class has images.

    ``shots`` trains each probe on that many images of each class instead, none held out, and gives the mean over
    ``draws`` draws of them, with the standard deviation. Every class must have so many.
    """
    if shots is not None and shots < 1:
        raise InputError(f"shots is {shots}; it must be at least 1")
    if draws < 1:
        raise InputError(f"draws is {draws}; it must be at least 1")
    folder = read_labelled(images, seed=seed)
    _check_shots(shots, folder.classes, torch.tensor(folder.train.labels))  # before the work
    train, train_labels = _embedded(model, folder.train)
    test, test_labels = _embedded(model, folder.test)
    classes = len(folder.classes)
    for name, labels in (("training", train_labels), ("test", test_labels)):
        missing = set(range(classes)) - set(labels.tolist())
        if missing:
            raise InputError(f"class '{folder.classes[min(missing)]}' has no readable {name} image")
    _check_shots(shots, folder.classes, train_labels)  # of files that can be read
    # What answering the commonest class every time would score: accuracies are to be read against it.
    commonest = int(torch.bincount(train_labels).argmax())
    found: dict[str, Any] = {
        "classes": classes,
        "train_images": len(train),
        "test_images": len(test),
        "seed": seed,
        "majority_accuracy": 100.0 * int((test_labels == commonest).sum()) / len(test),
    }
    features = Labelled(
        train_features=train.to(model.device),
        train_labels=train_labels.to(model.device),
        test_features=test.to(model.device),
        test_labels=test_labels.to(model.device),
    )
    if shots is None:
        return Result({**found, **_with_all(features, classes, seed)})
    return Result({**found, "shots": shots, "draws": draws, **_with_few(features, classes, shots, draws, seed)})


def _check_shots(shots: int | None, classes: list[str], labels: torch.Tensor) -> None:
    counts = torch.bincount(labels, minlength=len(classes))
    fewest = int(counts.argmin())
    if shots is not None and counts[fewest] < shots:
        has = int(counts[fewest])
        raise InputError(
            f"shots is {shots}, but class '{classes[fewest]}' has {has} training image{'' if has == 1 else 's'}; "
            f"give --shots {has} or fewer, or more images of it"
        )


def _embedded(model: OpenModel, listing: Listing) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, f) and labels (n,) of the files that can be read."""
    label_of = dict(zip(map(str, listing.files), listing.labels, strict=True))
    batches = list(embed(model, images_of(listing.files, model.saved.image_size)))
    labels = [label_of[path] for batch in batches for path in batch.paths]
    features = np.concatenate([batch.features for batch in batches]) if batches else np.zeros((0, 1), np.float32)
    return torch.from_numpy(features), torch.tensor(labels, dtype=torch.int64)


def _with_all(features: Labelled, classes: int, seed: int) -> dict[str, float]:
    """The three probes as `climb run` has them, for a stream that is one task."""
    stream = Stream(regular(classes, 1, seed=seed), features.train_labels.cpu(), features.test_labels.cpu())
    rows = stream.segments[0].train.to(features.train_labels.device)
    parts = (
        features.train_features[rows],
        features.train_labels[rows],
        features.test_features,
        features.test_labels,
    )
    return {
        "linear_accuracy": evaluate(features, stream.segments, after=0, classes=classes, seed=seed).joint,
        "knn_accuracy": knn_accuracy(*parts, k=_neighbours(parts[1])),
        "ridge_accuracy": ridge_accuracy(*parts),
    }


def _with_few(features: Labelled, classes: int, shots: int, draws: int, seed: int) -> dict[str, float]:
    """Mean and deviation of the three probes over draws of ``shots`` training images a class."""
    scores: dict[str, list[float]] = {"linear": [], "knn": [], "ridge": []}
    labels = features.train_labels.cpu().numpy()
    test = (features.test_features, features.test_labels)
    for draw in range(draws):
        generator = numpy_generator(seed, f"shots/{draw}")
        members = [generator.permutation(np.flatnonzero(labels == label))[:shots] for label in range(classes)]
        rows = torch.from_numpy(np.concatenate(members)).to(features.train_labels.device)
        train = (features.train_features[rows], features.train_labels[rows])
        nothing = (train[0][:0], train[1][:0])
        linear = fit_linear_probe(*train, *nothing, classes=classes, seed=derive(seed, f"shots/{draw}"))
        scores["linear"].append(linear.accuracy(*test))
        scores["knn"].append(knn_accuracy(*train, *test, k=_neighbours(train[1])))
        scores["ridge"].append(ridge_accuracy(*train, *test))
    return {
        **{f"{name}_accuracy": statistics.fmean(values) for name, values in scores.items()},
        **{f"{name}_deviation": statistics.pstdev(values) for name, values in scores.items()},
    }


def _neighbours(labels: torch.Tensor) -> int:
    """As many as in `climb run`, or as the smallest class has: more would ask other classes to vote."""
    return min(NEIGHBOURS, int(torch.bincount(labels).min()))
