"""What is remembered: a contact sheet for every centroid, with its size and age, and the map of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from climb.report.figure import quiet, section
from climb.report.memory_map import memory_map
from climb.report.sheets import encoded_sheets
from climb.runs.remembered import Group, Remembered

SHOWN = 3000  # images of a page; beyond, every group shows its share
COLUMNS = 6  # of a centroid's sheet
FLAT_COLUMNS, FLAT_SHEET = 25, 250  # a memory without centroids comes in larger sheets
HEADINGS = {
    "long-term": "Long-term memory",
    "short-term": "Short-term memory",
    "stored": "Stored images",
}
MEANINGS = {
    "long-term": "What came back often enough to be kept. Oldest centroid first.",
    "short-term": "What is new, and staged: it will be promoted, or make room. Oldest centroid first.",
    "stored": "Oldest image first.",
}


def gallery(memory: Remembered | None) -> str:
    """The section on the memory's content."""
    if memory is None or not memory.groups:
        said = "This folder keeps no picture of the memory: no memory.safetensors and no checkpoint that can be read."
        return section("remembered", "What is remembered", quiet(said))
    total = len(memory.images)
    parts = shown(memory.groups)
    groups = [group for group, _ in parts]
    left = sum(len(group.images) for group in groups)
    said = f"{total:,} of the {memory.seen:,} images that came by."
    if any(group.tier != "stored" for group in groups):
        said += " Age and idle time count images of the stream."
    if left < total:
        said += f" The sheets show {left:,} of them, an equal share of every group."
    sheets = encoded_sheets(
        [group.images for group in groups],
        columns=[COLUMNS if group.tier != "stored" else FLAT_COLUMNS for group in groups],
    )
    content = [quiet(said), memory_map(memory)]
    for tier, heading in HEADINGS.items():
        cards = [
            _card(group, size, sheet, memory.seen)
            for (group, size), sheet in zip(parts, sheets, strict=True)
            if group.tier == tier
        ]
        if cards:
            count = f' <span class="quiet">{_centroids(len(cards))}</span>' if tier != "stored" else ""
            kind = "gallery flat" if tier == "stored" else "gallery"
            content += [
                f"<h3>{heading}{count}</h3>",
                quiet(MEANINGS[tier]),
                f'<div class="{kind}">{"".join(cards)}</div>',
            ]
    return section("remembered", "What is remembered", *content)


def shown(groups: Sequence[Group], *, most: int = SHOWN) -> list[tuple[Group, int]]:
    """The groups with at most ``most`` images in all, each with its true size; those without centroid in parts."""
    total = sum(len(group.images) for group in groups)
    found: list[tuple[Group, int]] = []
    for group in groups:
        count = len(group.images)
        keep = count if total <= most else max(1, count * most // total)
        places = [place * count // keep for place in range(keep)]
        size = FLAT_SHEET if group.tier == "stored" else keep
        for start in range(0, keep, size):
            part = places[start : start + size]
            numbers = [group.numbers[place] for place in part]
            whole = len(part) if group.tier == "stored" else count
            found.append((replace(group, images=group.images[part], numbers=numbers), whole))
    return found


def _card(group: Group, count: int, sheet: tuple[str, int, int], seen: int) -> str:
    address, width, height = sheet
    name = "" if group.centroid is None else f"<b>#{group.centroid:,}</b> "
    size = f"{count} image{'' if count == 1 else 's'}"
    about = _ages(group, seen)
    alternative = f"{HEADINGS[group.tier]}, {size}, {about}"
    return (
        f'<figure class="sheet {group.tier}"><img src="{address}" width="{width}" height="{height}" '
        f'alt="{escape(alternative)}"/><figcaption>{name}{size}<span class="age">{escape(about)}</span></figcaption>'
        "</figure>"
    )


def _ages(group: Group, seen: int) -> str:
    """When the group began and when it last took an image in, counted in images of the stream."""
    if group.tier == "stored":
        return f"from {min(group.numbers):,} to {max(group.numbers):,} of the stream"
    said = [] if group.born is None else [f"age {seen - group.born:,}"]
    if group.born_before is not None:
        said.append(f"older than {seen - group.born_before:,} images")
    if group.updated is not None:
        said.append(f"idle {seen - group.updated:,}")
    return ", ".join(said)


def _centroids(count: int) -> str:
    return f"{count:,} centroid{'' if count == 1 else 's'}"
