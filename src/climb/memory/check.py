"""Does a memory keep its promises? Random traffic, and an AssertionError that names the first broken one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.memory.check_draws import check_draw, draw_everything
from climb.memory.check_report import ByteCount, check_report
from climb.memory.check_traffic import Traffic, pixels_of
from climb.memory.check_twins import (
    Make,
    check_callers_tensors,
    check_mixed_refresh,
    check_refresh_order,
    check_round_trip,
    check_same_seed,
    check_stale_refresh,
    check_taking_a_state,
    lockstep,
)
from climb.memory.contract import Memory
from climb.promise import promise

ROUNDS_OF_CAPACITY = 6  # images driven through, in capacities: long enough for a leak to show
DRAWS = 50  # of a quarter of what is stored: even a policy with favourites then reaches another image
LEAST_COSINE = 0.99  # leaves room for unit vectors and coarse numbers; two images of one cluster are near 0.85


def check_memory(factory: Callable[..., Memory], *, seed: int = 0) -> None:
    """Drive the memories that ``factory`` makes through random traffic; AssertionError on a broken promise.

    The promises:

    - something is stored once ``capacity`` images were given, and never more than that, where the memory is bounded;
      of one without a bound, once 30 were given;
    - an id names one image, which is one that was given, and no image is stored twice;
    - `sample` gives as many different images as asked, or None until they are stored, and not always the same ones;
    - an embedding that is handed out is float32, and that of the image it is handed out with;
    - reports and bytes agree with what is seen, and bytes do not grow once a bounded memory is full;
    - tensors given and received stay the caller's;
    - `refresh` goes by ids: their order changes nothing, and neither do ids of images that have left, alone or among
      others;
    - the same seed gives the same memory, a saved state continues exactly, and taking it changes nothing.

    The bound is looked at after each mini-batch, of one image and of many, and when `insert` calls ``embed``: what
    happens between the images of a mini-batch cannot be seen from outside.

    Which images are kept and preferred is the memory's own affair. One that takes nothing more once it is full passes,
    and so does one that ignores `refresh`.

    ``factory`` takes the keyword ``seed``, or nothing, and returns a fresh memory with ``image_shape`` and
    ``embedding_dim`` as attributes. Make it small: several times its capacity is driven through it, often.

    >>> from climb.memory import FifoMemory
    >>> check_memory(lambda seed: FifoMemory(20, (3, 8, 8), 16, seed=seed))
    """
    make = _maker(factory)
    _check_attributes(make(seed))
    _check_content(make, seed, largest=1)
    _check_content(make, seed, largest=12)
    _check_large_batch(make, seed)
    _check_draws_vary(make, seed)
    check_same_seed(make, seed, ROUNDS_OF_CAPACITY)
    check_callers_tensors(make, seed)
    check_stale_refresh(make, seed)
    check_refresh_order(make, seed)
    check_mixed_refresh(make, seed)
    _check_embeddings(make, seed)  # after what tells a confused refresh apart from other confusions
    check_taking_a_state(make, seed)
    check_round_trip(make, seed)


def _maker(factory: Callable[..., Memory]) -> Make:
    signature = inspect.signature(factory)
    for arguments in ({"seed": 0}, {}):
        try:
            signature.bind(**arguments)
        except TypeError:
            continue
        return (lambda seed: factory(seed=seed)) if arguments else (lambda seed: factory())
    raise InputError(
        f"the factory's signature is {signature}; it must be callable as factory(seed=0) or factory(). "
        "Try: check_memory(lambda seed: MyMemory(60, (3, 8, 8), 16, seed=seed))"
    )


def _check_attributes(memory: Memory) -> None:
    for name in ("space", "inserts", "bounded", "capacity", "image_shape", "embedding_dim"):
        promise(hasattr(memory, name), f"the memory has no attribute {name}")
    spaces = "allowed: 'projector', 'backbone', None"
    promise(memory.space in ("projector", "backbone", None), f"space is {memory.space!r}; {spaces}")
    promise(memory.inserts in ("after", "before"), f"inserts is {memory.inserts!r}; allowed: 'after', 'before'")
    if memory.bounded:
        whole = isinstance(memory.capacity, Integral)
        promise(whole and memory.capacity >= 1, f"capacity is {memory.capacity}; a bound is a whole number above 0")
    promise(len(memory) == 0, f"a fresh memory holds {len(memory)} images")
    promise(memory.sample(1) is None, "an empty memory gave an image")


def _check_content(make: Make, seed: int, *, largest: int) -> None:
    """Bound, identity of images and ids, reports, sampling, bytes; mini-batches of 1 to ``largest`` images."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    content: dict[int, bytes] = {}
    count = ByteCount()
    while traffic.made < ROUNDS_OF_CAPACITY * traffic.capacity:
        _insert_checked(memory, traffic, int(traffic.generator.integers(1, largest + 1)), content, count)
        n = int(traffic.generator.integers(1, traffic.capacity + 1))
        batch = memory.sample(n)
        promise(
            (batch is None) == (n > len(memory)),
            f"sample({n}) with {len(memory)} stored {'gave nothing' if batch is None else 'did not give None'}",
        )
        if batch is not None:
            check_draw(batch, n, traffic, content)
            memory.refresh(batch.ids, traffic.views(batch.images))
            draw_everything(memory, traffic, content)
        if traffic.made >= traffic.capacity:
            bound = f"; the capacity is {traffic.capacity}" if memory.bounded else ""
            promise(len(memory) > 0, f"nothing is stored after {traffic.made} images{bound}")


