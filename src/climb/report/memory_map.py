"""A map of the memory: stored images, or centroids, placed by the two main directions of their embeddings."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from climb.memory.snapshot import MemorySnapshot, TierName
from climb.report.markup import figure, remark

WIDTH, HEIGHT = 1056, 600  # pixels of the picture, about
CELLS_PER_POINT = 2.5  # leaves gaps between clusters
FEWEST, MOST = 12, 48  # columns of cells
REACH = 4  # cells by which a point moves at most if its own cell is taken
QUALITY = 60
COLOURED: tuple[TierName, ...] = ("long-term", "short-term")

Array = NDArray[np.float64]
Cell = tuple[int, int]
"""Column and row."""


class Point(NamedTuple):
    """An image with its label on the map."""

    image: torch.Tensor
    """uint8 (3, H, W)."""
    tier: TierName
    text: str


def memory_map(memory: MemorySnapshot) -> str:
    """A figure, or a remark if there are fewer than three points or no embeddings."""
    points, vectors, subject = _points(memory)
    if len(points) < 3:
        return remark("No map: this memory stores images without embeddings, and has no centroids.")
    plane, share = principal_plane(vectors)
    columns = max(FEWEST, min(MOST, round(math.sqrt(len(points) * CELLS_PER_POINT * WIDTH / HEIGHT))))
    side = WIDTH // columns
    rows = HEIGHT // side
    cells = assigned_cells(plane, columns, rows)
    placed = [(point, cell) for point, cell in zip(points, cells, strict=True) if cell is not None]
    caption = (
        f"<b>Map of the memory.</b> Each picture is {subject}, placed by the two principal components of the "
        f"embeddings ({share:.0%} of the variance). The network finds neighbours similar."
    )
    if len(placed) < len(points):
        caption += f" Crowded places show only some: {len(placed):,} of {len(points):,}."
    tiers = {point.tier for point, _ in placed}
    keys = "".join(f'<li><span class="swatch {tier}"></span>{tier}</li>' for tier in COLOURED if tier in tiers)
    picture = data_uri(webp(_picture(placed, columns, rows, side), QUALITY))
    width, height = columns * side, rows * side
    svg = (
        f'<svg class="map" viewBox="0 0 {width} {height}" role="img" aria-label="Map of the memory">'
        f'<image href="{picture}" width="{width}" height="{height}"/>'
        f"{''.join(_frame(point, cell, side) for point, cell in placed)}</svg>"
    )
    return figure(svg, f'{caption}<ul class="keys">{keys}</ul>' if keys else caption, kind="panel wide-map")


def _points(memory: MemorySnapshot) -> tuple[list[Point], Array, str]:
    """Images with their embeddings if known, else centroids with their values; and what the points are."""
    groups = memory.groups
    by_image = all(group.embeddings is not None for group in groups)
    vectors = [group.embeddings if by_image else group.value for group in groups]
    known = [vector.float().reshape(-1, vector.shape[-1]) for vector in vectors if vector is not None]
    if not groups or len(known) < len(groups):
        return [], np.zeros((0, 2)), ""
    points = [
        Point(image=image, tier=group.tier, text=f"image {number:,} of the stream{name}")
        for group in groups
        for name in ["" if group.centroid is None else f", centroid #{group.centroid:,}"]
        for image, number in islice(zip(group.images, group.numbers, strict=True), None if by_image else 1)
    ]
    directions = F.normalize(torch.cat(known), dim=1)  # the memory compares directions
    subject = "a stored image" if by_image else "the first image of a centroid"
    return points, directions.cpu().numpy().astype(np.float64), subject


def principal_plane(points: Array) -> tuple[Array, float]:
    """Project points (n, d) on their two principal components.

    Returns the projections (n, 2) and their share of the variance. The largest part of each direction is made
    positive, so the same points always give the same map.

    >>> plane, share = principal_plane(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]))
    >>> plane[:, 0].round(3).tolist(), round(share, 3)
    ([-2.0, 0.0, 2.0], 1.0)
    """
    centred = points - points.mean(axis=0)
    centred = np.pad(centred, ((0, 0), (0, max(0, 2 - centred.shape[1]))))
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, [-1, -2]]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    values = values.clip(min=0)
    return centred @ axes, float(values[-2:].sum() / max(values.sum(), np.finfo(float).tiny))


def assigned_cells(plane: Array, columns: int, rows: int) -> list[Cell | None]:
    """A cell (column, row) for each point, used once: its own, else the nearest free one in reach, else None.

    >>> assigned_cells(np.array([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]), 10, 10)
    [(0, 9), (0, 8), (9, 0)]
    """
    low, high = np.percentile(plane, 1, axis=0), np.percentile(plane, 99, axis=0)  # outliers do not set the scale
    scaled = ((plane - low) / np.where(high > low, high - low, 1.0)).clip(0.0, 1.0)
    steps = sorted(
        ((x, y) for x in range(-REACH, REACH + 1) for y in range(-REACH, REACH + 1)),
        key=lambda step: (step[0] ** 2 + step[1] ** 2, step),
    )
    free: set[Cell | None] = {(column, row) for column in range(columns) for row in range(rows)}
    cells: list[Cell | None] = []
    for right, up in scaled.tolist():
        column, row = round(right * (columns - 1)), round((1 - up) * (rows - 1))
        cell = next(((column + x, row + y) for x, y in steps if (column + x, row + y) in free), None)
        free.discard(cell)
        cells.append(cell)
    return cells


def _picture(placed: Sequence[tuple[Point, Cell]], columns: int, rows: int, side: int) -> Image.Image:
    images = torch.stack([point.image for point, _ in placed]).float()
    small = F.interpolate(images, size=(side - 2, side - 2), mode="bilinear", antialias=True, align_corners=False)
    return mosaic(small.round().clamp(0, 255).byte(), [cell for _, cell in placed], columns, rows, margin=1)


def mosaic(images: torch.Tensor, cells: Sequence[Cell], columns: int, rows: int, *, margin: int = 0) -> Image.Image:
    """Place uint8 images (n, 3, H, W) in cells of a grid. The picture is transparent elsewhere."""
    height, width = (side + 2 * margin for side in images.shape[2:])
    picture = Image.new("RGBA", (columns * width, rows * height))
    for image, (column, row) in zip(images.permute(0, 2, 3, 1).cpu().numpy(), cells, strict=True):
        picture.paste(Image.fromarray(image), (column * width + margin, row * height + margin))
    return picture


def _frame(point: Point, cell: Cell, side: int) -> str:
    x, y = cell[0] * side + 0.5, cell[1] * side + 0.5
    return (
        f'<rect class="frame {escape(point.tier)}" x="{x}" y="{y}" width="{side - 1}" height="{side - 1}">'
        f"<title>{escape(point.text)}</title></rect>"
    )


def webp(picture: Image.Image, quality: int) -> bytes:
    """A picture as a lossy WebP file with transparency."""
    file = io.BytesIO()
    picture.save(file, format="WEBP", quality=quality, method=0)  # half the time of the default, 6 % larger
    return file.getvalue()


def data_uri(file: bytes) -> str:
    """An address that contains a WebP file."""
    return f"data:image/webp;base64,{base64.b64encode(file).decode('ascii')}"
