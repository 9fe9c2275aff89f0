"""Does a memory keep its promises? Random traffic, and an AssertionError that names the first broken one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.memory.check_traffic import Traffic
from climb.memory.contract import InsertReport, Memory, ReplayBatch

Make = Callable[[int], Memory]
ROUNDS_OF_CAPACITY = 6  # images driven through, in capacities: long enough for a leak to show
DRAWS = 50  # of a quarter of what is stored: even a policy with favourites then reaches another image
LEAST_COSINE = 0.99  # leaves room for unit vectors and coarse numbers; two images of one cluster are near 0.85


def check_memory(factory: Callable[..., Memory], *, seed: int = 0) -> None:
    """Drive the memories that ``factory`` makes through random traffic; AssertionError on a broken promise.

    The promises:

    - something is stored once ``capacity`` images were given, and never more than that, where the memory is bounded;
    - an id names one image, which is one that was given, and no image is stored twice;
    - `sample` gives as many different images as asked, or None until they are stored, and not always the same ones;
    - an embedding that is handed out is that of the image it is handed out with;
    - reports and bytes agree with what happened;
    - tensors given and received stay the caller's;
    - `refresh` goes by ids: their order changes nothing, and neither do ids of images that have left;
    - the same seed gives the same memory, and a saved state continues exactly.

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
    _check_same_seed(make, seed)
    _check_callers_tensors(make, seed)
    _check_stale_refresh(make, seed)
    _check_refresh_order(make, seed)
    _check_embeddings(make, seed)  # after what tells a confused refresh apart from other confusions
    _check_round_trip(make, seed)


def _promise(kept: bool, otherwise: str) -> None:
    # Not an assert statement: `python -O` must not turn the check off.
    if not kept:
        raise AssertionError(otherwise)


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
        _promise(hasattr(memory, name), f"the memory has no attribute {name}")
    _promise(memory.space in ("projector", "backbone", None), f"space is {memory.space!r}")
    _promise(memory.inserts in ("after", "before"), f"inserts is {memory.inserts!r}")
    _promise(memory.capacity >= 1, f"capacity is {memory.capacity}")
    _promise(len(memory) == 0, f"a fresh memory holds {len(memory)} images")
    _promise(memory.sample(1) is None, "an empty memory gave an image")


def _check_content(make: Make, seed: int, *, largest: int) -> None:
    """Bound, identity of images and ids, reports, sampling, bytes; mini-batches of 1 to ``largest`` images."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    content: dict[int, bytes] = {}
    while traffic.made < ROUNDS_OF_CAPACITY * memory.capacity:
        _insert_checked(memory, traffic, int(traffic.generator.integers(1, largest + 1)), content)
        n = int(traffic.generator.integers(1, memory.capacity + 1))
        batch = memory.sample(n)
        _promise(
            (batch is None) == (n > len(memory)),
            f"sample({n}) with {len(memory)} stored {'gave nothing' if batch is None else 'did not give None'}",
        )
        if batch is not None:
            _check_batch(batch, n, traffic, content)
            memory.refresh(batch.ids, traffic.views(batch.images))
            _check_everything(memory, traffic, content)
        if traffic.made >= memory.capacity:
            _promise(
                len(memory) > 0, f"nothing is stored after {traffic.made} images; the capacity is {memory.capacity}"
            )


def _check_large_batch(make: Make, seed: int) -> None:
    memory = make(seed)
    traffic = Traffic(memory, seed)
    _insert_checked(memory, traffic, 2 * memory.capacity + 3, {})


def _check_draws_vary(make: Make, seed: int) -> None:
    """Refreshed between draws, as in training; asked only where far more is stored than drawn."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    _lockstep((memory,), traffic, 3, "")
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
    _promise(
        len(drawn) > n,
        f"sample({n}) gave the same {n} images {DRAWS} times, with {stored} stored; draws must be at random",
    )


