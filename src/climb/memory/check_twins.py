"""Two memories that must do alike: of one seed, or one saved and one loaded, and only one of them provoked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from climb.memory.check_draws import draw_everything
from climb.memory.check_traffic import Traffic
from climb.memory.contract import Memory, ReplayBatch
from climb.promise import promise

Make = Callable[[int], Memory]


def check_same_seed(make: Make, seed: int, capacities: int) -> None:
    """The same seed gives the same memory."""
    pair = (make(seed), make(seed))
    lockstep(pair, Traffic(pair[0], seed), capacities, "two memories with the same seed differ")


def check_callers_tensors(make: Make, seed: int) -> None:
    """Tensors given and received belong to the caller, who may write over them."""
    spoiled, spared = pair = (make(seed), make(seed))
    traffic = Traffic(spoiled, seed)
    complaint = "writing over tensors after handing them in, or after drawing them, changed the memory"
    while traffic.made < 2 * traffic.capacity:
        images, embeddings = traffic.batch(5)
        given = images.clone(), None if embeddings is None else embeddings.clone()
        spoiled.insert(*given, embed=traffic.embed)
        promise(torch.equal(given[0], images), "insert changed the images it was given")
        given[0].fill_(0)
        if embeddings is not None and given[1] is not None:
            promise(torch.equal(given[1], embeddings), "insert changed the embeddings it was given")
            given[1].fill_(1e6)
        spared.insert(images, embeddings, embed=traffic.embed)
        draws = [memory.sample(max(1, min(len(memory), 5))) for memory in pair]
        _compare_batches(draws, complaint)
        batch = draws[0]
        if batch is None:
            continue
        ids, views = batch.ids.clone(), traffic.views(batch.images)
        kept = views.clone()
        spared.refresh(ids.clone(), kept)
        spoiled.refresh(ids, views)
        promise(torch.equal(ids, batch.ids), "refresh changed the ids it was given")
        promise(torch.equal(views, kept), "refresh changed the embeddings it was given")
        views.fill_(1e6)
        batch.images.fill_(0)
        for names in (ids, batch.ids):
            names.fill_(-1)
        if batch.embeddings is not None:
            batch.embeddings.fill_(1e6)
    lockstep(pair, traffic, 1, complaint)


def check_stale_refresh(make: Make, seed: int) -> None:
    """Ids of images that have left, and ids that never were, change nothing."""
    given_stale, spared = pair = (make(seed), make(seed))
    traffic = Traffic(given_stale, seed)
    complaint = "refresh with the ids of images no longer stored changed the memory"
    named: set[int] = set()
    for _ in range(3):
        named |= set(lockstep(pair, traffic, 1, complaint))
        stored = _ids_of(_everything(pair, complaint))
        stale = _stale(named, stored)
        given_stale.refresh(stale, _of_others(stale, traffic))
        promise(len(given_stale) == len(spared), complaint)
        named |= set(stored)
    lockstep(pair, traffic, 2, complaint)


def check_mixed_refresh(make: Make, seed: int) -> None:
    """Replayed images leave while the passes over them are under way: their ids come among those that are stored."""
    mixed, spared = pair = (make(seed), make(seed))
    traffic = Traffic(mixed, seed)
    complaint = "refresh treated stored images differently when ids of images no longer stored came among theirs"
    named: set[int] = set()
    for _ in range(3):
        named |= set(lockstep(pair, traffic, 1, complaint, exact=False))
        batch = _everything(pair, complaint, exact=False)
        if batch is None:
            continue
        stored = _ids_of(batch)
        half = (len(stored) + 1) // 2
        ids, views = batch.ids[:half], traffic.views(batch.images[:half])
        spared.refresh(ids.clone(), views.clone())
        stale = _stale(named, stored)
        order = torch.from_numpy(traffic.generator.permutation(len(stale) + half))
        mixed.refresh(torch.cat([stale, ids])[order], torch.cat([_of_others(stale, traffic), views])[order])
        _everything(pair, complaint, exact=False)
        named |= set(stored)
    lockstep(pair, traffic, 2, complaint, exact=False)


def check_refresh_order(make: Make, seed: int) -> None:
    """Embeddings go by the ids beside them, not by their place."""
    pair = (make(seed), make(seed))
    traffic = Traffic(pair[0], seed)
    complaint = "refresh with the same ids and embeddings in another order changed the memory differently"
    for _ in range(4):
        lockstep(pair, traffic, 1, complaint, exact=False)
        draws = [memory.sample(max(1, len(memory) // 2)) for memory in pair]
        _compare_batches(draws, complaint, exact=False)
        if draws[0] is not None:
            ids, views = draws[0].ids, traffic.views(draws[0].images)
            order = torch.from_numpy(traffic.generator.permutation(len(ids)))
            pair[0].refresh(ids.clone(), views.clone())
            pair[1].refresh(ids[order], views[order])
    lockstep(pair, traffic, 2, complaint, exact=False)


def check_taking_a_state(make: Make, seed: int) -> None:
    """A run that is saved goes on as one that is not."""
    asked, _ = pair = (make(seed), make(seed))
    traffic = Traffic(asked, seed)
    complaint = "taking a state changed the memory: it goes on differently from one whose state_dict was not called"
    for capacities in (0.0, 0.5, 1.0, 1.0):
        lockstep(pair, traffic, capacities, complaint)
        asked.state_dict()
        promise(len(pair[0]) == len(pair[1]), complaint)
        _everything(pair, complaint)
    lockstep(pair, traffic, 1, complaint)


def check_round_trip(make: Make, seed: int) -> None:
    """Taken while filling and when full, loaded into a memory of another seed: the same future, draws included."""
    for capacities in (0.0, 0.5, 3.0):
        memory = make(seed)
        traffic = Traffic(memory, seed)
        lockstep((memory,), traffic, capacities, "")
        if traffic.made > 0 and traffic.made % traffic.capacity == 0:
            # A place that goes round is back at its start, and whether the state has it would not show.
            lockstep((memory,), traffic, 1 / traffic.capacity, "")
        content: dict[int, bytes] = {}
        draw_everything(memory, traffic, content)
        state = memory.state_dict()
        _check_plain(state, "state")
        copy, other = make(seed + 1), make(seed + 2)
        copy.load_state_dict(state)
        other.load_state_dict(state)
        complaint = f"after state_dict and load_state_dict ({traffic.made} images in) the copy differs"
        promise(len(copy) == len(memory), f"{complaint}: {len(copy)} images, not {len(memory)}")
        # Another copy goes its own way first: the state must not tie them together.
        lockstep((other,), Traffic(other, seed + 1), 2, "")
        for each in (memory, copy):
            draw_everything(each, traffic, content)
        lockstep((memory, copy), traffic, 2, complaint)


def lockstep(
    memories: tuple[Memory, ...], traffic: Traffic, capacities: float, complaint: str, *, exact: bool = True
) -> list[int]:
    """The same inserts, draws and refreshes for all; they must answer alike. All ids drawn on the way."""
    drawn: list[int] = []
    last = traffic.made + capacities * traffic.capacity
    while traffic.made < last:
        images, embeddings = traffic.batch(int(traffic.generator.integers(1, 13)))
        # Everyone is handed tensors of his own: who writes over them is found by `check_callers_tensors`.
        reports = [
            memory.insert(images.clone(), None if embeddings is None else embeddings.clone(), embed=traffic.embed)
            for memory in memories
        ]
        promise(all(report == reports[0] for report in reports), f"{complaint}: reports {reports}")
        n = max(1, len(memories[0]) // 2)
        draws = [memory.sample(n) for memory in memories]
        _compare_batches(draws, complaint, exact=exact)
        if draws[0] is not None:
            drawn += draws[0].ids.tolist()
            views = traffic.views(draws[0].images)
            for memory in memories:
                memory.refresh(draws[0].ids.clone(), views.clone())
    return drawn


def _everything(pair: tuple[Memory, Memory], complaint: str, *, exact: bool = True) -> ReplayBatch | None:
    """All that both of them store, which must be the same."""
    draws = [memory.sample(max(1, len(memory))) for memory in pair]
    _compare_batches(draws, complaint, exact=exact)
    return draws[0]


def _ids_of(batch: ReplayBatch | None) -> list[int]:
    ids: list[int] = [] if batch is None else batch.ids.tolist()
    return ids


def _stale(named: set[int], stored: list[int]) -> torch.Tensor:
    """Ids handed out once whose images have left, and two that never were; any number may be an id."""
    known = named | set(stored)
    never = [name for name in (-1, 2**40) if name not in known]
    return torch.tensor([*sorted(known - set(stored)), *never], dtype=torch.int64)


def _of_others(ids: torch.Tensor, traffic: Traffic) -> torch.Tensor:
    """Embeddings (n, d) that no image has."""
    return 100 * torch.ones(len(ids), traffic.embedding_dim)


def _compare_batches(draws: list[ReplayBatch | None], complaint: str, *, exact: bool = True) -> None:
    first = draws[0]
    for other in draws[1:]:
        if first is None or other is None:
            promise(first is other, f"{complaint}: one gave images and the other did not")
            continue
        promise(torch.equal(first.ids, other.ids), f"{complaint}: drew ids {first.ids} and {other.ids}")
        promise(torch.equal(first.images, other.images), f"{complaint}: drew different images under one id")
        if first.embeddings is not None and other.embeddings is not None:
            tolerance = 0.0 if exact else 1e-5
            same = torch.allclose(first.embeddings, other.embeddings, rtol=tolerance, atol=tolerance)
            promise(same, f"{complaint}: drew different embeddings under one id")


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            promise(isinstance(key, str), f"{where} has the key {key!r}; keys must be strings")
            _check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _check_plain(item, f"{where}[{position}]")
    else:
        promise(
            value is None or isinstance(value, torch.Tensor | bool | int | float | str),
            f"{where} is a {type(value).__name__}; allowed: tensors, numbers, strings, None, lists and dicts",
        )
