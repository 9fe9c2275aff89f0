"""SCALE's memory: the images that cover the feature space most evenly."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.contract import Embed, memory
from climb.memory.flat import FlatMemory
from climb.memory.validate import check_finite
from climb.precision import widest

ROWS_AT_ONCE = 512  # images embedded together; bounds the activations of the network


@memory("part-and-select")
class PartAndSelectMemory(FlatMemory):
    """A well-spread subset of the stored and the new images (SCALE: Yu, Guo, Gao and Rosing, 2023).

    After the passes over a mini-batch, the current backbone embeds all stored and new images, and `part_and_select`
    chooses ``capacity`` of them. Until the memory is full, it stores every image and embeds none. By default, it
    stores no embeddings, since they would be outdated.

    Our choices where the paper is silent: features are taken in eval mode and not normalised; of two images that
    represent a set equally well, the older one stays.

    Args:
        capacity: maximum number of stored images.
        image_shape: (3, H, W).
        embedding_dim: length of a backbone feature.
        seed: seed of the draws for replay; the selection is not random.
        device: device of the images.
        group: the processes over which the images are spread.

    >>> memory = PartAndSelectMemory(2, (3, 1, 1), 3)
    >>> shades = torch.tensor([0, 10, 90], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 1, 1)
    >>> memory.insert(shades, embed=lambda images: images.flatten(1).float()).rejected
    1
    >>> sorted(memory.sample(2).ids.tolist())  # 0 and 10 are similar, and 0 is older
    [0, 2]
    """

    sharded: ClassVar[bool] = True

    def _slots(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None = None
    ) -> list[int | None]:
        stored = len(self)
        if stored + len(images) <= self.capacity:
            return list(range(stored, stored + len(images)))
        encoder: Any = embed or embeddings  # a subclass of the earlier release calls _slots(images, embed)
        if not callable(encoder):
            raise InputError("PartAndSelectMemory embeds all of its images; call insert(..., embed=encoder)")
        by_age = np.argsort(self._ids[:stored])
        pool = torch.cat([self._store.get(by_age.tolist()), images.to(self._store.device)])
        chosen = set(part_and_select(_embedded(pool, encoder), self.capacity).tolist())
        dropped = [int(slot) for position, slot in enumerate(by_age) if position not in chosen]
        free = iter([*range(stored, self.capacity), *dropped])  # as many as chosen new images
        return [next(free) if stored + row in chosen else None for row in range(len(images))]


def part_and_select(points: torch.Tensor, count: int) -> torch.Tensor:
    """Positions, ascending, of ``count`` of the points (n, d), spread evenly (Salomon et al., 2013).

    All points start as one set. Repeatedly the set whose bounding box has the longest side is cut in the middle of
    that side, until there are ``count`` sets. From each set, the point closest to the centre of its box is chosen.

    Of equally long sets, those made by fewer cuts come first. Of equally close points, the first one is chosen. If
    fewer than ``count`` points differ, the first duplicates fill up the result.

    >>> part_and_select(torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0], [10.0]]), 2)
    tensor([1, 4])
    """
    n = len(points)
    if not 1 <= count <= n:
        raise InputError(f"count must be in 1..{n}, the number of points; given {count}")
    check_finite(bool(points.isfinite().all()), "features")
    # A part is never longer than the whole. So the sets to cut are those with the `count - 1` longest sides among all
    # sets of complete cutting, where all sets of one depth are cut at once.
    sides, rows, sets = _cut_to_the_end(points)
    by_length = sides.argsort(descending=True, stable=True)[: count - 1]
    cut = torch.zeros_like(sides, dtype=torch.bool)
    cut[by_length] = True
    cut &= sides > 0  # duplicates cannot be separated
    # Sets are numbered by depth, so a point ends in the first uncut set that contains it.
    ended = ~cut[sets]
    last = torch.full((n,), len(sides), device=points.device)
    last.scatter_reduce_(0, rows[ended], sets[ended], "amin")
    _, part, size = torch.unique(last, return_inverse=True, return_counts=True)
    alone, crowded = (size[part] == 1).nonzero().flatten(), (size[part] > 1).nonzero().flatten()
    chosen = torch.cat([alone, crowded[_closest_to_centre(points[crowded], part[crowded])]])
    if len(chosen) < count:
        spare = torch.ones(n, dtype=torch.bool, device=points.device)
        spare[chosen] = False
        chosen = torch.cat([chosen, spare.nonzero().flatten()[: count - len(chosen)]])
    return chosen.sort().values


def _cut_to_the_end(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut until every set is a single point or only duplicates.

    Returns:
        The longest side of each set (s,), sets numbered by depth; and all pairs of a point (m,) and a set (m,) that
        contained it.
    """
    rows = torch.arange(len(points), device=points.device)
    part = torch.zeros_like(rows)
    first, parts = 0, 1
    all_sides, all_rows, all_sets = [], [], []
    while parts:
        low, high = _boxes(points.index_select(0, rows), part, parts)
        side, axis = (high - low).max(dim=1)
        all_sides.append(side)
        all_rows.append(rows)
        all_sets.append(part + first)
        first += parts

        goes_on = (side[part] > 0).nonzero().flatten()
        rows, part = rows[goes_on], part[goes_on]
        along = axis[part]
        value = points[rows, along]
        # Compares distances to both ends: a rounded middle might not separate the lowest and the highest.
        upper = value - low[part, along] > high[part, along] - value
        part = 2 * part + upper
        numbers, part = torch.unique(part, return_inverse=True)
        parts = len(numbers)
    return torch.cat(all_sides), torch.cat(all_rows), torch.cat(all_sets)


def _boxes(points: torch.Tensor, part: torch.Tensor, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lowest and highest corners (parts, d) of the bounding box of each part's points (n, d)."""
    index = part[:, None].expand_as(points)
    empty = points.new_full((parts, points.shape[1]), math.inf)
    return empty.scatter_reduce(0, index, points, "amin"), (-empty).scatter_reduce(0, index, points, "amax")


def _closest_to_centre(points: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Position of the point closest to the centre of the box, for each part."""
    # In double precision, the two points of a pair are equally far from their middle.
    points = points.to(widest(points.device))
    numbers, part = torch.unique(part, return_inverse=True)
    parts = len(numbers)
    low, high = _boxes(points, part, parts)
    distance = (points - ((low + high) / 2)[part]).square().sum(1)
    least = distance.new_full((parts,), math.inf).scatter_reduce(0, part, distance, "amin")
    position = torch.arange(len(points), device=points.device)
    closest = (distance == least[part]).nonzero().flatten()
    return torch.full_like(position[:parts], len(points)).scatter_reduce(0, part[closest], position[closest], "amin")


def _embedded(images: torch.Tensor, embed: Embed) -> torch.Tensor:
    """Features (n, d) of images (n, 3, H, W). Chunks of nearly equal size avoid many different shapes."""
    chunks = images.tensor_split(math.ceil(len(images) / ROWS_AT_ONCE))
    # Copy each chunk: the encoder may reuse its output tensor.
    return torch.cat([embed(chunk).detach().to(torch.float32, copy=True) for chunk in chunks])