def _check_embeddings(make: Make, seed: int) -> None:
    """The encoder stands still here, so that a refresh moves no embedding that is where it belongs."""
    memory = make(seed)
    traffic = Traffic(memory, seed)
    while traffic.made < 3 * memory.capacity:
        images, embeddings = traffic.batch(int(traffic.generator.integers(1, 13)))
        memory.insert(images, embeddings, embed=traffic.embed)
        batch = memory.sample(max(1, len(memory) // 2))
        if batch is None:
            continue
        own = traffic.embed(batch.images)
        if batch.embeddings is not None:
            cosines = F.cosine_similarity(batch.embeddings.cpu().float(), own)
            for name, cosine in zip(batch.ids.tolist(), cosines.tolist(), strict=True):
                _promise(
                    cosine > LEAST_COSINE,
                    f"the embedding drawn with id {name} is not that of its image: the cosine with the one that was "
                    f"given is {cosine:.3f}; it must be above {LEAST_COSINE}",
                )
        memory.refresh(batch.ids, own)


def _insert_checked(memory: Memory, traffic: Traffic, n: int, content: dict[int, bytes]) -> None:
    before = len(memory)
    images, embeddings = traffic.batch(n)
    report = memory.insert(images, embeddings, embed=traffic.embed)
    after = len(memory)
    if memory.bounded:
        _promise(after <= memory.capacity, f"{after} images stored, the capacity is {memory.capacity}")
    _check_report(report, n)
    _promise(
        after - before <= report.novel + report.joined,
        f"grew by {after - before} images, but the report has {report.novel} novel and {report.joined} joined",
    )
    stored = _check_everything(memory, traffic, content)
    fresh = sum(image.numpy().tobytes() in stored for image in images)
    _promise(
        fresh <= n - report.rejected,
        f"{fresh} of {n} given images are stored, but the report has {report.rejected} rejected",
    )
    _check_bytes(memory, traffic)


def _check_report(report: InsertReport, n: int) -> None:
    counts = dataclasses.asdict(report)
    _promise(all(count >= 0 for count in counts.values()), f"negative count in the report: {report}")
    total = report.novel + report.joined + report.replaced + report.rejected
    _promise(total == n, f"{n} images given, but novel + joined + replaced + rejected = {total}: {report}")


def _check_bytes(memory: Memory, traffic: Traffic) -> None:
    least = len(memory) * traffic.image_bytes
    _promise(memory.nbytes > 0, f"nbytes is {memory.nbytes}")
    _promise(memory.nbytes >= least, f"nbytes is {memory.nbytes}, but the stored images alone take {least}")
    if memory.bounded:
        # Per image: itself, an embedding of its own, a share of a centroid; and as much again for spare room.
        most = 4 * (memory.capacity + 1) * (traffic.image_bytes + traffic.embedding_bytes)
        _promise(memory.nbytes <= most, f"nbytes grew to {memory.nbytes}, above {most} for this capacity")


def _check_everything(memory: Memory, traffic: Traffic, content: dict[int, bytes]) -> set[bytes]:
    """Draw all that is stored; the images, as bytes."""
    stored = len(memory)
    if not stored:
        return set()
    batch = memory.sample(stored)
    if batch is None:
        raise AssertionError(f"sample({stored}) gave nothing with {stored} stored")
    _check_batch(batch, stored, traffic, content)
    return {image.numpy().tobytes() for image in batch.images.cpu()}


def _check_batch(batch: ReplayBatch, n: int, traffic: Traffic, content: dict[int, bytes]) -> None:
    shape = (n, *traffic.image_shape)
    _promise(batch.images.dtype == torch.uint8, f"sampled images are {batch.images.dtype}, not torch.uint8")
    _promise(tuple(batch.images.shape) == shape, f"sampled {tuple(batch.images.shape)}, not {shape}")
    _promise(batch.ids.dtype == torch.int64, f"ids are {batch.ids.dtype}, not torch.int64")
    _promise(batch.ids.device.type == "cpu", f"ids are on {batch.ids.device}, not on the CPU")
    _promise(tuple(batch.ids.shape) == (n,), f"ids have shape {tuple(batch.ids.shape)}, not ({n},)")
    if batch.embeddings is not None:
        expected = (n, traffic.embedding_dim)
        given = tuple(batch.embeddings.shape)
        _promise(given == expected, f"sampled embeddings have shape {given}, not {expected}")
    ids = batch.ids.tolist()
    _promise(len(set(ids)) == n, f"sample({n}) gave an id twice: {sorted(ids)}")
    images = [image.numpy().tobytes() for image in batch.images.cpu()]
    _promise(len(set(images)) == n, f"sample({n}) gave an image twice, under two ids: it is stored twice")
    for name, image in zip(ids, images, strict=True):
        _promise(image in traffic.sent, f"the image with id {name} is not one that was inserted")
        _promise(content.setdefault(name, image) == image, f"id {name} now names another image than before")


def _check_same_seed(make: Make, seed: int) -> None:
    pair = (make(seed), make(seed))
    _lockstep(pair, Traffic(pair[0], seed), ROUNDS_OF_CAPACITY, "two memories with the same seed differ")


def _check_callers_tensors(make: Make, seed: int) -> None:
    """Tensors given and received belong to the caller, who may write over them."""
    spoiled, spared = pair = (make(seed), make(seed))
    traffic = Traffic(spoiled, seed)
    complaint = "writing over tensors after handing them in, or after drawing them, changed the memory"
    while traffic.made < 2 * spoiled.capacity:
        images, embeddings = traffic.batch(5)
        given = images.clone(), None if embeddings is None else embeddings.clone()
        spoiled.insert(*given, embed=traffic.embed)
        _promise(torch.equal(given[0], images), "insert changed the images it was given")
        given[0].fill_(0)
        if embeddings is not None and given[1] is not None:
            _promise(torch.equal(given[1], embeddings), "insert changed the embeddings it was given")
            given[1].fill_(1e6)
        spared.insert(images, embeddings, embed=traffic.embed)
        draws = [memory.sample(min(len(memory), 5)) for memory in pair]
        _compare_batches(draws, complaint)
        batch = draws[0]
        if batch is None:
            continue
        ids, views = batch.ids.clone(), traffic.views(batch.images)
        kept = views.clone()
        spared.refresh(ids, kept)
        spoiled.refresh(ids, views)
        _promise(torch.equal(views, kept), "refresh changed the embeddings it was given")
        views.fill_(1e6)
        batch.images.fill_(0)
        batch.ids.fill_(-1)
        if batch.embeddings is not None:
            batch.embeddings.fill_(1e6)
    _lockstep(pair, traffic, 1, complaint)


def _check_stale_refresh(make: Make, seed: int) -> None:
    """Ids of images that have left, and ids that never were, change nothing."""
    given_stale, spared = pair = (make(seed), make(seed))
    traffic = Traffic(given_stale, seed)
    complaint = "refresh with the ids of images no longer stored changed the memory"
    named: set[int] = set()
    for _ in range(3):
        named |= set(_lockstep(pair, traffic, 1, complaint))
        everything = [memory.sample(len(memory)) for memory in pair]
        _compare_batches(everything, complaint)
        stored = set() if everything[0] is None else set(everything[0].ids.tolist())
        stale = torch.tensor([*sorted(named - stored), -1, 2**40])
        given_stale.refresh(stale, 100 * torch.ones(len(stale), traffic.embedding_dim))
        _promise(len(given_stale) == len(spared), complaint)
    _lockstep(pair, traffic, 2, complaint)


def _check_refresh_order(make: Make, seed: int) -> None:
    pair = (make(seed), make(seed))
    traffic = Traffic(pair[0], seed)
    complaint = "refresh with the same ids and embeddings in another order changed the memory differently"
    for _ in range(4):
        _lockstep(pair, traffic, 1, complaint, exact=False)
        draws = [memory.sample(max(1, len(memory) // 2)) for memory in pair]
        _compare_batches(draws, complaint, exact=False)
        if draws[0] is not None:
            ids, views = draws[0].ids, traffic.views(draws[0].images)
            order = torch.from_numpy(traffic.generator.permutation(len(ids)))
            pair[0].refresh(ids, views)
            pair[1].refresh(ids[order], views[order])
    _lockstep(pair, traffic, 2, complaint, exact=False)


def _check_round_trip(make: Make, seed: int) -> None:
    """Taken while filling and when full, loaded into a memory of another seed: the same future, draws included."""
    for capacities in (0.0, 0.5, 3.0):
        memory = make(seed)
        traffic = Traffic(memory, seed)
        _lockstep((memory,), traffic, capacities, "")
        if traffic.made > 0 and traffic.made % memory.capacity == 0:
            # A place that goes round is back at its start, and whether the state has it would not show.
            _lockstep((memory,), traffic, 1 / memory.capacity, "")
        content: dict[int, bytes] = {}
        _check_everything(memory, traffic, content)
        state = memory.state_dict()
        _check_plain(state, "state")
        copy, other = make(seed + 1), make(seed + 2)
        copy.load_state_dict(state)
        other.load_state_dict(state)
        complaint = f"after state_dict and load_state_dict ({traffic.made} images in) the copy differs"
        _promise(len(copy) == len(memory), f"{complaint}: {len(copy)} images, not {len(memory)}")
        # Another copy goes its own way first: the state must not tie them together.
        _lockstep((other,), Traffic(other, seed + 1), 2, "")
        for each in (memory, copy):
            _check_everything(each, traffic, content)
        _lockstep((memory, copy), traffic, 2, complaint)


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _promise(isinstance(key, str), f"{where} has the key {key!r}; keys must be strings")
            _check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _check_plain(item, f"{where}[{position}]")
    else:
        _promise(
            value is None or isinstance(value, torch.Tensor | bool | int | float | str),
            f"{where} is a {type(value).__name__}; allowed: tensors, numbers, strings, None, lists and dicts",
        )


def _lockstep(
    memories: tuple[Memory, ...], traffic: Traffic, capacities: float, complaint: str, *, exact: bool = True
) -> list[int]:
    """The same inserts, draws and refreshes for all; they must answer alike. All ids drawn on the way."""
    drawn: list[int] = []
    last = traffic.made + capacities * memories[0].capacity
    while traffic.made < last:
        images, embeddings = traffic.batch(int(traffic.generator.integers(1, 13)))
        reports = [
            memory.insert(images.clone(), None if embeddings is None else embeddings.clone(), embed=traffic.embed)
            for memory in memories
        ]
        _promise(all(report == reports[0] for report in reports), f"{complaint}: reports {reports}")
        n = max(1, len(memories[0]) // 2)
        draws = [memory.sample(n) for memory in memories]
        _compare_batches(draws, complaint, exact=exact)
        if draws[0] is not None:
            drawn += draws[0].ids.tolist()
            views = traffic.views(draws[0].images)
            for memory in memories:
                memory.refresh(draws[0].ids, views.clone())
    return drawn


def _compare_batches(draws: list[ReplayBatch | None], complaint: str, *, exact: bool = True) -> None:
    first = draws[0]
    for other in draws[1:]:
        if first is None or other is None:
            _promise(first is other, f"{complaint}: one gave images and the other did not")
            continue
        _promise(torch.equal(first.ids, other.ids), f"{complaint}: drew ids {first.ids} and {other.ids}")
        _promise(torch.equal(first.images, other.images), f"{complaint}: drew different images under one id")
        if first.embeddings is not None and other.embeddings is not None:
            tolerance = 0.0 if exact else 1e-5
            same = torch.allclose(first.embeddings, other.embeddings, rtol=tolerance, atol=tolerance)
            _promise(same, f"{complaint}: drew different embeddings under one id")
