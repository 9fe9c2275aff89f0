"""`check_memory` drives a memory through random traffic and names the first violated contract."""

from __future__ import annotations

import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from numbers import Integral
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from climb.arguments import checked
from climb.errors import InputError
from climb.memory.contract import InsertReport, Memory
from climb.testing.contract import contract, require
from climb.testing.memory_pairs import PAIR_CHECKS, STATE_CHECKS, Lockstep, Make
from climb.testing.memory_traffic import Traffic, copied, pixels_of

ROUNDS_OF_CAPACITY = 6  # length of the traffic, in capacities: long enough to notice a leak
DRAWS = 50  # of a quarter of the stored images each; even skewed sampling then reaches other images
LEAST_COSINE = 0.99  # allows unit vectors and low precision; two images of one cluster are near 0.85
SETTLED = 3  # capacities after which nbytes must not grow: some buffers are allocated after the memory is full
BOOKKEEPING = 8  # bytes per image of capacity that nbytes need not count, such as a norm or a score


@checked()
def check_memory(factory: Callable[..., Memory], *, seed: int = 0) -> None:
    """Drive the memories that ``factory`` builds through random traffic; `ContractViolation` on a violated contract.

    The contracts:

    - A memory stores something after ``capacity`` images. A bounded memory never exceeds ``capacity``; an unbounded
      one is driven as if its capacity were 30.
    - An id identifies one inserted image, and no image is stored twice.
    - `sample` returns as many different images as requested, or None if fewer are stored; draws vary.
    - A sampled embedding is float32 and belongs to its image.
    - Reports agree with the stored images. `nbytes` covers all image and embedding tensors that the memory holds, and
      does not grow once a bounded memory is full.
    - Tensors passed to and returned from the memory belong to the caller.
    - `refresh` goes by ids: their order has no effect, nor have ids of images that are no longer stored.
    - The same seed gives the same memory. A saved state continues exactly, shares no tensor with the memory, and
      saving has no effect on the memory.
    - `groups`, if defined, returns all stored images.

    The bound is checked after each mini-batch and when `insert` calls ``embed``, not between the images of a
    mini-batch. Which images a memory keeps and prefers is not part of the contract: it may reject all images once it
    is full, and may ignore `refresh`.

    Args:
        factory: callable as ``factory(seed=0)`` or ``factory()``; returns an empty memory with the attributes
            ``image_shape`` and ``embedding_dim``. Make it small: several times its capacity is inserted, often.
        seed: seed of the traffic and of the memories.

    >>> from climb.memory import FifoMemory
    >>> check_memory(lambda seed: FifoMemory(20, (3, 8, 8), 16, seed=seed))
    """
    make = _maker(factory)
    for name, check in CHECKS:
        with contract(name):
            check(make, seed)


def _maker(factory: Callable[..., Memory]) -> Make:
    try:
        signature = inspect.signature(factory)
    except ValueError as error:  # some functions of Python itself have none
        raise InputError(f"the factory has no signature; give a function, not {factory!r}") from error
    for names in (["seed"], []):
        with suppress(TypeError):
            signature.bind(**dict.fromkeys(names))
            return lambda seed: factory(**dict.fromkeys(names, seed))
    raise InputError(
        f"the factory's signature is {signature}; it must be callable as factory(seed=0) or factory(). "
        "Try: check_memory(lambda seed: MyMemory(60, (3, 8, 8), 16, seed=seed))"
    )


# -- checks of one memory ------------------------------------------------------------------------------------------


