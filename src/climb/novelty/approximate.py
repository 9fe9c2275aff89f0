"""Approximate nearest neighbours of many features, by usearch's graph of neighbours (HNSW)."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from climb.errors import InputError

CONNECTIVITY, EXPANSION = 16, 64
"""Links per row, and candidates per step, of the graph."""


def approximate_search(queries: Tensor, references: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosine distances and rows, (m, k) each, of about the nearest references (n, f) for each query (m, f)."""
    index = _library().Index(
        ndim=references.shape[1], metric="ip", dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION
    )
    index.add(np.arange(len(references)), references.numpy())
    found = index.search(queries.numpy(), k)
    rows = torch.from_numpy(found.keys.astype(np.int64)).view(len(queries), k)
    distances = torch.from_numpy(np.asarray(found.distances, dtype=np.float32)).view(len(queries), k)
    return distances.clamp(min=0), rows


def _library() -> Any:
    try:
        return importlib.import_module("usearch.index")
    except ImportError:
        raise InputError('more than 50,000 images need the extra: pip install "climb-ssl[ann]"') from None
