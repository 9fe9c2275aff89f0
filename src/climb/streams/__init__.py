"""Orders of training images: their tasks, which of them are held out, and when they arrive.

A scenario (`regular`, `irregular`, `blurred`, `iid`, or `make` by name) returns a `Manifest`: a small JSON file to
save, share and replay. A `Stream` applies it to the labels of a dataset. It yields mini-batches of indices for
training and one `Segment` a task for evaluation. This package reads no images and imports nothing of learning.
"""

from __future__ import annotations

from climb.streams.manifest import KINDS, Manifest
from climb.streams.scenarios import GENERATORS, blurred, iid, irregular, make, regular
from climb.streams.stream import Batch, Segment, Stream

__all__ = [
    "GENERATORS",
    "KINDS",
    "Batch",
    "Manifest",
    "Segment",
    "Stream",
    "blurred",
    "iid",
    "irregular",
    "make",
    "regular",
]
