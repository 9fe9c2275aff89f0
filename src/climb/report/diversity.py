"""How varied the memory is, in the measures of the paper's appendix."""

from __future__ import annotations

from typing import Any

from climb.report.table import table
from climb.runs.json_files import is_number

MEASURES = (
    ("vendi_score", "Vendi score", ".1f", "Effective number of different images."),
    ("uniformity", "Uniformity", ".3f", "Log of the mean Gaussian potential of all pairs; lower is more even."),
    ("intra_distance", "Intra distance", ".3f", "Cosine distance of an image to the mean of its cluster."),
    ("inter_intra_ratio", "Inter / intra", ".2f", "Distance between the clusters' means, over the intra distance."),
)


def diversity(result: dict[str, Any]) -> str:
    """A table of what the result says of the memory; nothing where it says nothing."""
    found = result.get("diversity")
    if not isinstance(found, dict):
        return ""
    columns = [found, found.get("features") or {}]
    rows = [
        [name, *(_said(column.get(key), form) for column in columns), meaning]
        for key, name, form, meaning in MEASURES
        if any(is_number(column.get(key)) for column in columns)
    ]
    heading = ["", "embeddings", "features", "meaning"]
    return f"<h3>How varied the memory is</h3>{table(rows, heading=heading, numbers=[1, 2])}" if rows else ""


def _said(value: Any, form: str) -> str:
    return format(value, form) if is_number(value) else ""
