"""Images to learn from: :func:`load` gives any dataset by name as uint8 tensors, decoded once, cached and checked.

Synthetic textures are made on the fly, CIFAR and Tiny-ImageNet are downloaded, ImageNet and folders of images
are read from where they lie. Each dataset is also a function of its own. Nothing here knows of learning.
"""

from __future__ import annotations

from climb.cache import cache_dir
from climb.datasets.check import check_dataset
from climb.datasets.cifar import cifar10, cifar100
from climb.datasets.dataset import Dataset, Split
from climb.datasets.folder import check_root, folder
from climb.datasets.imagenet100 import imagenet100
from climb.datasets.registry import fingerprint, load, names, own_image_size
from climb.datasets.synthetic import synthetic
from climb.datasets.tiny_imagenet import tiny_imagenet

__all__ = [
    "Dataset",
    "Split",
    "cache_dir",
    "check_dataset",
    "check_root",
    "cifar10",
    "cifar100",
    "fingerprint",
    "folder",
    "imagenet100",
    "load",
    "names",
    "own_image_size",
    "synthetic",
    "tiny_imagenet",
]
