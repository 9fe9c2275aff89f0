"""What a memory of frozen features can tell: new domains, new classes, changes of the stream, images to label.

    python benchmarks/memory_at_work.py domains --features pacs.npy --seeds 10
    python benchmarks/memory_at_work.py classes --features pacs.npy --seeds 10
    python benchmarks/memory_at_work.py changes --features pacs.npy --seeds 10
    python benchmarks/memory_at_work.py calm --features cifar100.npy --seeds 10
    python benchmarks/memory_at_work.py select --features pacs.npy --seeds 10

``--features`` is a file of `climb.export.write_features` with paths DOMAIN/CLASS/NAME. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from climb.evaluation.simple_probes import ridge_accuracy
from climb.export import read_features
from climb.memory import CentroidMemory
from climb.novelty import ReferenceSet, find_neighbours, select_diverse, unit_features
from climb.novelty.changes import LAG, ChangeDetector
from climb.novelty.stored import StoredReference

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CAPACITY, BATCH, RENEWED, WARM = 2500, 10, 5, 100
LABELS, POOL = 49, 8000


class Labelled:
    """Features with the domain and the class of each image."""

    def __init__(self, file: Path) -> None:
        batches = list(read_features(file))
        self.features = torch.from_numpy(np.concatenate([batch.features for batch in batches]))
        parts = [Path(path).parts for batch in batches for path in batch.paths]
        self.domains = np.array([part[-3] if len(part) >= 3 else "" for part in parts])
        self.classes = np.array([part[-2] if len(part) >= 2 else "" for part in parts])


def area(known: Tensor, new: Tensor) -> float:
    """Area under the ROC curve: probability that a new image scores above a known one."""
    order = known.sort().values
    below, upto = torch.searchsorted(order, new), torch.searchsorted(order, new, right=True)
    return float((below + upto).double().mean() / (2 * len(known)))


def domains(data: Labelled, seed: int) -> dict[str, float]:
    """A memory of 80 % of the photos: AUC of each other domain against the other photos."""
    photos = np.random.default_rng(seed).permutation(np.flatnonzero(data.domains == "photo"))
    stored, held_out = photos[: len(photos) * 4 // 5], photos[len(photos) * 4 // 5 :]
    reference = ReferenceSet(data.features[stored])
    known = reference.score(data.features[held_out]).scores
    new = {each: reference.score(data.features[data.domains == each]).scores for each in DOMAINS[1:]}
    return {name: area(known, scores) for name, scores in new.items()}


def classes(data: Labelled, seed: int) -> dict[str, float]:
    """All classes but one: AUC of 100 images of that class against held-out images, mean over classes.

    "photo" stays within photos; "all" mixes the four domains, with 2,500 stored images and, as "all, unbounded", all.
    """
    random = np.random.default_rng(seed)
    areas: dict[str, list[float]] = {"photo": [], "all": [], "all, unbounded": []}
    for held_back in np.unique(data.classes):
        for name, chosen in (("photo", data.domains == "photo"), ("all", data.domains != "")):
            known = random.permutation(np.flatnonzero(chosen & (data.classes != held_back)))
            new = random.permutation(np.flatnonzero(chosen & (data.classes == held_back)))[:100]
            stored, test = known[: len(known) * 4 // 5], known[len(known) * 4 // 5 :]
            for kind, rows in ((name, stored[:CAPACITY]), ("all, unbounded", stored)):
                if kind == "all, unbounded" and name == "photo":
                    continue
                reference = ReferenceSet(data.features[rows])
                scores = [reference.score(data.features[part]).scores for part in (test, new)]
                areas[kind].append(area(*scores))
    return {name: float(np.mean(values)) for name, values in areas.items()}


def detected(features: Tensor, seed: int) -> list[int]:
    """Images at which a change is reported. The memory is CLIMB's, with features in place of embeddings."""
    memory = CentroidMemory(CAPACITY, (3, 8, 8), features.shape[1], seed=seed)
    reference, detector, reports = StoredReference(memory), ChangeDetector(seed), list[int]()
    # The images themselves play no part: all are blank.
    blank = torch.zeros(BATCH, 3, 8, 8, dtype=torch.uint8)

    for start in range(0, len(features), BATCH):
        batch, now = features[start : start + BATCH], start // BATCH
        if len(reference) >= WARM:
            scores = reference.score(batch).scores.tolist()
            earlier = [math.nan] * len(batch)
            if reference.count(before=start - LAG) >= WARM:
                earlier = reference.score(batch, before=start - LAG).scores.tolist()
            pairs = enumerate(zip(scores, earlier, strict=True))
            reports += [start + row for row, pair in pairs if detector.update(*pair)]
        memory.insert(blank[: len(batch)], batch)
        due = reference.due(now, renewals=RENEWED)
        reference.put(due, features[due], now)
    return reports


