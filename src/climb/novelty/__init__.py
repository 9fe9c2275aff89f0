"""What a memory knows about other images, by their features: how new they are, and which to label.

`ReferenceSet` scores images against stored ones, `RunningReference` does so while the stored ones change, and
`select_diverse` chooses images to label.
"""

from __future__ import annotations

from climb.novelty.neighbours import Neighbours, find_neighbours, unit_features
from climb.novelty.running import RunningReference
from climb.novelty.scores import ReferenceSet, Scores
from climb.novelty.selection import Selected, select_diverse

__all__ = [
    "Neighbours",
    "ReferenceSet",
    "RunningReference",
    "Scores",
    "Selected",
    "find_neighbours",
    "select_diverse",
    "unit_features",
]
