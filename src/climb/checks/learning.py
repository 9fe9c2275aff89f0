"""A short training with one task boundary, and all that must hold in it."""

from __future__ import annotations

from dataclasses import replace

from climb.checks.budget import check_counters, check_forwards, check_passes, check_spent
from climb.checks.trial import BATCHES, images, observe, trainable
from climb.checks.watch import Given, Seen, watched
from climb.engine import Engine, Observation
from climb.promise import promise


def check_optimizer(engine: Engine) -> None:
    """Every trainable parameter of the parts is in it once."""
    groups = engine._eager_step.optimizer.param_groups
    held = [id(parameter) for group in groups for parameter in group["params"]]
    for name, parameter in trainable(engine).items():
        times = held.count(id(parameter))
        promise(times == 1, f"the optimiser holds {name} {times} times; it must hold it once")


def check_learning(engine: Engine, seed: int, *, own_loop: bool) -> tuple[list[Observation], Given | None]:
    """Losses, counters, bound, replay and movement; what was observed, and a step as it is usually taken."""
    start = {name: parameter.detach().clone() for name, parameter in trainable(engine).items()}
    with watched(engine, own_loop=own_loop) as seen:
        observed = _trained(engine, seen, seed, own_loop=own_loop)
    promise(seen.asked["objective"] > 0, "the objective was never asked for its loss")
    if not own_loop:
        _check_replay(engine)
    _check_alignment(engine, seen)
    now = trainable(engine)
    promise(now.keys() == start.keys(), f"parameters came or went: {sorted(now.keys() ^ start.keys())}")
    for name, parameter in now.items():
        promise(bool(parameter.isfinite().all()), f"{name} is no longer finite")
        moved = not parameter.equal(start[name])
        promise(moved, f"{name} is trainable, but never moved: nothing trains it")
    return observed, seen.step


def _trained(engine: Engine, seen: Seen, seed: int, *, own_loop: bool) -> list[Observation]:
    """The mini-batches one by one, with what must hold after each."""
    observed = []
    full: dict[str, int] | None = None  # the budget as it was when batches should be full
    for number in range(BATCHES):
        before, forwards = engine.budget.state_dict(), replace(seen.forwards)
        settled = not own_loop and (engine.parts.memory is None or engine._replayed)
        if full is None and number >= BATCHES // 2 and settled:
            full = before
        observed.append(observe(engine, seed, number))
        after = engine.budget.state_dict()
        check_counters(before, after, len(images(engine, seed, number)))
        if not own_loop:
            check_passes(engine, seen)
            given, now = after["forward_only"] - before["forward_only"], seen.forwards
            check_forwards(given, now.rows - forwards.rows, now.most - forwards.most, settled=settled)
        _check_bound(engine)
        if number == BATCHES // 2:
            promise(engine.budget.steps > 0, f"no gradient step was taken in {engine.budget.images} images")
    if full is not None:
        check_spent(engine, full)
    return observed


def _check_bound(engine: Engine) -> None:
    memory = engine.parts.memory
    if memory is None or not memory.bounded:
        return
    allowed = engine.config.memory.capacity
    promise(memory.capacity <= allowed, f"the memory's capacity is {memory.capacity}; configured are {allowed}")
    promise(len(memory) <= memory.capacity, f"{len(memory)} images stored, the capacity is {memory.capacity}")


def _check_replay(engine: Engine) -> None:
    memory = engine.parts.memory
    if memory is None:
        return
    promise(
        engine._replayed,
        f"no stored image was replayed in {engine.budget.images} images: the memory holds {len(memory)}, and "
        f"{type(engine.parts.batch).__name__} made no batch with replay rows. A method that does not replay has "
        "memory=None",
    )


def _check_alignment(engine: Engine, seen: Seen) -> None:
    if engine.parts.alignment is None:
        return
    asked = seen.asked["alignment"]
    promise(asked > 0, f"the alignment never had a say in {BATCHES} mini-batches")
    promise(
        seen.held,
        f"the alignment holds nothing: none of its {asked} losses, times its weight, had a gradient other than zero "
        "that reaches the embeddings, the features or the network's weights. It is a constant, was computed without "
        "gradient, is about the alignment's own parameters alone, has a weight of 0, or begins later than this",
    )