def changes(data: Labelled, seed: int) -> dict[str, Any]:
    """The domains one after another: images from each change to its report, and the number of other reports."""
    random = np.random.default_rng(seed)
    parts = [random.permutation(np.flatnonzero(data.domains == each)) for each in DOMAINS]
    reports = detected(data.features[np.concatenate(parts)], seed)
    starts = np.cumsum([len(part) for part in parts])[:-1].tolist()
    delays = [next((place - start for place in reports if 0 <= place - start < 500), None) for start in starts]
    return {"delays": delays, "others": len(reports) - sum(delay is not None for delay in delays)}


def calm(data: Labelled, seed: int) -> dict[str, Any]:
    """20,000 images in random order: every report is a false alarm."""
    order = np.random.default_rng(seed).permutation(len(data.features))[:20_000]
    return {"false_alarms": len(detected(data.features[order], seed))}


def select(data: Labelled, seed: int) -> dict[str, float]:
    """Ridge accuracy on the other images after 49 labels, chosen in four ways from 8,000 images."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.features), generator=generator)
    pool, test = order[:POOL], order[POOL:]
    labels = torch.from_numpy(np.unique(data.classes, return_inverse=True)[1].astype(np.int64))
    features = data.features[pool]
    units = unit_features(features)
    typical = find_neighbours(units, units, 20, themselves=True).distances.mean(dim=1)
    chosen: dict[str, Sequence[int]] = {
        "random": torch.randperm(POOL, generator=generator)[:LABELS].tolist(),
        "k-center": _far_apart(units, LABELS, generator),
        "typical": typical.argsort()[:LABELS].tolist(),
        "climb": select_diverse(features, LABELS, seed=seed).rows,
    }
    return {
        name: ridge_accuracy(features[rows], labels[pool][rows], data.features[test], labels[test])
        for name, rows in chosen.items()
    }


def _far_apart(units: Tensor, count: int, generator: torch.Generator) -> list[int]:
    rows = [int(torch.randint(len(units), (1,), generator=generator))]
    distances = 1 - units @ units[rows[0]]
    while len(rows) < count:
        rows.append(int(distances.argmax()))
        distances = torch.minimum(distances, 1 - units @ units[rows[-1]])
    return rows


EXPERIMENTS: dict[str, Callable[[Labelled, int], dict[str, Any]]] = {
    "domains": domains,
    "classes": classes,
    "changes": changes,
    "calm": calm,
    "select": select,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("experiment", choices=EXPERIMENTS)
    arguments.add_argument("--features", type=Path, required=True)
    arguments.add_argument("--seeds", type=int, default=10)
    given = arguments.parse_args()
    data = Labelled(given.features)
    runs = [EXPERIMENTS[given.experiment](data, seed) for seed in range(given.seeds)]
    numbers = [name for name, value in runs[0].items() if isinstance(value, float)]
    means = {name: round(float(np.mean([run[name] for run in runs])), 4) for name in numbers}
    print(json.dumps({"experiment": given.experiment, "mean": means, "seeds": runs}, indent=1))


if __name__ == "__main__":
    main()
