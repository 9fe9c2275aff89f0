"""In which order training images arrive, which are held out, and what belongs to which task.

A scenario (`regular`, `irregular`, `blurred`, `iid`, or `make` by name) writes a `Manifest`: a small JSON
file to save, share and replay. A `Stream` applies it to the labels of a dataset and gives mini-batches of
indices for training and one `Segment` a task for evaluation. Nothing here reads an image or
knows of learning.
"""

from __future__ import annotations

from climb.streams.batch import Batch
from climb.streams.manifest import KINDS, Manifest
from climb.streams.scenarios import GENERATORS, blurred, iid, irregular, make, regular
from climb.streams.segment import Segment
from climb.streams.stream import Stream

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
