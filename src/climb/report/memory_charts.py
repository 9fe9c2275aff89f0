"""Charts over the stream: the life of the memory, and losses and health of the training.

The tables say which values of the journal are drawn together. This module draws them as SVG for the page,
`climb.report.plots` draws them as PNG for run folders and for figures of several runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from climb.report.chart import Curve, styled_curves
from climb.report.markup import chart_figure, grid, remark, section
from climb.report.record import Record


@dataclass(frozen=True)
class Chart:
    """Values of the journal that are drawn together."""

    title: str
    curves: dict[str, str]
    """Key in the journal to name of the curve."""
    from_zero: bool = True


EVENTS = {"promoted": "promotions", "merged": "merges", "pruned": "prunes"}
MEMORY_CHARTS = (
    Chart("Images in the memory", {"stm_images": "short-term", "ltm_images": "long-term"}),
    Chart("Centroids", {"stm_centroids": "short-term", "ltm_centroids": "long-term"}),
    Chart("Promotions, merges and prunes, cumulative", EVENTS),
    Chart("Novelty threshold (cosine distance)", {"threshold": "threshold"}),
    Chart("New centroids and evictions, cumulative", {"novel": "new", "evicted": "evictions"}),
)
"""For a memory with centroids."""
FLAT_CHARTS = (Chart("Images stored", {"stored": "stored"}),)
"""For any other memory."""
TRAINING_CHARTS = (
    Chart("Loss of the objective", {"objective": "loss"}, from_zero=False),
    Chart("Alignment loss, before its weight", {"alignment": "alignment"}, from_zero=False),
    Chart("Effective rank of the embeddings", {"effective_rank": "rank"}),
    Chart("Spread of the embeddings", {"embedding_spread": "spread"}),
    Chart("Effective rank of the stored images' features", {"feature_rank": "rank"}),
    Chart("Spread of the stored images' features", {"feature_spread": "spread"}),
    Chart("Distance of two views, lower is better", {"view_alignment": "distance"}),
    Chart("Uniformity, lower is better", {"uniformity": "uniformity"}, from_zero=False),
    Chart("Drift of the stored images' features", {"drift": "drift"}),
    Chart("Share of novel images", {"novelty_rate": "novel"}),
    Chart("Turnover of centroids, as a share of all", {"centroid_turnover": "turnover"}),
    Chart("Images per second", {"images_per_second": "rate"}),
    Chart("Memory of the process, in bytes", {"resident_bytes": "bytes"}),
)
PAPER_CHARTS = (
    Chart("images in the short-term memory", {"stm_images": ""}),
    Chart("images in the long-term memory", {"ltm_images": ""}),
    Chart("centroids", {"stm_centroids": "short-term", "ltm_centroids": "long-term"}),
    Chart("promotions, cumulative", {"promoted": ""}),
    Chart("merges and prunes, cumulative", {"merged": "merges", "pruned": "prunes"}),
    Chart("novelty threshold (cosine distance)", {"threshold": ""}),
)
"""The life of the centroid memory, as in the appendix of the paper."""
CHARTED = {key for chart in (*MEMORY_CHARTS, *FLAT_CHARTS, *TRAINING_CHARTS) for key in chart.curves}
NOT_VALUES = frozenset({"batch", "task", "time"})
SHOWN_ELSEWHERE = {"images", "passed_over", "dropped", "memory_bytes", "occupancy"}
TOTALS = EVENTS | {"evicted": "evictions"}


def memory_charts(record: Record) -> str:
    """The section on the life of the memory."""
    has_centroids = record.latest("stm_images") is not None
    stores_images = has_centroids or any(line.get("stored") for line in record.training)
    figures = _figures(record, MEMORY_CHARTS if has_centroids else FLAT_CHARTS) if stores_images else []
    if not any(figures):
        text = "This method stores no images." if record.training else "The journal has no memory values yet."
        return section("memory-charts", "Memory over time", remark(text))
    text = "Dashed lines separate tasks; the method does not see them." if record.boundaries else ""
    totals = [f"{value:,.0f} {word}" for key, word in TOTALS.items() if (value := record.latest(key)) is not None]
    if has_centroids and totals:
        text += f" In total: {', '.join(totals)}."
    return section("memory-charts", "Memory over time", remark(text.strip()), grid(figures))


def training_charts(record: Record) -> str:
    """The section on losses and health, with a chart for every other number in the journal."""
    known = CHARTED | NOT_VALUES | SHOWN_ELSEWHERE
    others = {key: key.replace("_", " ").capitalize() for line in record.training for key in line if key not in known}
    charts = [Chart(name, {key: name}, from_zero=False) for key, name in others.items()]
    figures = _figures(record, [*TRAINING_CHARTS, *charts])
    return section("training", "Training", grid(figures, otherwise="The journal has no losses yet."))


def _figures(record: Record, charts: Sequence[Chart]) -> list[str]:
    """A figure for each chart, empty for a chart without a value in the journal."""
    drawn = [styled_curves((name, record.points(key)) for key, name in chart.curves.items()) for chart in charts]
    return [
        stream_figure(chart, curves, title=chart.title, boundaries=record.boundaries)
        for chart, curves in zip(charts, drawn, strict=True)
    ]


def stream_figure(chart: Chart, curves: Sequence[Curve], **options: Any) -> str:
    """A figure of curves over the stream; nothing without curves. The options are those of `chart_figure`."""
    return chart_figure(
        curves, caption=escape(chart.title), x_label="stream mini-batches", from_zero=chart.from_zero, **options
    )
