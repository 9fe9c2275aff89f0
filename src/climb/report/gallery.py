"""The section on the content of the memory: a map, and a contact sheet for every centroid with its size and age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import torch
from PIL.Image import Image

from climb.memory.snapshot import Group, MemorySnapshot
from climb.report.markup import remark, section
from climb.report.memory_map import data_uri, memory_map, mosaic, webp

MOST_IMAGES = 3000  # on a page; of a larger memory, every group shows its share
COLUMNS = 6  # of a centroid's sheet
FLAT_COLUMNS, FLAT_SHEET = 25, 250  # columns and images of a sheet without centroid
QUALITIES = (80, 60, 40, 25, 12, 4)
SAMPLED = 8  # every eighth sheet estimates the size of all
BUDGET = 2_400_000  # bytes of all sheets of a page; base64 adds a third
TIERS = {
    "long-term": ("Long-term memory", "Centroids that recurred often enough to be kept. Oldest first."),
    "short-term": ("Short-term memory", "New centroids, to be promoted or evicted. Oldest first."),
    "stored": ("Stored images", "Oldest first."),
}
"""Heading and explanation of each tier."""


def gallery(memory: MemorySnapshot | None) -> str:
    """The section for a snapshot; a remark without one."""
    if memory is None or not memory.groups:
        text = "No images to show: the folder has no memory.safetensors and no readable checkpoint."
        return section("memory", "Memory", remark(text))
    sample = sampled(memory.groups)
    total, shown = len(memory.images), sum(len(group.images) for group, _ in sample)
    text = f"{total:,} of the {memory.seen:,} images in the stream so far."
    if any(group.tier != "stored" for group in memory.groups):
        text += " Age and idle time are counted in images of the stream."
    if shown < total:
        text += f" The sheets show {shown:,} of them, an equal share of every group."
    columns = [FLAT_COLUMNS if group.tier == "stored" else COLUMNS for group, _ in sample]
    pictures = [contact_sheet(group.images, columns=wide) for (group, _), wide in zip(sample, columns, strict=True)]
    sheets = encoded_sheets(pictures)
    content = [remark(text), memory_map(memory)]
    for tier, (heading, meaning) in TIERS.items():
        cards = [_card(*each, memory.seen) for each in zip(sample, sheets, strict=True) if each[0][0].tier == tier]
        if cards:
            flat = tier == "stored"
            count = "" if flat else f' <span class="quiet">{_counted(len(cards), "centroid")}</span>'
            kind = "gallery flat" if flat else "gallery"
            content += [f"<h3>{heading}{count}</h3>", remark(meaning), f'<div class="{kind}">{"".join(cards)}</div>']
    return section("memory", "Memory", *content)


def sampled(groups: Sequence[Group], *, most: int = MOST_IMAGES) -> list[tuple[Group, int]]:
    """At most ``most`` images in all, an equal share of each group, with the true size of the group.

    Images without centroid are split into several sheets.
    """
    total = sum(len(group.images) for group in groups)
    sample: list[tuple[Group, int]] = []
    for group in groups:
        count = len(group.images)
        kept = count if total <= most else max(1, count * most // total)
        size = FLAT_SHEET if group.tier == "stored" else kept
        for start in range(0, kept, size):
            part = [place * count // kept for place in range(start, min(start + size, kept))]
            shown = replace(group, images=group.images[part], numbers=[group.numbers[place] for place in part])
            sample.append((shown, len(part) if group.tier == "stored" else count))
    return sample


def _card(sampled: tuple[Group, int], sheet: tuple[str, int, int], seen: int) -> str:
    (group, count), (address, width, height) = sampled, sheet
    name = "" if group.centroid is None else f"<b>#{group.centroid:,}</b> "
    size, age = _counted(count, "image"), _age(group, seen)
    alternative = escape(f"{TIERS[group.tier][0]}, {size}, {age}")
    return (
        f'<figure class="sheet {group.tier}"><img src="{address}" width="{width}" height="{height}" '
        f'alt="{alternative}"/><figcaption>{name}{size}<span class="age">{escape(age)}</span></figcaption></figure>'
    )


def _age(group: Group, seen: int) -> str:
    """Time since the first and since the latest image, counted in images of the stream."""
    if group.tier == "stored":
        return f"from {min(group.numbers):,} to {max(group.numbers):,} of the stream"
    times = (("age {}", group.born), ("older than {} images", group.born_before), ("idle {}", group.updated))
    return ", ".join(text.format(f"{seen - since:,}") for text, since in times if since is not None)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def encoded_sheets(pictures: Sequence[Image], *, budget: int = BUDGET) -> list[tuple[str, int, int]]:
    """Contact sheets as (data URI, width, height).

    All sheets have the best quality with which they fit into ``budget`` bytes.
    """
    files: list[bytes] = []
    for quality in QUALITIES:
        sample = [webp(picture, quality) for picture in pictures[::SAMPLED]]  # to skip hopeless qualities fast
        if sum(map(len, sample)) * len(pictures) > budget * len(sample) and quality != QUALITIES[-1]:
            continue
        files = [webp(picture, quality) for picture in pictures]
        if sum(map(len, files)) <= budget:
            break
    return [(data_uri(file), *picture.size) for file, picture in zip(files, pictures, strict=True)]


def contact_sheet(images: torch.Tensor, *, columns: int) -> Image:
    """Lay out uint8 images (n, 3, H, W) row by row in one picture; unused tiles are transparent.

    >>> contact_sheet(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), columns=3).size
    (24, 16)
    """
    columns = min(columns, len(images))
    cells = [(place % columns, place // columns) for place in range(len(images))]
    return mosaic(images, cells, columns, cells[-1][1] + 1)
