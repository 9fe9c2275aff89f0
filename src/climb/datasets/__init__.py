"""Labelled datasets as uint8 tensors: :func:`load` gives any of them by name, decoded once, cached and checked.

Synthetic textures are drawn on the fly, CIFAR and Tiny-ImageNet are downloaded, ImageNet and folders of images are
read in place. Each dataset is also a function of its own. This package imports nothing of learning.
"""

from __future__ import annotations

from climb.datasets.cifar import cifar10, cifar100
from climb.datasets.dataset import Dataset, Split, check_dataset, fingerprint, load, names, own_image_size, register
from climb.datasets.folder import OWN_IMAGES, check_root, domains, folder, hold_out
from climb.datasets.imagenet100 import imagenet100
from climb.datasets.synthetic import synthetic
from climb.datasets.tiny_imagenet import tiny_imagenet
from climb.files import cache_dir

__all__ = [
    "OWN_IMAGES",
    "Dataset",
    "Split",
    "cache_dir",
    "check_dataset",
    "check_root",
    "cifar10",
    "cifar100",
    "domains",
    "fingerprint",
    "folder",
    "hold_out",
    "imagenet100",
    "load",
    "names",
    "own_image_size",
    "register",
    "synthetic",
    "tiny_imagenet",
]