def _check_large_batch(make: Make, seed: int) -> None:
    memory = make(seed)
    traffic = Traffic(memory, seed)
    _insert_checked(memory, traffic, 2 * traffic.capacity + 3, {}, ByteCount())


def _check_draws_vary(make: Make, seed: int) -> None:
    """Refreshed between draws, as in training; asked only where far more is stored than drawn."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    lockstep((memory,), traffic, 3, "")
    stored = len(memory)
    n = stored // 4
    if n == 0:
        return
    drawn: set[int] = set()
    for _ in range(DRAWS):
        batch = memory.sample(n)
        if batch is None:
            raise AssertionError(f"sample({n}) gave nothing with {stored} stored")
        drawn |= set(batch.ids.tolist())
        memory.refresh(batch.ids, traffic.views(batch.images))
    promise(
        len(drawn) > n,
        f"sample({n}) gave the same {n} images {DRAWS} times, with {stored} stored; draws must be at random",
    )


def _check_embeddings(make: Make, seed: int) -> None:
    """The encoder stands still here, so that a refresh moves no embedding that is where it belongs."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    while traffic.made < 3 * traffic.capacity:
        images, embeddings = traffic.batch(int(traffic.generator.integers(1, 13)))
        memory.insert(images, embeddings, embed=traffic.embed)
        batch = memory.sample(max(1, len(memory) // 2))
        if batch is None:
            continue
        own = traffic.embed(batch.images)
        if batch.embeddings is not None:
            cosines = F.cosine_similarity(batch.embeddings.cpu().float(), own)
            for name, cosine in zip(batch.ids.tolist(), cosines.tolist(), strict=True):
                promise(
                    cosine > LEAST_COSINE,
                    f"the embedding drawn with id {name} is not that of its image: the cosine with the one that was "
                    f"given is {cosine:.3f}; it must be above {LEAST_COSINE}",
                )
        memory.refresh(batch.ids, own)


def _insert_checked(memory: Memory, traffic: Traffic, n: int, content: dict[int, bytes], count: ByteCount) -> None:
    before = len(memory)
    images, embeddings = traffic.batch(n)

    def embed(some: torch.Tensor) -> torch.Tensor:
        _check_bound(memory, traffic, " while insert calls embed")
        return traffic.embed(some)

    given = images.clone(), None if embeddings is None else embeddings.clone()
    report = memory.insert(*given, embed=embed)
    _check_bound(memory, traffic, "")
    batch, everything = draw_everything(memory, traffic, content)
    row_of = {image: row for row, image in enumerate(everything)}
    fresh = {place: row_of[image] for place, image in enumerate(pixels_of(images)) if image in row_of}
    check_report(report, n, before=before, after=len(memory), fresh=len(fresh), capacity=traffic.capacity)

    number_bytes = 0
    if batch is not None and batch.embeddings is not None:
        # A memory may keep coarse numbers, of a byte at least. One that gives back every bit keeps every bit.
        kept = batch.embeddings[list(fresh.values())].cpu()
        exact = embeddings is not None and (kept == embeddings[list(fresh)]).all(1).any()
        number_bytes = 4 if exact else 1
    count.check(memory, traffic, number_bytes)


def _check_bound(memory: Memory, traffic: Traffic, when: str) -> None:
    if memory.bounded:
        capacity = memory.capacity
        promise(capacity == traffic.capacity, f"capacity was {traffic.capacity} and is {capacity}; a bound stays")
        promise(len(memory) <= capacity, f"{len(memory)} images stored{when}, the capacity is {capacity}")
