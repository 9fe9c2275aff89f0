r"""What centring and whitening do to similarities: ties, and whether nearest neighbours share a class.

    python benchmarks/similarity.py --images pacs/sketch --model runs/mine
    python benchmarks/similarity.py --images pacs/sketch --backbone efficientnet-lite0 --weights pretrained \
        --image-size 128

IMAGES has one sub-folder per class; without it, synthetic textures are compared. Every image is compared with all
others. A tie is an image whose nearest other image has a similarity that rounds to 1.0000.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from climb.datasets import synthetic
from climb.evaluation.features import batch_size, extract_features
from climb.evaluation.similarity import PANEL, centre_of, comparable
from climb.evaluation.start import start_network
from climb.export import FromPixels, images_of, open_model
from climb.nets import IMAGENET_MEAN, IMAGENET_STD, weights_of
from climb.settings.config import LearnerConfig

TIE = 0.99995
SHRINKAGE = 1.0  # of the covariance's eigenvalues towards their mean


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", help="folder with one sub-folder per class")
    arguments.add_argument("--model", help="folder of climb run or climb learn; otherwise a network at its start:")
    arguments.add_argument("--backbone", default="micro")
    arguments.add_argument("--weights", default="none")
    arguments.add_argument("--image-size", type=int, default=32)
    arguments.add_argument(
        "--statistics", type=int, nargs="+", default=[PANEL, 256, 2000], help="images for statistics"
    )
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    network, side = encoder(given)
    images, labels = labelled(given.images, side)
    features = extract_features(network, images, lambda batch: batch, batch_size=batch_size(side), device="cpu")
    rows = {name: measure(vectors, labels) for name, vectors in variants(features, given.statistics).items()}
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{len(images):,} images, {features.shape[1]} features")
    for name, row in rows.items():
        print(f"{name:16}", "  ".join(f"{key} {value:.4g}" for key, value in row.items()))


def encoder(given: argparse.Namespace) -> tuple[FromPixels, int]:
    """The encoder, from uint8 pixels, and its image size."""
    if given.model is not None:
        model = open_model(given.model, device="cpu")
        return model.network, model.saved.image_size
    config = LearnerConfig(backbone=given.backbone, weights=given.weights, image_size=given.image_size)
    start = weights_of(config)
    mean, std = (None, None) if start is None else (start.mean, start.std)
    network = start_network(config, seed=0).encoder
    return FromPixels(network, mean=mean or IMAGENET_MEAN, std=std or IMAGENET_STD).eval(), given.image_size


def labelled(images: str | None, side: int) -> tuple[Tensor, Tensor]:
    """All images of a folder, labelled by the folder that each is in."""
    if images is None:
        data = synthetic(image_size=side, classes=3, train_per_class=20, test_per_class=1).train
        return data.images, data.labels
    pictures = list(images_of(images, side))
    classes = sorted({Path(picture.path).parent.name for picture in pictures})
    labels = torch.tensor([classes.index(Path(picture.path).parent.name) for picture in pictures])
    return torch.stack([picture.pixels for picture in pictures]), labels


def variants(features: Tensor, sizes: list[int]) -> dict[str, Tensor]:
    """Unit vectors of the features: as they are, centred and whitened by statistics of so many of the images."""
    shuffled = features[torch.randperm(len(features), generator=torch.Generator().manual_seed(0))]
    found = {"raw": comparable(features, None)}
    for size in sizes:
        found[f"centred {size}"] = comparable(features, centre_of(shuffled[:size]))
        if size > PANEL:  # fewer say little of a covariance
            found[f"whitened {size}"] = whitened(features, shuffled[:size])
    return found


def whitened(features: Tensor, reference: Tensor) -> Tensor:
    centred = reference.double() - reference.double().mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(reference))
    scale = (values.clamp(min=0) + SHRINKAGE * values.mean()).rsqrt()
    return F.normalize(((features.double() - reference.double().mean(dim=0)) @ vectors * scale).float())


def measure(vectors: Tensor, labels: Tensor) -> dict[str, Any]:
    cosines = vectors @ vectors.T
    cosines.fill_diagonal_(-2)
    nearest = cosines.topk(min(10, len(vectors) - 1))
    same = labels[nearest.indices] == labels.unsqueeze(1)
    return {
        "ties %": 100 * float((nearest.values[:, 0] >= TIE).double().mean()),
        "nearest": float(nearest.values[:, 0].median()),
        "median pair": float(cosines[cosines > -2][::7].median()),
        "class of nearest %": 100 * float(same[:, 0].double().mean()),
        "of ten nearest %": 100 * float(same.double().mean()),
    }


if __name__ == "__main__":
    main()
