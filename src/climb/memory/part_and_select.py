"""SCALE's memory: after each mini-batch, the images that cover the feature space most evenly."""

from __future__ import annotations

import math

import numpy as np
import torch

from climb.errors import ClimbError, InputError
from climb.memory.contract import Embed
from climb.memory.flat import FlatMemory
from climb.precision import widest

ROWS_AT_ONCE = 512  # images embedded together: bounds the network's activations, whatever the capacity


class PartAndSelectMemory(FlatMemory):
    """A well-spread subset of what it held and what arrived (SCALE: Yu, Guo, Gao and Rosing, 2023).

    After the passes over a mini-batch, all stored and all new images are embedded by the backbone as it is now, and
    `part_and_select` chooses ``capacity`` of them. Nothing is chosen, and nothing embedded, while there is room.
    Old embeddings are of no use to a network that has moved on, so none is kept, and none is asked for.

    Our choices, where the paper is silent: features are taken in eval mode and as they are, not normalised; of two
    images that could stand for one set equally well, the older stays.

    Args:
        capacity: most images ever stored.
        image_shape: (3, H, W).
        embedding_dim: length of a backbone feature.
        seed: seed of the draws for replay; the selection is not random.
        device: where images live.

    >>> memory = PartAndSelectMemory(2, (3, 1, 1), 3)
    >>> shades = torch.tensor([0, 10, 90], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 1, 1)
    >>> memory.insert(shades, embed=lambda images: images.flatten(1).float()).rejected
    1
    >>> sorted(memory.sample(2).ids.tolist())  # 0 and 10 are alike, and 0 came first
    [0, 2]
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(capacity, image_shape, embedding_dim, seed=seed, device=device)

    def _slots(self, images: torch.Tensor, embed: Embed | None) -> list[int | None]:
        stored = len(self)
        if stored + len(images) <= self.capacity:
            return list(range(stored, stored + len(images)))
        if embed is None:
            raise InputError("PartAndSelectMemory embeds all it holds anew; call insert(..., embed=encoder)")
        by_age = np.argsort(self._ids[:stored])
        pool = torch.cat([self._store.get(by_age.tolist()), images.to(self._store.device)])
        chosen = set(part_and_select(_embedded(pool, embed), self.capacity).tolist())
        dropped = [int(slot) for position, slot in enumerate(by_age) if position not in chosen]
        free = iter([*range(stored, self.capacity), *dropped])  # as many as new images were chosen
        return [next(free) if stored + row in chosen else None for row in range(len(images))]


def part_and_select(points: torch.Tensor, count: int) -> torch.Tensor:
    """Positions, ascending, of ``count`` of the points (n, d), spread evenly (Salomon et al., 2013).

    The points start as one set. The set whose bounding box has the longest side is cut in two at the middle of that
    side, until there are ``count`` sets; from each the point closest to the centre of its box is taken.

    A part is never longer than the whole, so the sets cut are those with the ``count - 1`` longest sides among all
    that cutting to the end would give. That is how it is done: every set of one depth is cut at once, and the order
    is settled afterwards, without a queue. Of equally long sets those that fewer cuts made come first; of equally
    close points (always so in a set of two) the first given is taken. Where fewer than ``count`` points differ, the
    first of the duplicates fill up.

    >>> part_and_select(torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0], [10.0]]), 2)
    tensor([1, 4])
    """
    n = len(points)
    if not 1 <= count <= n:
        raise InputError(f"count must be in 1..{n}, the number of points; given {count}")
    if not points.isfinite().all():
        raise ClimbError(
            "the memory was given features with NaN or infinity: training has diverged; lower the learning rate"
        )
    sides, rows, sets = _cut_to_the_end(points)
    by_length = sides.argsort(descending=True, stable=True)[: count - 1]
    cut = torch.zeros_like(sides, dtype=torch.bool)
    cut[by_length] = True
    cut &= sides > 0  # duplicates cannot be told apart
    # Sets are numbered by depth: the first uncut one that a point was in is where it ended.
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
    """Cut until every set is one point, or several at one place.

    Returns:
        The longest side of each set (s,), sets numbered by depth; and, as two lists (m,), all pairs of a point and
        a set that it was in.
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
        # Not against a rounded middle: the lowest and the highest are always parted.
        upper = value - low[part, along] > high[part, along] - value
        part = 2 * part + upper
        numbers, part = torch.unique(part, return_inverse=True)
        parts = len(numbers)
    return torch.cat(all_sides), torch.cat(all_rows), torch.cat(all_sets)


def _boxes(points: torch.Tensor, part: torch.Tensor, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lowest and highest corner (parts, d) of the box around the points (n, d) of each part."""
    index = part[:, None].expand_as(points)
    empty = points.new_full((parts, points.shape[1]), math.inf)
    return empty.scatter_reduce(0, index, points, "amin"), (-empty).scatter_reduce(0, index, points, "amax")


def _closest_to_centre(points: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """For each part, the position of its point closest to the centre of its box."""
    # Twice the precision makes the distances of a pair to its middle equal, as they are.
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
    """Features (n, d) of images (n, 3, H, W), in chunks of nearly equal size so that few shapes occur."""
    chunks = images.tensor_split(math.ceil(len(images) / ROWS_AT_ONCE))
    # Copied one by one: the encoder may reuse the tensor it returns.
    return torch.cat([embed(chunk).detach().to(torch.float32, copy=True) for chunk in chunks])
