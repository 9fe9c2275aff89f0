"""Probe an encoder on a folder of labelled images: linear, nearest-neighbour and ridge probe."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import torch

from climb.arguments import checked
from climb.datasets import fingerprint
from climb.datasets.decode_cache import Listing
from climb.datasets.folder import split_folder
from climb.errors import InputError
from climb.evaluation import fit_linear_probe, knn_accuracy, ridge_accuracy
from climb.export.embed import embed, images_of
from climb.export.model_loader import OpenModel
from climb.runs import Result, RunFolder
from climb.seeds import derive, numpy_generator
from climb.session.evaluation import NEIGHBOURS
from climb.session.experiments import manifest_of
from climb.settings.config import RunConfig
from climb.streams import Images, Stream, regular

DRAWS = 10
"""Draws of few-shot training images; accuracies are averaged over them."""
Rows = tuple[torch.Tensor, torch.Tensor]
"""Features float32 (n, f) and labels int64 (n,) on the device of the model."""


@checked()
def probe(
    model: OpenModel, images: str | Path, *, shots: int | None = None, draws: int = DRAWS, seed: int | None = None
) -> Result:
    """Accuracies in percent of three probes of a frozen encoder on a folder with one sub-folder per class.

    If the folder has ``train`` and ``test`` (or ``val``) folders, they are the two parts. Otherwise 20 % of each class,
    drawn with ``seed``, are the test part. The probes are those of `climb run`, validation split included. The number
    of neighbours is 50, or that of the images of the smallest class.

    If the model is a run on these images, the probes keep the run's test part and scenario, whatever the seed, so that
    no test image was trained on. ``seed`` is then the run's by default; otherwise it is 0.

    With ``shots``, each probe is trained on that many images per class, without a validation split. The result is the
    mean and the standard deviation over ``draws`` draws. Every class must have that many images.
    """
    for name, value in (("shots", shots), ("draws", draws)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    run = _run_of(model, images)
    seed = seed if seed is not None else run.seed if run else 0
    classes, *listings = split_folder(images, seed=run.seed if run else seed)
    if len(classes) < 2:
        layouts = "FOLDER/<class>/*, or FOLDER/train/<class>/* and FOLDER/test/<class>/*"
        raise InputError(f"{images} has 1 class; a probe needs at least two, each in a folder of its own: {layouts}")
    _check_shots(shots, classes, torch.tensor([label for _, label in listings[0]]))  # before any work
    train, test = (_embedded(model, listing) for listing in listings)
    for name, (_, labels) in (("training", train), ("test", test)):
        missing = set(range(len(classes))) - set(labels.tolist())
        if missing:
            raise InputError(f"class '{classes[min(missing)]}' has no readable {name} image")
    _check_shots(shots, classes, train[1])  # now of the readable files
    # Accuracy of always predicting the most frequent class: a baseline.
    commonest = int(torch.bincount(train[1]).argmax())
    result = Result(
        classes=len(classes),
        train_images=len(train[1]),
        test_images=len(test[1]),
        seed=seed,
        majority_accuracy=100.0 * int((test[1] == commonest).sum()) / len(test[1]),
    )
    if shots is None:  # as in `climb run`, after its last task
        known = Images(train_labels=train[1].cpu(), test_labels=test[1].cpu(), classes=len(classes))
        manifest = manifest_of(run, known) if run else regular(len(classes), 1, seed=seed)
        groups = Stream(manifest, known.train_labels, known.test_labels).groups
        rows = _take(train, torch.cat([group.train for group in groups]))
        held_out = _take(train, torch.cat([group.validation for group in groups]))
        scores = [_accuracies(rows, held_out, test, seed=seed)]
    else:
        result |= {"shots": shots, "draws": draws}
        scores = []
        for draw in range(draws):
            few = _take(train, _few_rows(train[1], shots, seed, draw))
            none = _take(train, torch.zeros(0, dtype=torch.int64))
            scores.append(_accuracies(few, none, test, seed=derive(seed, f"shots/{draw}")))
    result |= {f"{name}_accuracy": statistics.fmean(score[name] for score in scores) for name in scores[0]}
    if shots is not None:
        result |= {f"{name}_deviation": statistics.pstdev(score[name] for score in scores) for name in scores[0]}
    return result


def _check_shots(shots: int | None, classes: list[str], labels: torch.Tensor) -> None:
    counts = torch.bincount(labels, minlength=len(classes))
    fewest, has = int(counts.argmin()), int(counts.min())
    if shots is not None and has < shots:
        scarce = f"class '{classes[fewest]}' has {has} training image{'' if has == 1 else 's'}"
        raise InputError(f"shots is {shots}, but {scarce}; give --shots {has} or fewer, or more images of it")


def _embedded(model: OpenModel, listing: Listing) -> Rows:
    """The readable files."""
    label_of = {str(file): label for file, label in listing}
    batches = list(embed(model, images_of((file for file, _ in listing), model.saved.image_size, model.pixel_range)))
    labels = torch.tensor([label_of[path] for batch in batches for path in batch.paths], dtype=torch.int64)
    features = np.concatenate([batch.features for batch in batches]) if batches else np.zeros((0, 1), np.float32)
    return torch.from_numpy(features).to(model.device), labels.to(model.device)


def _take(rows: Rows, indices: torch.Tensor) -> Rows:
    features, labels = rows
    return features[indices.to(features.device)], labels[indices.to(labels.device)]


def _few_rows(labels: torch.Tensor, shots: int, seed: int, draw: int) -> torch.Tensor:
    """Indices of ``shots`` images per class."""
    generator, array = numpy_generator(seed, f"shots/{draw}"), labels.cpu().numpy()
    members = [generator.permutation(np.flatnonzero(array == label))[:shots] for label in range(array.max() + 1)]
    return torch.from_numpy(np.concatenate(members))


def _accuracies(train: Rows, validation: Rows, test: Rows, *, seed: int) -> dict[str, float]:
    sizes = torch.bincount(train[1])
    return {
        "linear": fit_linear_probe(*train, *validation, classes=len(sizes), seed=seed).accuracy(*test),
        # At most the size of the smallest class: further votes would be from other classes.
        "knn": knn_accuracy(*train, *test, k=min(NEIGHBOURS, int(sizes.min()))),
        "ridge": ridge_accuracy(*train, *test),
    }


def _run_of(model: OpenModel, images: str | Path) -> RunConfig | None:
    """The run that trained the model, if these are the images of its folder; else None."""
    folder = RunFolder(model.file.parent)
    run = folder.stored_config()
    own = run is not None and run.data.dataset == "folder"
    return run if own and folder.data_fingerprint() == fingerprint("folder", root=images) else None
