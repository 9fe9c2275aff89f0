"""Probe an encoder on a folder of labelled images, beside its start, thumbnails and the most common class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from climb.arguments import checked
from climb.datasets import fingerprint
from climb.datasets.folder import OWN_IMAGES
from climb.errors import ClimbError, InputError
from climb.evaluation.features import batch_size
from climb.evaluation.measured import Measured, probe_to_read, size_warning
from climb.evaluation.three_probes import PROBES, Rows, three_probes
from climb.export.embed import images_of
from climb.export.model_loader import OpenModel
from climb.export.start import Start, start_of, thumbnails
from climb.runs import Result, RunFolder
from climb.seeds import derive, numpy_generator
from climb.session.experiments import manifest_of
from climb.session.labelled_folder import LabelledFile, LabelledFolder, labelled_folder
from climb.settings.config import RunConfig
from climb.streams import Images, Manifest, Stream, regular

DRAWS = 10
"""Draws of few-shot training images; accuracies are averaged over them."""
Answers = dict[str, NDArray[np.float64]]
"""For each probe, float64 (draws, test images): 100 for a correct answer, else 0."""


@checked()
def probe(
    model: OpenModel,
    images: str | Path,
    *,
    shots: int | None = None,
    draws: int = DRAWS,
    domains: bool | None = None,
    seed: int | None = None,
) -> Result:
    """Accuracies in percent of three probes of a frozen encoder, of its start and of thumbnails, on labelled images.

    The folder has one sub-folder per class, or one per domain that has one per class. If it has ``train`` and ``test``
    (or ``val``) folders, they are the two parts. Otherwise 20 % of each class, in each domain, drawn with ``seed``, are
    the test part. If the model is a run on these images, the probes keep the run's test part and scenario, whatever the
    seed, so that no test image was trained on. ``seed`` is then the run's by default; otherwise it is 0.

    Args:
        model: its encoder is probed. Its start is rebuilt from the configuration that it stores.
        images: the folder.
        shots: train on this many images per class and, in a folder with domains, per domain. Each must have them.
        draws: draws of these images; the result is their mean.
        domains: whether the first level of the folder are domains. None: if all hold the same classes.
        seed: of the split, the draws and the probes.

    Returns:
        For each probe NAME (linear, knn, ridge), ``NAME_accuracy`` and ``NAME_error``, the standard error over test
        images or, with ``shots``, over draws. ``start`` and ``thumbnails`` hold the same of these, ``gain`` the paired
        differences between encoder and start. ``read`` names the probe to read, ``warnings`` lists what to beware of.
    """
    for name, value in (("shots", shots), ("draws", draws)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    run = _run_of(model, images)
    seed = seed if seed is not None else run.seed if run else 0
    own = domains if run is None or domains is not None else run.data.dataset == "domains"  # as the run has split them
    folder = labelled_folder(images, seed=run.seed if run else seed, domains=own)
    _check_shots(shots, folder, folder.train)  # before any work
    start = start_of(model)
    encoders: dict[str, Callable[[Tensor], Tensor]] = {"encoder": model.features, "thumbnails": thumbnails}
    if isinstance(start, Start):
        encoders["start"] = start.features
    train, test = (_encoded(model, encoders, files) for files in (folder.train, folder.test))
    for part, name in ((train, "training"), (test, "test")):
        missing = set(range(len(folder.classes))) - {file.label for file in part.files}
        if missing:
            raise InputError(f"class '{folder.classes[min(missing)]}' has no readable {name} image")
    _check_shots(shots, folder, train.files)  # now of the readable files
    known = Images(train_labels=train.labels, test_labels=test.labels, classes=len(folder.classes))
    same = run is not None and not folder.domains  # streams of domains list images by their place in the folder
    manifest = manifest_of(run, known) if run and same else regular(len(folder.classes), 1, seed=seed)
    answers = {
        name: _whole(train.rows(name), test.rows(name), manifest, seed=seed)
        if shots is None
        else _few(train, test, name, shots=shots, draws=draws, seed=seed)
        for name in encoders
    }
    axis = 0 if shots is None else 1  # errors are over test images, or over draws
    measured = {
        name: {key: Measured(values=rows.mean(axis=axis)) for key, rows in own.items()} for name, own in answers.items()
    }
    majority = Measured.of_answers(test.labels == int(torch.bincount(train.labels).argmax()))
    result = Result(
        classes=len(folder.classes),
        domains=len(folder.domains),
        train_images=len(train.files),
        test_images=len(test.files),
        seed=seed,
        **({} if shots is None else {"shots": shots, "draws": draws}),
        majority_accuracy=majority.accuracy,
        majority_error=majority.standard_error,
        **_numbers(measured["encoder"]),
        thumbnails=_numbers(measured["thumbnails"]),
        start={"name": start.name, **_numbers(measured["start"])} if isinstance(start, Start) else {"missing": start},
    )
    used = len(train.files) if shots is None else shots * len(folder.classes) * max(1, len(folder.domains))
    read, why = probe_to_read(used)
    result.update(gain={}, read=read, why=why, warnings=[])
    if "start" in measured:
        result["gain"] = _numbers({key: measured["encoder"][key] - measured["start"][key] for key in PROBES})
        by_image = (answers["encoder"][read] - answers["start"][read]).mean(axis=0)
        warning = size_warning(Measured(values=by_image), len(test.files))
        result["warnings"] = [warning] if warning else []
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """The readable files of the training or of the test part, with their features by each encoder."""

    files: list[LabelledFile]
    features: Mapping[str, Tensor]
    labels: Tensor

    def rows(self, name: str, indices: Tensor | None = None) -> Rows:
        """Features and labels by one encoder; of all files, or of some."""
        features = self.features[name]
        if indices is None:
            return features, self.labels
        return features[indices.to(features.device)], self.labels[indices.to(features.device)]


def _encoded(model: OpenModel, encoders: Mapping[str, Callable[[Tensor], Tensor]], files: list[LabelledFile]) -> _Part:
    """Decode each file once, and encode it by all encoders."""
    by_path = {str(file.path): file for file in files}
    pictures = images_of((file.path for file in files), model.saved.image_size, model.pixel_range)
    read: list[LabelledFile] = []
    features: dict[str, list[Tensor]] = {name: [torch.zeros(0, 1)] for name in encoders}
    while batch := list(islice(pictures, batch_size(model.saved.image_size))):
        read += [by_path[picture.path] for picture in batch]
        pixels = torch.stack([picture.pixels for picture in batch])
        for name, encode in encoders.items():
            rows = encode(pixels)
            if not bool(torch.isfinite(rows).all()):
                raise ClimbError(f"the features of the {name} of {model.file} are not finite: its training diverged")
            features[name].append(rows)
    return _Part(
        files=read,
        features={name: torch.cat(rows[1:] or rows).to(model.device) for name, rows in features.items()},
        labels=torch.tensor([file.label for file in read], dtype=torch.int64, device=model.device),
    )


def _whole(train: Rows, test: Rows, manifest: Manifest, *, seed: int) -> Answers:
    """The probes trained on all training images, with the validation split of `climb run`."""
    groups = Stream(manifest, train[1].cpu(), test[1].cpu()).groups
    rows, held_out = (torch.cat([getattr(each, part) for each in groups]) for part in ("train", "validation"))
    measured = three_probes(train, test, split=(rows, held_out), classes=int(train[1].max()) + 1, seed=seed)
    return {key: each.values[np.newaxis] for key, each in measured.items()}


def _few(train: _Part, test: _Part, name: str, *, shots: int, draws: int, seed: int) -> Answers:
    """The probes trained on a few images. All encoders get the same draws."""
    answers: dict[str, list[NDArray[np.float64]]] = {key: [] for key in PROBES}
    classes = int(train.labels.max()) + 1
    for draw in range(draws):
        few = train.rows(name, _few_rows(train.files, shots, seed, draw))
        own_seed = derive(seed, f"shots/{draw}")
        for key, measured in three_probes(few, test.rows(name), classes=classes, seed=own_seed).items():
            answers[key].append(measured.values)
    return {key: np.stack(rows) for key, rows in answers.items()}


def _few_rows(files: list[LabelledFile], shots: int, seed: int, draw: int) -> Tensor:
    """Indices of ``shots`` files per class and domain."""
    generator = numpy_generator(seed, f"shots/{draw}")
    cells = np.array([(file.label, file.domain) for file in files])
    members = [
        generator.permutation(np.flatnonzero((cells == cell).all(axis=1)))[:shots] for cell in np.unique(cells, axis=0)
    ]
    return torch.from_numpy(np.concatenate(members))


def _check_shots(shots: int | None, folder: LabelledFolder, files: list[LabelledFile]) -> None:
    """Refuse more shots than the smallest class has, in the domain where it has fewest."""
    if shots is None:
        return
    places = max(1, len(folder.domains))
    counts = np.zeros((places, len(folder.classes)), dtype=np.int64)
    for file in files:
        counts[file.domain, file.label] += 1
    domain, label = np.unravel_index(counts.argmin(), counts.shape)
    has = int(counts.min())
    if has < shots:
        where = f" in domain '{folder.domains[domain]}'" if folder.domains else ""
        scarce = f"class '{folder.classes[label]}'{where} has {has} training image{'' if has == 1 else 's'}"
        raise InputError(f"shots is {shots}, but {scarce}; give --shots {has} or fewer, or more images of it")


def _numbers(measured: Mapping[str, Measured]) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for name, each in measured.items():
        numbers |= {f"{name}_accuracy": each.accuracy, f"{name}_error": each.standard_error}
    return numbers


def _run_of(model: OpenModel, images: str | Path) -> RunConfig | None:
    """The run that trained the model, if these are the images of its folder; else None."""
    folder = RunFolder(model.file.parent)
    run = folder.stored_config()
    if run is None or run.data.dataset not in OWN_IMAGES:
        return None
    with suppress(InputError):  # the images have no domains, those of the run have
        return run if folder.data_fingerprint() == fingerprint(run.data.dataset, root=images) else None
    return None
