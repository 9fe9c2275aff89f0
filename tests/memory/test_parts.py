"""The parts of the centroid memory, each compared with a plain computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from climb.errors import ClimbError
from climb.memory import FifoMemory
from climb.memory.geometry import BatchGeometry, DistanceWindow
from climb.memory.ledger import IdPool
from climb.memory.store import ImagesById, ImageStore, fits


@given(
    distances=st.lists(st.floats(0, 2) | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=60),
    size=st.integers(1, 20),
    quantile=st.floats(0, 1),
)
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_window_gives_the_quantile_of_the_last_distances(distances: list[float], size: int, quantile: float) -> None:
    window = DistanceWindow(size=size, quantile=quantile)
    assert math.isnan(window.quantile)
    for seen, distance in enumerate(distances, start=1):
        window.append(distance)
        last = distances[max(0, seen - size) : seen]
        assert window.distances() == last
        assert len(window.distances()) == len(last)
        assert window.quantile == pytest.approx(np.quantile(last, quantile), abs=1e-12)
    window.restore([])
    assert math.isnan(window.quantile)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 2**31)), max_size=80))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_pool_holds_what_was_added_and_not_removed(steps: list[tuple[bool, int]]) -> None:
    pool, expected = IdPool(), set()
    for number, (add, pick) in enumerate(steps):
        if add or not expected:
            pool.add(number)
            expected.add(number)
        else:
            gone = sorted(expected)[pick % len(expected)]
            pool.remove(gone)
            expected.remove(gone)
        assert len(pool) == len(expected)
        drawn = pool.draw(len(expected), np.random.default_rng(number))
        assert set(drawn) == expected
        assert len(drawn) == len(expected)


def test_a_store_reuses_freed_slots() -> None:
    store = ImageStore(3, (3, 2, 2), "cpu")
    images = torch.arange(36, dtype=torch.uint8).reshape(3, 3, 2, 2)
    slots = store.put(images)
    assert sorted(slots) == [0, 1, 2]
    assert torch.equal(store.get(slots), images)
    store.release(slots[1:2])
    assert len(store) == 2
    assert store.put(images[:1] + 100) == slots[1:2]
    assert torch.equal(store.get(slots)[[0, 2]], images[[0, 2]])
    store.clear()
    assert len(store) == 0
    assert store.nbytes == 3 * 12


def test_a_store_that_grows_keeps_every_image_in_its_slot() -> None:
    store = ImageStore(3, (3, 2, 2), "cpu")
    images = torch.arange(96, dtype=torch.uint8).reshape(8, 3, 2, 2)
    slots = store.put(images[:3])
    store.release(slots[1:2])
    store.make_room(1)
    assert store.capacity == 3  # there was room
    store.make_room(2)
    assert store.capacity == 6
    store.make_room(6)
    assert (store.capacity, len(store)) == (12, 2)
    more = store.put(images[3:])
    assert len({*slots[::2], *more}) == 7
    assert torch.equal(store.get([*slots[::2], *more]), images[[0, 2, 3, 4, 5, 6, 7]])


def test_clear_removes_images_and_ids() -> None:
    """An id may return and leave before its image is stored; then no slot must be freed."""
    images = ImagesById(ImageStore(2, (3, 2, 2), "cpu"))
    images.put([5], torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    images.clear()
    images.put([7], torch.ones(1, 3, 2, 2, dtype=torch.uint8))
    images.drop([5])
    assert len(images.store) == 1


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["create", "move", "move", "merge"]), st.integers(0, 5), st.integers(0, 7)),
        min_size=1,
        max_size=25,
    ),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
def test_geometry_follows_centroids_as_if_each_step_were_carried_out(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((6, 4))
    embeddings = rng.standard_normal((8, 4))
    values = torch.from_numpy(plain).float()
    geometry = BatchGeometry(values, values.norm(dim=1), torch.from_numpy(embeddings).float())
    for kind, row, image in steps:
        if kind == "create":
            geometry.move(row, image, 1.0)
            plain[row] = embeddings[image]
        elif kind == "move":
            geometry.move(row, image, 0.3)
            plain[row] = 0.7 * plain[row] + 0.3 * embeddings[image]
        else:
            rows = [row, *(other for other in range(6) if other != row)]
            units = plain / np.linalg.norm(plain, axis=1, keepdims=True)
            cosines = units @ units.T
            survivor, absorbed = geometry.closest(rows)
            geometry.merge(survivor, absorbed)
            assert rows.index(survivor) < rows.index(absorbed)
            np.fill_diagonal(cosines, -np.inf)
            assert cosines[survivor, absorbed] == pytest.approx(cosines.max(), abs=1e-5)
            plain[survivor] = (plain[survivor] + plain[absorbed]) / 2
        for query, embedding in enumerate(embeddings):
            norms = np.linalg.norm(plain, axis=1) * np.linalg.norm(embedding)
            expected = 1 - plain @ embedding / norms
            np.testing.assert_allclose(geometry.distances(query), expected, atol=1e-4)
    geometry.flush()
    np.testing.assert_allclose(values.numpy(), plain, atol=1e-4)


def test_geometry_merges_centroids_where_they_have_moved_to() -> None:
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    norms = values.norm(dim=1)
    geometry = BatchGeometry(values, norms, torch.tensor([[3.0, 0.0]]))
    geometry.move(0, 0, 0.5)  # to (2, 0), which the device does not know yet
    geometry.merge(0, 1)
    geometry.flush()
    assert values.tolist() == [[1.0, 0.5], [0.0, 1.0]]
    assert norms.tolist() == pytest.approx([math.hypot(1.0, 0.5), 1.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_geometry_rejects_embeddings_with_nan_or_infinity(bad: float) -> None:
    with pytest.raises(ClimbError, match="NaN or infinity: training has diverged"):
        BatchGeometry(torch.ones(2, 3), torch.ones(2), torch.tensor([[1.0, bad, 0.0]]))


def test_images_take_less_than_half_of_what_a_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    assert fits(499, "cuda:1")
    assert not fits(500, "cuda:1")
    assert fits(10**15, "cpu")


def test_images_on_the_host_are_equal() -> None:
    here, host = ImageStore(4, (3, 2, 2), "cpu"), ImageStore(4, (3, 2, 2), "cpu", on_host=True)
    images = torch.randint(0, 256, (3, 3, 2, 2), dtype=torch.uint8)
    slots = here.put(images)
    assert host.put(images) == slots
    assert torch.equal(host.get(slots[::-1]), here.get(slots[::-1]))
    assert host.nbytes == here.nbytes


def test_images_on_the_host_are_saved_and_loaded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is full: only replayed images may be sent there."""
    monkeypatch.setattr("climb.memory.store.fits", lambda *_: False)
    images = torch.randint(0, 256, (5, 3, 2, 2), dtype=torch.uint8)
    # A device without memory: everything sent there is lost.
    memory, loaded = (FifoMemory(4, (3, 2, 2), 2, device="meta") for _ in range(2))
    memory.insert(images, None)
    loaded.load_state_dict(memory.state_dict())
    assert torch.equal(loaded.state_dict()["images"], images[[4, 1, 2, 3]])
    batch = loaded.sample(2)
    assert batch is not None
    assert batch.images.is_meta

    by_id = ImagesById(ImageStore(4, (3, 2, 2), "meta", on_host=True))
    by_id.put([7, 9], images[:2])
    assert torch.equal(by_id.copied([9, 7]), images[[1, 0]])
    assert by_id.get([9]).is_meta


@pytest.mark.gpu
def test_images_on_the_host_reach_the_gpu() -> None:
    store = ImageStore(40, (3, 8, 8), "cuda", on_host=True)
    images = torch.randint(0, 256, (30, 3, 8, 8), dtype=torch.uint8)
    slots = store.put(images.cuda())
    assert store.images.is_pinned()
    for _ in range(5):
        assert torch.equal(store.get(slots[::2]).cpu(), images[::2])
