"""SCALE's memory: Part-and-Select worked examples, a plain re-implementation, and the memory."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from traffic import IMAGE_SHAPE, numbered_images, numbers_of

from climb.errors import ClimbError, InputError
from climb.memory import InsertReport
from climb.memory.part_and_select import PartAndSelectMemory, part_and_select
from climb.testing import check_memory


def restated(points: np.ndarray, count: int) -> list[int]:
    """Part-and-Select as it is printed: cut the longest set until there are enough, then pick."""
    sets = [list(range(len(points)))]

    def box(members: list[int]) -> tuple[np.ndarray, np.ndarray]:
        return points[members].min(0), points[members].max(0)

    while len(sets) < count:
        longest = max(sets, key=lambda members: float((box(members)[1] - box(members)[0]).max()))
        low, high = box(longest)
        axis = int((high - low).argmax())
        middle = (low[axis] + high[axis]) / 2
        sets.remove(longest)
        sets.append([i for i in longest if points[i, axis] <= middle])
        sets.append([i for i in longest if points[i, axis] > middle])

    def centred(members: list[int]) -> int:
        low, high = box(members)
        return min(members, key=lambda i: (round(float(((points[i] - (low + high) / 2) ** 2).sum()), 9), i))

    return sorted(centred(members) for members in sets)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor made inside."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return made


def shades(*values: int) -> torch.Tensor:
    """uint8 (n, 3, 4, 4): images of one shade each."""
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, *IMAGE_SHAPE).contiguous()


def shade(images: torch.Tensor) -> torch.Tensor:
    """An encoder that sees the shade."""
    return images[:, :, 0, 0].float()


def shades_of(memory: PartAndSelectMemory) -> list[int]:
    batch = memory.sample(len(memory))
    assert batch is not None
    return sorted(int(image[0, 0, 0]) for image in batch.images)


def test_a_worked_example() -> None:
    points = torch.tensor([[0, 0], [1, 0], [2, 1], [10, 0], [10, 4], [10, 7], [11, 2]]).float()
    # The box is 11 wide: cut at 5.5 into {0, 1, 2} and {3, 4, 5, 6}. Centres (1, 0.5) and (10.5, 3.5).
    assert part_and_select(points, 2).tolist() == [1, 4]
    # The second is 7 high: cut at 3.5 into {3, 6} and {4, 5}; both points of a pair are equally close.
    assert part_and_select(points, 3).tolist() == [1, 3, 4]
    # {4, 5} is the longest now, 3 high; then {0, 1, 2} and {3, 6}, both 2 long, of which the first needed fewer cuts.
    assert part_and_select(points, 4).tolist() == [1, 3, 4, 5]
    assert part_and_select(points, 5).tolist() == [0, 2, 3, 4, 5]
    assert part_and_select(points, 6).tolist() == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("shape", ["even", "skewed", "clustered"])
@pytest.mark.parametrize(("n", "d"), [(40, 2), (60, 17), (33, 1)])
def test_agrees_with_the_reimplementation(n: int, d: int, shape: str) -> None:
    rng = np.random.default_rng(n + d)
    points = rng.standard_normal((n, d))
    if shape == "skewed":
        points = np.exp(2 * points)
    elif shape == "clustered":
        points = 10 * rng.standard_normal((4, d))[rng.integers(4, size=n)] + points
    points = points.astype(np.float32)
    for count in (1, 2, 3, n // 2, n - 3, n - 1, n):
        chosen = part_and_select(torch.from_numpy(points), count).tolist()
        assert chosen == restated(points.astype(np.float64), count), count


def test_the_first_point_of_a_pair_is_chosen_despite_rounding() -> None:
    rng = torch.Generator().manual_seed(0)
    centres = 1000 * torch.randn(200, 64, generator=rng)
    pairs = torch.cat([centres, centres + 0.1 * torch.randn(200, 64, generator=rng)])
    assert part_and_select(pairs, 200).tolist() == list(range(200))


def test_duplicates_fill_up_in_order() -> None:
    points = torch.tensor([[5.0], [5.0], [1.0], [5.0], [1.0]])
    assert part_and_select(points, 2).tolist() == [0, 2]
    assert part_and_select(points, 3).tolist() == [0, 1, 2]
    assert part_and_select(points, 5).tolist() == [0, 1, 2, 3, 4]
    assert part_and_select(torch.zeros(6, 3), 4).tolist() == [0, 1, 2, 3]
    # Every place has its first point in, also where more cuts are asked for than places can be told apart.
    points = torch.tensor([0, 0, 1, 1, 10, 10, 100, 100]).float()[:, None]
    assert part_and_select(points, 6).tolist() == [0, 1, 2, 3, 4, 6]


def test_of_equally_long_sets_of_one_depth_the_lower_is_cut_first() -> None:
    assert part_and_select(torch.tensor([[10.0], [11.0], [1.0], [0.0]]), 3).tolist() == [0, 2, 3]
    # Cut at 8 and then at 3 and 13: four sets of two, each as long as the others.
    points = torch.tensor([0, 2, 4, 6, 10, 12, 14, 16]).float()[:, None]
    assert part_and_select(points, 5).tolist() == [0, 1, 2, 4, 6]
    assert part_and_select(points, 6).tolist() == [0, 1, 2, 3, 4, 6]


def test_neighbouring_floats_are_separated() -> None:
    one = torch.tensor(1.0)
    neighbour = torch.nextafter(one, torch.tensor(2.0))
    points = torch.stack([one, neighbour, one, -torch.tensor(3e38), torch.tensor(3e38)])[:, None]
    assert part_and_select(points, 4).tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize("count", [0, 4])
def test_an_impossible_count_is_rejected(count: int) -> None:
    with pytest.raises(InputError, match=rf"count must be in 1\.\.3, the number of points; given {count}"):
        part_and_select(torch.zeros(3, 2), count)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_diverged_network_is_reported(poison: float) -> None:
    points = torch.randn(5, 2)
    points[3, 1] = poison
    with pytest.raises(ClimbError, match="training has diverged"):
        part_and_select(points, 4)


def test_a_memory_of_the_papers_size_is_selected_quickly_and_in_little_room() -> None:
    # Means of rectified activations, as a residual network's features are.
    points = torch.randn(2510, 512, 16, generator=torch.Generator().manual_seed(0)).relu().mean(2)
    with Largest() as largest:
        chosen = part_and_select(points, 2500)
    assert largest.elements <= points.numel()
    assert len(set(chosen.tolist())) == 2500
    start = time.perf_counter()
    again = part_and_select(points, 2500)
    assert time.perf_counter() - start < 1.0
    assert torch.equal(chosen, again)


def test_the_memory_stores_spread_images() -> None:
    memory = PartAndSelectMemory(4, IMAGE_SHAPE, 3)
    memory.insert(shades(0, 8, 100, 255), embed=shade)
    # Among 0, 8, 100, 255 and 104 the two closest are 100 and 104, and 100 came first.
    assert memory.insert(shades(104), embed=shade) == InsertReport(rejected=1)
    assert shades_of(memory) == [0, 8, 100, 255]
    # 180 is far from all: of 0 and 8, the closest now, the older stays.
    assert memory.insert(shades(180), embed=shade) == InsertReport(replaced=1)
    assert shades_of(memory) == [0, 100, 180, 255]


def test_a_rare_image_outlives_a_flood_of_common_ones() -> None:
    memory = PartAndSelectMemory(6, IMAGE_SHAPE, 3)
    memory.insert(shades(255), embed=shade)
    rng = np.random.default_rng(0)
    for _ in range(50):
        memory.insert(shades(*rng.integers(0, 60, size=7).tolist()), embed=shade)
    assert shades_of(memory)[-1] == 255
    assert len(memory) == 6


def test_a_mini_batch_that_crosses_the_capacity_is_chosen_from_as_a_whole() -> None:
    memory = PartAndSelectMemory(4, IMAGE_SHAPE, 3)
    memory.insert(shades(10, 12, 200), embed=shade)
    # 100 would fill the last place first; but 10, 12 and 100, 101 are pairs, and the first of each stays.
    report = memory.insert(shades(100, 101, 250), embed=shade)
    assert report == InsertReport(novel=1, replaced=1, rejected=1)
    assert shades_of(memory) == [10, 100, 200, 250]


def test_selection_uses_the_current_network() -> None:
    memory = PartAndSelectMemory(3, IMAGE_SHAPE, 3)
    memory.insert(shades(0, 1, 128), embed=shade)
    # To this network 0 and 1 are far apart, and all else is one.
    memory.insert(shades(255), embed=lambda images: (shade(images) == 0).float() - (shade(images) == 1).float())
    assert shades_of(memory) == [0, 1, 128]


def test_nothing_is_embedded_before_the_memory_is_full() -> None:
    memory = PartAndSelectMemory(5, IMAGE_SHAPE, 3)
    assert memory.insert(numbered_images(0, 5)) == InsertReport(novel=5)
    with pytest.raises(InputError, match=r"insert\(\.\.\., embed=encoder\)"):
        memory.insert(numbered_images(5, 1))
    assert len(memory) == 5


def ids_of(memory: PartAndSelectMemory) -> list[int]:
    batch = memory.sample(len(memory))
    assert batch is not None
    assert numbers_of(batch.images) == batch.ids.tolist()
    return sorted(batch.ids.tolist())


def test_images_are_embedded_oldest_first_and_in_chunks() -> None:
    memory = PartAndSelectMemory(1200, IMAGE_SHAPE, 1)
    memory.insert(numbered_images(0, 1200))
    for first in (1200, 1205):
        chunks: list[list[int]] = []

        def embed(images: torch.Tensor, chunks: list[list[int]] = chunks) -> torch.Tensor:
            chunks.append(numbers_of(images))
            return torch.tensor(chunks[-1]).float()[:, None]

        stored = ids_of(memory)
        memory.insert(numbered_images(first, 5), embed=embed)
        assert [number for chunk in chunks for number in chunk] == [*stored, *range(first, first + 5)]
        assert max(map(len, chunks)) <= 512
        assert len({len(chunk) for chunk in chunks}) <= 2


def test_an_encoder_may_reuse_the_tensor_it_returns() -> None:
    reused = torch.empty(512, 1)

    def fresh(images: torch.Tensor) -> torch.Tensor:
        return torch.tensor(numbers_of(images)).float()[:, None].sin()

    def reusing(images: torch.Tensor) -> torch.Tensor:
        return reused[: len(images)].copy_(fresh(images))

    kept = []
    for embed in (fresh, reusing):
        memory = PartAndSelectMemory(1200, IMAGE_SHAPE, 1)
        memory.insert(numbered_images(0, 1200))
        memory.insert(numbered_images(1200, 40), torch.zeros(40, 77), embed=embed)
        kept.append(ids_of(memory))
    assert kept[0] == kept[1]


def test_uses_and_stores_no_embeddings() -> None:
    memory = PartAndSelectMemory(5, IMAGE_SHAPE, 512)
    assert memory.space is None
    assert memory.inserts == "after"
    assert memory.nbytes == 5 * 48
    memory.insert(numbered_images(0, 5))
    memory.refresh(torch.tensor([0, 9]), torch.zeros(2, 2048))
    batch = memory.sample(5)
    assert batch is not None
    assert batch.embeddings is None
    assert numbers_of(batch.images) == batch.ids.tolist()


@pytest.mark.parametrize("seed", [0, 7])
def test_satisfies_the_contract(seed: int) -> None:
    check_memory(lambda seed: PartAndSelectMemory(25, IMAGE_SHAPE, 6, seed=seed), seed=seed)
