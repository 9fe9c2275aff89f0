"""Orders of training images: when they arrive, which of them are held out, and on what features are evaluated.

A scenario returns a `Manifest`: a JSON file to save, share and replay. `SCENARIOS` has them by name, and `scenario`
registers your own. A `Stream` applies a manifest to the labels of a dataset. It yields mini-batches of indices for
training, and the `Group`s of images for evaluation. This package reads no images and imports nothing of learning.
"""

from __future__ import annotations

from climb.streams.contract import SCENARIOS, Images, list_images, make_manifest, scenario, takes_tasks
from climb.streams.listed import custom, domain, long_tailed, natural, recurring
from climb.streams.manifest import KINDS, ListedGroup, ListedSegment, Manifest
from climb.streams.scenarios import GENERATORS, blurred, iid, irregular, make, regular
from climb.streams.stream import Batch, Group, Shown, Stream

__all__ = [
    "GENERATORS",
    "KINDS",
    "SCENARIOS",
    "Batch",
    "Group",
    "Images",
    "ListedGroup",
    "ListedSegment",
    "Manifest",
    "Shown",
    "Stream",
    "blurred",
    "custom",
    "domain",
    "iid",
    "irregular",
    "list_images",
    "long_tailed",
    "make",
    "make_manifest",
    "natural",
    "recurring",
    "regular",
    "scenario",
    "takes_tasks",
]