def _check_attributes(make: Make, seed: int) -> None:
    memory = make(seed)
    for name in ("space", "inserts", "bounded", "capacity", "image_shape", "embedding_dim"):
        require(hasattr(memory, name), f"the memory has no attribute {name}")
    for name, allowed in (("space", ("projector", "backbone", None)), ("inserts", ("after", "before"))):
        value = getattr(memory, name)
        require(value in allowed, f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")
    if memory.bounded:
        whole = isinstance(memory.capacity, Integral)
        require(whole and memory.capacity >= 1, f"capacity is {memory.capacity}; it must be a positive integer")
    require(len(memory) == 0, f"a new memory stores {len(memory)} images")
    require(memory.sample(1) is None, "an empty memory returned an image")


def _check_content(make: Make, seed: int, *, largest: int = 12) -> None:
    """Bound, ids, reports, sampling and bytes, with mini-batches of 1 to ``largest`` images."""
    memory = make(seed)
    traffic, nbytes = Traffic(memory, seed), ByteCheck()
    while traffic.made < ROUNDS_OF_CAPACITY * traffic.capacity:
        _insert(memory, traffic, int(traffic.generator.integers(1, largest + 1)), nbytes)
        n = int(traffic.generator.integers(1, traffic.capacity + 1))
        batch = memory.sample(n)
        result = "None" if batch is None else "a batch"
        require((batch is None) == (n > len(memory)), f"sample({n}) returned {result} with {len(memory)} images stored")
        if batch is not None:
            traffic.check_batch(batch, n)
            memory.refresh(batch.ids, traffic.views(batch.images))
            traffic.check_all(memory)
        if traffic.made >= traffic.capacity:
            bound = f"; the capacity is {traffic.capacity}" if memory.bounded else ""
            require(len(memory) > 0, f"nothing is stored after {traffic.made} images{bound}")


def _check_large_batch(make: Make, seed: int) -> None:
    memory = make(seed)
    traffic = Traffic(memory, seed)
    _insert(memory, traffic, 2 * traffic.capacity + 3, ByteCheck())


def _check_draws_vary(make: Make, seed: int) -> None:
    memory = make(seed)
    traffic = Traffic(memory, seed)
    Lockstep((memory,), traffic).run(3)
    stored = len(memory)
    n = stored // 4
    drawn: set[int] = set()
    for _ in range(DRAWS):
        batch = memory.sample(n) if n else None
        if batch is not None:
            drawn |= set(batch.ids.tolist())
            memory.refresh(batch.ids, traffic.views(batch.images))  # as in training
    varied = n == 0 or len(drawn) > n
    require(varied, f"sample({n}) returned the same {n} images {DRAWS} times, with {stored} stored; draw at random")


def _check_embeddings(make: Make, seed: int) -> None:
    memory = make(seed)
    traffic = Traffic(memory, seed)
    for batch in Lockstep((memory,), traffic).replays(3):
        own = traffic.embed(batch.images)  # the encoder is fixed, so `refresh` must not move a correct embedding
        if batch.embeddings is not None:
            cosine, row = F.cosine_similarity(batch.embeddings.cpu().float(), own).min(dim=0)
            require(
                bool(cosine > LEAST_COSINE),
                f"the embedding sampled with id {batch.ids[row]} is not that of its image: their cosine is "
                f"{cosine:.3f}; it must be above {LEAST_COSINE}",
            )
        memory.refresh(batch.ids, own)


def _check_groups(make: Make, seed: int) -> None:
    memory: Any = make(seed)
    traffic = Traffic(memory, seed)
    Lockstep((memory,), traffic).run(2)
    if hasattr(memory, "groups"):
        grouped = sorted(image for group in memory.groups() for image in pixels_of(group.images))
        require(grouped == sorted(traffic.check_all(memory)[1]), "groups() does not return each stored image once")


CHECKS = (
    ("a new memory has the attributes of climb.memory.Memory and is empty", _check_attributes),
    ("a memory stores, samples and refreshes single images", partial(_check_content, largest=1)),
    ("a memory stores, samples and refreshes mini-batches", _check_content),
    ("a memory accepts a mini-batch larger than its capacity", _check_large_batch),
    ("draws vary", _check_draws_vary),
    ("groups() returns the stored images", _check_groups),
    *PAIR_CHECKS,
    ("sampled embeddings belong to their images", _check_embeddings),
    *STATE_CHECKS,
)


# -- one insert ----------------------------------------------------------------------------------------------------


def _insert(memory: Memory, traffic: Traffic, n: int, nbytes: ByteCheck) -> None:
    """Insert ``n`` images and check bound, content, report and bytes."""
    before = len(memory)
    images, embeddings = traffic.batch(n)

    def embed(some: torch.Tensor) -> torch.Tensor:
        _check_bound(memory, traffic, " while insert calls embed")
        return traffic.embed(some)

    report = memory.insert(*copied(images, embeddings), embed=embed)
    _check_bound(memory, traffic, "")
    batch, stored = traffic.check_all(memory)
    row_of = {image: row for row, image in enumerate(stored)}
    new = {place: row_of[image] for place, image in enumerate(pixels_of(images)) if image in row_of}
    _check_report(report, n, before=before, after=len(memory), new=len(new), capacity=traffic.capacity)

    number_bytes = 0
    if batch is not None and batch.embeddings is not None:
        # A memory may store embeddings in low precision, of one byte at least, unless it returns them unchanged.
        sampled = batch.embeddings[list(new.values())].cpu()
        exact = embeddings is not None and (sampled == embeddings[list(new)]).all(1).any()
        number_bytes = 4 if exact else 1
    nbytes.check(memory, traffic, number_bytes)


def _check_bound(memory: Memory, traffic: Traffic, when: str) -> None:
    if memory.bounded:
        capacity = memory.capacity
        require(capacity == traffic.capacity, f"capacity changed from {traffic.capacity} to {capacity}")
        require(len(memory) <= capacity, f"{len(memory)} images stored{when}; the capacity is {capacity}")


def _check_report(report: InsertReport, n: int, *, before: int, after: int, new: int, capacity: int) -> None:
    """The report of an insert of ``n`` images, of which ``new`` are stored; ``before`` and ``after`` are lengths."""
    require(isinstance(report, InsertReport), f"insert returned {type(report).__name__}, not an InsertReport")
    counts = dataclasses.asdict(report)
    require(all(count >= 0 for count in counts.values()), f"negative count in the report: {report}")
    total = report.novel + report.joined + report.replaced + report.rejected
    require(total == n, f"{n} images inserted, but novel + joined + replaced + rejected = {total}: {report}")
    require(
        after - before <= report.novel + report.joined,
        f"grew by {after - before} images, but the report has {report.novel} novel and {report.joined} joined",
    )
    kept = n - report.rejected
    require(new <= kept, f"{new} of {n} new images are stored, but the report has {report.rejected} rejected")
    # A mini-batch larger than the capacity may replace its own images, for which the report has no count.
    if n <= capacity and not (report.evicted or report.merged or report.pruned):
        # New images can only be replaced by later ones, and the last one by none.
        least = max(kept - report.replaced, min(kept, 1))
        require(
            new >= least,
            f"only {new} of {n} new images are stored, and the report does not account for the others: {report}",
        )
    # Centroids are not visible, so their counts have upper bounds only: an eviction or a prune removes an image, and
    # there are never more centroids than images.
    places = before + kept
    left = places - after
    for name, most in (("evicted", left), ("pruned", left), ("merged", max(places, 1) - 1), ("promoted", places)):
        stored = f"{places} images were stored or new, and {left} of them left"
        require(counts[name] <= most, f"the report has {counts[name]} {name}, but {stored}")


class ByteCheck:
    """Checks `nbytes` after each insert into one memory."""

    def __init__(self) -> None:
        self._most_stored = 0
        self._needed = 0  # bytes, the maximum while filling

    def check(self, memory: Memory, traffic: Traffic, number_bytes: int) -> None:
        """``number_bytes``: least bytes per number of a stored embedding; 0 if none are sampled."""
        stored, nbytes = len(memory), memory.nbytes
        least = stored * (traffic.image_bytes + number_bytes * traffic.embedding_dim)
        content = "images and embeddings" if number_bytes else "images alone"
        require(nbytes >= least, f"nbytes is {nbytes}, but the stored {content} take {least}")
        held = tensor_bytes(memory)
        require(
            nbytes >= held - BOOKKEEPING * max(traffic.capacity, stored),
            f"nbytes is {nbytes}, but the memory holds uint8 and floating-point tensors of {held} bytes",
        )
        if stored > self._most_stored or traffic.made <= SETTLED * traffic.capacity:
            self._most_stored = max(self._most_stored, stored)
            self._needed = max(self._needed, nbytes)
        if memory.bounded:
            # The number of centroids and of images may vary: tolerate all images and embeddings once more.
            most = self._needed + (traffic.capacity + 1) * (traffic.image_bytes + 4 * traffic.embedding_dim)
            require(nbytes <= most, f"nbytes grew to {nbytes} without more stored images; it was {self._needed}")


def tensor_bytes(memory: Any) -> int:
    """Bytes of all uint8 and floating-point tensors and arrays that are reachable from the memory's attributes."""
    buffers: dict[int, list[int]] = {}  # address -> size of the buffer, sizes of the views on it
    visited: set[int] = set()
    waiting = [memory]
    while waiting:
        value = waiting.pop()
        if id(value) in visited or isinstance(value, type | ModuleType | FunctionType | MethodType | nn.Module):
            continue
        visited.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and (value.dtype == torch.uint8 or value.is_floating_point()):
                storage = value.untyped_storage()
                buffers.setdefault(storage.data_ptr(), [storage.nbytes()]).append(value.nbytes)
        elif isinstance(value, np.ndarray):
            if value.dtype == np.uint8 or value.dtype.kind == "f":
                owner = value.base if isinstance(value.base, np.ndarray) else value
                buffers.setdefault(owner.ctypes.data, [owner.nbytes]).append(value.nbytes)
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple | set | deque):
            waiting += value
        elif hasattr(value, "__dict__"):
            waiting += vars(value).values()
    return sum(min(size, sum(views)) for size, *views in buffers.values())
