"""How it lived: what the memory held and did, the losses, and the health of the embeddings, over the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from climb.report.chart import Curve, line_chart
from climb.report.figure import figure, keys, quiet, section
from climb.report.record import Record
from climb.runs.json_files import is_number

BATCHES = "stream mini-batches"
STYLES = ("first", "second", "third", "fourth")


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Which values of the journal share a chart."""

    title: str
    curves: dict[str, str]
    """Key of the journal: name of the curve."""
    from_zero: bool = True


MEMORY = (
    Plot(title="Images in the memory", curves={"stm_images": "short-term", "ltm_images": "long-term"}),
    Plot(title="Centroids", curves={"stm_centroids": "short-term", "ltm_centroids": "long-term"}),
    Plot(
        title="Promotions, merges and prunes, cumulative",
        curves={"promoted": "promotions", "merged": "merges", "pruned": "prunes"},
    ),
    Plot(title="Novelty threshold (cosine distance)", curves={"threshold": "threshold"}),
    Plot(
        title="New centroids and evictions, cumulative",
        curves={"novel": "novel", "evicted": "evicted"},
    ),
)
FLAT_MEMORY = (Plot(title="Images stored", curves={"stored": "stored"}),)
TRAINING = (
    Plot(title="Loss of the objective", curves={"objective": "loss"}, from_zero=False),
    Plot(title="Alignment loss, before its weight", curves={"alignment": "alignment"}, from_zero=False),
    Plot(title="Effective rank of the embeddings", curves={"effective_rank": "rank"}),
    Plot(title="Spread of the embeddings", curves={"embedding_spread": "spread"}),
    Plot(title="Effective rank of the stored images' features", curves={"feature_rank": "rank"}),
    Plot(title="Spread of the stored images' features", curves={"feature_spread": "spread"}),
    Plot(title="Distance of two views, low is good", curves={"view_alignment": "distance"}),
    Plot(title="Uniformity, low is good", curves={"uniformity": "uniformity"}, from_zero=False),
    Plot(title="Drift of the stored images' features", curves={"drift": "drift"}),
    Plot(title="Share of images that are novel", curves={"novelty_rate": "novel"}),
    Plot(title="Turnover of centroids, as a share of all", curves={"centroid_turnover": "turnover"}),
    Plot(title="Images per second", curves={"images_per_second": "rate"}),
    Plot(title="Memory of the process, bytes", curves={"resident_bytes": "bytes"}),
)
TOTALS = (("promoted", "promotions"), ("merged", "merges"), ("evicted", "evictions"), ("pruned", "prunes"))
CHARTED = frozenset(key for plot in (*MEMORY, *FLAT_MEMORY, *TRAINING) for key in plot.curves)
NOT_VALUES = frozenset({"batch", "task", "time"})
TOLD_ELSEWHERE = frozenset({"images", "passed_over", "dropped", "memory_bytes", "occupancy"})


def lived(record: Record) -> str:
    """What the memory held and did, mini-batch by mini-batch."""
    two_stores = any(line.get("stm_images") is not None for line in record.training)
    stored = two_stores or any(line.get("stored") for line in record.training)
    charts = drawn(record, MEMORY if two_stores else FLAT_MEMORY) if stored else []
    if not charts:
        said = "This method stores no images." if record.training else "The journal has nothing on the memory."
        return section("lived", "How it lived", quiet(said))
    last = record.training[-1]
    totals = ", ".join(f"{last[key]:,.0f} {word}" for key, word in TOTALS if is_number(last.get(key)))
    said = "Dashed: one task gives way to the next, which the method is not told. " if record.boundaries else ""
    said += f"In all: {totals}." if two_stores and totals else ""
    return section("lived", "How it lived", *([quiet(said)] if said else []), _grid(charts))


def training(record: Record) -> str:
    """Losses and health as the journal sampled them, and whatever else it has numbers for."""
    others = [Plot(title=_words(key), curves={key: _words(key)}, from_zero=False) for key in _other_keys(record)]
    charts = drawn(record, [*TRAINING, *others])
    return section(
        "training", "Losses and health", _grid(charts) if charts else quiet("The journal has no losses yet.")
    )


def drawn(record: Record, plots: Sequence[Plot]) -> list[str]:
    """A figure for each plot that the journal has a value for."""
    figures = []
    for plot in plots:
        found = {key: name for key, name in plot.curves.items() if record.has(key)}
        if not found:
            continue
        curves = [
            Curve(name=name, points=record.points(key), style=style)
            for (key, name), style in zip(found.items(), STYLES, strict=False)
        ]
        chart = line_chart(
            curves, title=plot.title, x_label=BATCHES, from_zero=plot.from_zero, boundaries=record.boundaries
        )
        figures.append(figure(chart, f"{escape(plot.title)}{keys(curves)}"))
    return figures


def _other_keys(record: Record) -> list[str]:
    """Numbers in the journal that no chart is made for, in the order in which they first appear."""
    found = dict.fromkeys(key for line in record.training for key in line)
    known = CHARTED | NOT_VALUES | TOLD_ELSEWHERE
    return [key for key in found if key not in known and record.has(key)]


def _words(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _grid(charts: Sequence[str]) -> str:
    return f'<div class="grid-of">{"".join(charts)}</div>'
