"""Checks that compare two memories: of one seed, or one saved and one loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from climb.memory.contract import Memory, ReplayBatch
from climb.testing.contract import require
from climb.testing.memory_traffic import Traffic, copied
from climb.testing.trial import same

Make = Callable[[int], Memory]
Check = Callable[[Make, int], None]
OVERWRITTEN = {torch.uint8: 0, torch.int64: -1, torch.float32: 1e6}  # value of a spoiled tensor, by its type


@dataclass
class Lockstep:
    """Memories that are driven alike and must return the same."""

    memories: tuple[Memory, ...]
    traffic: Traffic
    message: str = ""
    """How errors begin."""
    tolerance: float = 0.0
    """Absolute and relative difference of sampled embeddings."""
    known: set[int] = field(default_factory=set)
    """All sampled ids."""

    def replays(self, capacities: float) -> Iterator[ReplayBatch]:
        """Insert so many capacities of images; the images sampled after each mini-batch."""
        traffic = self.traffic
        last = traffic.made + capacities * traffic.capacity
        while traffic.made < last:
            images, embeddings = traffic.batch(int(traffic.generator.integers(1, 13)))
            reports = [memory.insert(*copied(images, embeddings), embed=traffic.embed) for memory in self.memories]
            require(all(report == reports[0] for report in reports), f"{self.message}: reports {reports}")
            batch = self.sample(len(self.memories[0]) // 2)
            if batch is not None:
                yield batch

    def run(self, capacities: float) -> None:
        """Insert so many capacities of images; refresh what was sampled after each mini-batch."""
        for batch in self.replays(capacities):
            views = self.traffic.views(batch.images)
            for memory in self.memories:
                memory.refresh(batch.ids.clone(), views.clone())

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` images, at least one, of the first memory; all others must return the same."""
        first, *others = [memory.sample(max(1, n)) for memory in self.memories]
        for other in others:
            if first is None or other is None:
                require(first is other, f"{self.message}: one returned images and the other did not")
                continue
            require(torch.equal(first.ids, other.ids), f"{self.message}: sampled ids {first.ids} and {other.ids}")
            require(torch.equal(first.images, other.images), f"{self.message}: sampled different images under one id")
            if first.embeddings is not None and other.embeddings is not None:
                near = torch.allclose(first.embeddings, other.embeddings, rtol=self.tolerance, atol=self.tolerance)
                require(near, f"{self.message}: sampled different embeddings under one id")
        if first is not None:
            self.known.update(first.ids.tolist())
        return first

    def stale(self, batch: ReplayBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids of images that are not in a batch of all stored ones, and embeddings (n, d) that belong to no image."""
        # Two ids that were never used come last; any number may be an id.
        ids = [*sorted(self.known - set(batch.ids.tolist())), *sorted({-1, 2**40} - self.known)]
        return torch.tensor(ids, dtype=torch.int64), 100 * torch.ones(len(ids), self.traffic.embedding_dim)


# -- two memories of one seed --------------------------------------------------------------------------------------


Refresh = Callable[[Lockstep, ReplayBatch, torch.Tensor], None]


def _two(make: Make, seed: int, message: str, tolerance: float = 0.0) -> Lockstep:
    pair = (make(seed), make(seed))
    return Lockstep(pair, Traffic(pair[0], seed), message, tolerance)


def _check_same_seed(make: Make, seed: int) -> None:
    _two(make, seed, "two memories with the same seed differ").run(6)


def _check_callers_tensors(make: Make, seed: int) -> None:
    """One memory's inputs and outputs are overwritten after each call."""
    message = "overwriting tensors that were passed to or returned from the memory changed the memory"
    both = _two(make, seed, message)
    (spoiled, spared), traffic = both.memories, both.traffic
    while traffic.made < 2 * traffic.capacity:
        images, embeddings = traffic.batch(5)
        own = copied(images, embeddings)
        spoiled.insert(*own, embed=traffic.embed)
        _overwrite("insert", images=(own[0], images), embeddings=(own[1], embeddings))
        spared.insert(images, embeddings, embed=traffic.embed)
        batch = both.sample(min(len(spoiled), 5))
        if batch is None:
            continue
        ids, views = batch.ids.clone(), traffic.views(batch.images)
        unchanged = views.clone()
        spared.refresh(ids.clone(), unchanged.clone())
        spoiled.refresh(ids, views)
        _overwrite("refresh", ids=(ids, batch.ids), embeddings=(views, unchanged))
        _overwrite("sample", **{name: (tensor, tensor) for name, tensor in vars(batch).items()})
    both.run(1)


def _overwrite(call: str, **tensors: tuple[torch.Tensor | None, torch.Tensor | None]) -> None:
    """Require that a call did not change tensors passed to it, each given with its original, and overwrite them."""
    for name, (tensor, original) in tensors.items():
        if tensor is not None and original is not None:
            require(torch.equal(tensor, original), f"{call} changed the {name} passed to it")
            tensor.fill_(OVERWRITTEN[tensor.dtype])


def _leaves_both_equal(message: str, *, tolerance: float = 1e-5) -> Callable[[Refresh], Check]:
    """A decorator for functions that refresh the two memories differently, and must leave them equal.

    Such a function receives the memories, a batch of all stored images, and their embeddings later in training.
    """

    def decorate(refresh: Refresh) -> Check:
        def check(make: Make, seed: int) -> None:
            both = _two(make, seed, message, tolerance)
            for _ in range(4):
                both.run(1)
                batch = both.sample(len(both.memories[1]))
                if batch is not None:
                    refresh(both, batch, both.traffic.views(batch.images))
                    both.sample(len(both.memories[1]))
            both.run(2)

        return check

    return decorate


@_leaves_both_equal("refresh with the ids of images no longer stored changed the memory", tolerance=0.0)
def _check_stale_refresh(both: Lockstep, batch: ReplayBatch, views: torch.Tensor) -> None:
    both.memories[0].refresh(*both.stale(batch))


@_leaves_both_equal("refresh with the same ids and embeddings in another order changed the memory differently")
def _check_refresh_order(both: Lockstep, batch: ReplayBatch, views: torch.Tensor) -> None:
    one, other = both.memories
    order = torch.from_numpy(both.traffic.generator.permutation(len(views)))
    one.refresh(batch.ids.clone(), views.clone())
    other.refresh(batch.ids[order], views[order])


@_leaves_both_equal("refresh treated stored images differently when mixed with ids of images no longer stored")
def _check_mixed_refresh(both: Lockstep, batch: ReplayBatch, views: torch.Tensor) -> None:
    """As if images had left during the passes."""
    mixed, spared = both.memories
    half = (len(views) + 1) // 2
    spared.refresh(batch.ids[:half].clone(), views[:half].clone())
    stale, foreign = both.stale(batch)
    order = torch.from_numpy(both.traffic.generator.permutation(len(stale) + half))
    mixed.refresh(torch.cat([stale, batch.ids[:half]])[order], torch.cat([foreign, views[:half]])[order])


PAIR_CHECKS = (
    ("the same seed gives the same memory", _check_same_seed),
    ("tensors passed to and returned from the memory belong to the caller", _check_callers_tensors),
    ("refresh ignores ids of images no longer stored", _check_stale_refresh),
    ("the order of ids in refresh has no effect", _check_refresh_order),
    ("refresh ignores ids of images no longer stored among others", _check_mixed_refresh),
)


# -- saved states --------------------------------------------------------------------------------------------------


def _check_taking_a_state(make: Make, seed: int) -> None:
    """The state of one memory is taken now and then; neither it nor the memory may change by the other."""
    message = "taking a state changed the memory: it continues differently from one whose state_dict was not called"
    both = _two(make, seed, message)
    saved, spared = both.memories
    for capacities in (0.5, 1.0, 1.0, 1.0):
        state = saved.state_dict()
        before = _plain_values(copy.deepcopy(state))
        require(len(saved) == len(spared), message)
        both.sample(len(spared))
        both.run(capacities)
        after = _plain_values(state)
        for place in before | after:
            require(
                place in before and place in after and same(before[place], after[place]),
                f"{place} changed after state_dict had returned: it shares data with the memory; copy it",
            )


def _check_round_trip(make: Make, seed: int) -> None:
    """Saved while filling and when full, and loaded into a memory of another seed."""
    for capacities in (0.0, 0.5, 3.0):
        memory = make(seed)
        traffic = Traffic(memory, seed)
        alone = Lockstep((memory,), traffic)
        alone.run(capacities)
        if traffic.made > 0 and traffic.made % traffic.capacity == 0:
            # A ring buffer is back at its start; whether its position was saved would not show.
            alone.run(1 / traffic.capacity)
        traffic.check_all(memory)
        state = memory.state_dict()
        _plain_values(state)
        loaded, other = make(seed + 1), make(seed + 2)
        loaded.load_state_dict(state)
        other.load_state_dict(state)
        message = f"after state_dict and load_state_dict ({traffic.made} images in) the loaded memory differs"
        require(len(loaded) == len(memory), f"{message}: {len(loaded)} images, not {len(memory)}")
        # A second loaded memory changes first: the state must not connect the two.
        Lockstep((other,), Traffic(other, seed + 1)).run(2)
        for each in (memory, loaded):
            traffic.check_all(each)
        Lockstep((memory, loaded), traffic, message).run(2)


STATE_CHECKS = (
    ("taking a state has no effect on the memory", _check_taking_a_state),
    ("a loaded state continues exactly", _check_round_trip),
)


def _plain_values(state: Any, place: str = "state") -> dict[str, Any]:
    """The tensors, numbers and strings of a state by their place, such as ``state['images']``; rejects others."""
    if isinstance(state, dict | list):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        names = [key for key in state if isinstance(state, dict) and not isinstance(key, str)]
        require(not names, f"{place} has the keys {names}; keys must be strings")
        return {at: leaf for key, item in items for at, leaf in _plain_values(item, f"{place}[{key!r}]").items()}
    require(
        state is None or isinstance(state, torch.Tensor | bool | int | float | str),
        f"{place} is a {type(state).__name__}; allowed: tensors, numbers, strings, None, lists and dicts",
    )
    return {place: state}
