"""The map of the memory: its images, or its centroids, laid out so that what the network finds alike lies close."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from climb.report.figure import figure, quiet
from climb.report.principal import Array, principal_plane
from climb.report.sheets import data_uri, webp
from climb.runs.remembered import Remembered, TierName

WIDTH, HEIGHT = 1056, 600  # of the picture, about
ROOM = 2.5  # cells for every point, so that clusters and the gaps between them can be seen
FEWEST, MOST = 12, 48  # cells from left to right
REACH = 4  # cells that a point may be moved by when its own is taken
QUALITY = 60
TIER_NAMES: dict[TierName, str] = {"long-term": "long-term", "short-term": "short-term"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is drawn at one place."""

    image: torch.Tensor
    """uint8 (3, H, W)."""
    tier: TierName
    text: str


def memory_map(memory: Remembered) -> str:
    """A figure; a remark where there is nothing to lay out."""
    points, places, what = _points(memory)
    if places is None or len(points) < 3:
        return quiet("There is no map: this memory stores images without embeddings, and has no centroids.")
    plane, share = principal_plane(places)
    columns, rows, cell = _cells(len(points))
    spots = settled(plane, columns, rows)
    drawn = [(point, spot) for point, spot in zip(points, spots, strict=True) if spot is not None]
    picture = _picture(drawn, columns, rows, cell)
    said = (
        f"<b>Map of the memory.</b> Each picture is {escape(what)}, in the two directions that differ most "
        f"({share:.0%} of the variance). Neighbours look alike to the network."
    )
    if len(drawn) < len(points):
        said += f" Where it is crowded only some are shown: {len(drawn):,} of {len(points):,}."
    tiers = {point.tier for point, _ in drawn}
    legend = "".join(
        f'<li><span class="swatch {tier}"></span>{name}</li>' for tier, name in TIER_NAMES.items() if tier in tiers
    )
    width, height = columns * cell, rows * cell
    svg = (
        f'<svg class="map" viewBox="0 0 {width} {height}" role="img" aria-label="Map of the memory">'
        f'<image href="{data_uri(webp(picture, QUALITY))}" width="{width}" height="{height}"/>'
        f"{''.join(_frame(point, spot, cell) for point, spot in drawn)}</svg>"
    )
    return figure(svg, f'{said}<ul class="keys">{legend}</ul>' if legend else said, kind="panel wide-map")


def settled(plane: Array, columns: int, rows: int) -> list[tuple[int, int] | None]:
    """A cell (column, row) for every point, no cell twice: its own, else the nearest free one close by, else none.

    >>> settled(np.array([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]), 10, 10)
    [(0, 9), (0, 8), (9, 0)]
    """
    low, high = np.percentile(plane, 1, axis=0), np.percentile(plane, 99, axis=0)  # a few strays do not set the scale
    scaled = ((plane - low) / np.where(high > low, high - low, 1.0)).clip(0.0, 1.0)
    around = sorted(
        ((x, y) for x in range(-REACH, REACH + 1) for y in range(-REACH, REACH + 1)),
        key=lambda step: (step[0] ** 2 + step[1] ** 2, step),
    )
    taken: set[tuple[int, int]] = set()
    spots: list[tuple[int, int] | None] = []
    for right, up in scaled.tolist():
        column, row = round(right * (columns - 1)), round((1 - up) * (rows - 1))
        free = (
            (column + x, row + y)
            for x, y in around
            if 0 <= column + x < columns and 0 <= row + y < rows and (column + x, row + y) not in taken
        )
        spot = next(free, None)
        if spot is not None:
            taken.add(spot)
        spots.append(spot)
    return spots


def _points(memory: Remembered) -> tuple[list[Point], Array | None, str]:
    """Images by their embeddings where these are known, else centroids by their values."""
    groups = memory.groups
    if all(group.embeddings is not None for group in groups):
        points = [
            Point(image=image, tier=group.tier, text=_text(group.centroid, number))
            for group in groups
            for image, number in zip(group.images, group.numbers, strict=True)
        ]
        return points, _directions([group.embeddings for group in groups]), "a stored image"
    if all(group.value is not None for group in groups):
        points = [
            Point(image=group.images[0], tier=group.tier, text=_text(group.centroid, group.numbers[0]))
            for group in groups
        ]
        return points, _directions([group.value for group in groups]), "the first image of a centroid"
    return [], None, ""


def _directions(parts: Sequence[torch.Tensor | None]) -> Array:
    joined = torch.cat([part.float().reshape(-1, part.shape[-1]) for part in parts if part is not None])
    return F.normalize(joined, dim=1).cpu().numpy().astype(np.float64)  # by direction, as the memory compares


def _text(centroid: int | None, number: int) -> str:
    return f"image {number:,} of the stream" + ("" if centroid is None else f", centroid #{centroid:,}")


def _cells(points: int) -> tuple[int, int, int]:
    """Columns, rows, and the side of a cell."""
    columns = max(FEWEST, min(MOST, round(math.sqrt(points * ROOM * WIDTH / HEIGHT))))
    cell = WIDTH // columns
    return columns, HEIGHT // cell, cell


def _picture(drawn: Sequence[tuple[Point, tuple[int, int]]], columns: int, rows: int, cell: int) -> Image.Image:
    canvas: NDArray[np.uint8] = np.zeros((rows * cell, columns * cell, 4), dtype=np.uint8)
    if drawn:
        images = torch.stack([point.image for point, _ in drawn]).float()
        sized = F.interpolate(images, size=(cell - 2, cell - 2), mode="bilinear", antialias=True, align_corners=False)
        pixels = sized.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        for tile, (_, (column, row)) in zip(pixels, drawn, strict=True):
            top, left = row * cell + 1, column * cell + 1
            canvas[top : top + cell - 2, left : left + cell - 2, :3] = tile
            canvas[top : top + cell - 2, left : left + cell - 2, 3] = 255
    return Image.fromarray(canvas)


def _frame(point: Point, spot: tuple[int, int], cell: int) -> str:
    x, y = spot[0] * cell + 0.5, spot[1] * cell + 0.5
    return (
        f'<rect class="frame {escape(point.tier)}" x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}">'
        f"<title>{escape(point.text)}</title></rect>"
    )
