"""Contracts of `check_method` during a short training, and on what is learned."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from climb.engine import Engine, Observation
from climb.engine.health import COLLAPSED, ONE_DIRECTION, Health, feature_health, health
from climb.engine.step import trainable
from climb.nets import frozen
from climb.settings.config import LearnerConfig
from climb.testing.contract import ContractViolation, contract, require
from climb.testing.hooks import Record, StepInputs, recorded
from climb.testing.trial import BATCHES, build, mini_batch, observe, optimized

LEAST_SPENT = 0.995  # of the declared backward passes
# The least spread of each output of the network. Running statistics of a norm lag behind young weights: all evaluated
# embeddings then share an offset, and their spread is small without a collapse. Healthy networks are above 0.05.
LEAST_SPREAD = {"features": COLLAPSED, "embeddings": COLLAPSED, "embeddings, as evaluated,": 0.05}
STEPS = 20
# A loss decreases if it is lower at the later step in so many of all 190 pairs of steps; this tolerates a slow start
# and a bump. Noise of any distribution passes in 4 of 10 000 cases.
IN_ORDER = 145
# Or if the first loss exceeds the mean of the last ones by so many of their standard deviations: with few views a
# margin is reached after a step or two. Normal noise passes in 5 of 10 000 cases, heavy-tailed noise in more.
LAST, STANDS_OUT = 10, 5.0
# A learning rate for long streams may overshoot on repeated views, so the check uses at most this one and, if the loss
# does not decrease, a tenth. With two tries, normal noise passes in less than two of 1000 cases.
GENTLE_LR = 0.03


def check_optimizer(engine: Engine) -> None:
    """Every trainable parameter of the parts is in the optimiser once."""
    stepped = [id(tensor) for tensor in optimized(engine)]
    for name, parameter in trainable(engine.parts).items():
        times = stepped.count(id(parameter))
        require(times == 1, f"the optimiser holds {name} {times} times; it must hold it once")


def check_training(engine: Engine, seed: int, *, custom_engine: bool) -> tuple[list[Observation], StepInputs | None]:
    """Train with one task boundary; returns the observations and the inputs of a typical step."""
    start = {name: parameter.detach().clone() for name, parameter in trainable(engine.parts).items()}
    with recorded(engine, custom_engine=custom_engine) as record:
        observations = _train(engine, record, seed, custom_engine=custom_engine)
    require(record.calls["objective"] > 0, "the objective was never called")
    memory, calls = engine.parts.memory, record.calls["alignment"]
    require(
        custom_engine or memory is None or engine._replayed,
        f"no stored image was replayed in {engine.budget.images} images: the memory holds "
        f"{0 if memory is None else len(memory)}, and {type(engine.parts.batch).__name__} made no batch with replay "
        "rows. A method that does not replay has memory=None",
    )
    aligns = engine.parts.alignment is not None
    require(calls > 0 or not aligns, f"the alignment was never called in {BATCHES} mini-batches")
    require(
        record.aligned or not aligns,
        f"the alignment has no effect: none of its {calls} losses, times its weight, had a gradient other than zero "
        "for the network's weights. It is a constant, was computed without gradient, depends only on the alignment's "
        "own parameters, has a weight of 0, or starts later than this training",
    )
    now = trainable(engine.parts)
    require(now.keys() == start.keys(), f"parameters were added or removed: {sorted(now.keys() ^ start.keys())}")
    for name, parameter in now.items():
        require(bool(parameter.isfinite().all()), f"{name} is no longer finite")
        require(not parameter.equal(start[name]), f"{name} is trainable, but never moved: nothing trains it")
    return observations, record.step


def _train(engine: Engine, record: Record, seed: int, *, custom_engine: bool) -> list[Observation]:
    observations = []
    full: dict[str, int] | None = None  # the budget from which on batches have all declared rows
    for number in range(BATCHES):
        before, forwards = engine.budget.state_dict(), replace(record.forwards)
        replays = not custom_engine and (engine.parts.memory is None or engine._replayed)
        if full is None and number >= BATCHES // 2 and replays:
            full = before
        observations.append(observe(engine, seed, number))
        after = engine.budget.state_dict()
        _check_counters(before, after, len(mini_batch(engine, seed, number)))
        if not custom_engine:
            _check_passes(engine, record)
            rows = record.forwards.rows - forwards.rows
            most = record.forwards.most - forwards.most
            _check_forwards(after["forward_only"] - before["forward_only"], rows, most, replays=replays)
        memory, allowed = engine.parts.memory, engine.config.memory.capacity
        if memory is not None and memory.bounded:
            capacity = memory.capacity
            require(capacity <= allowed, f"the memory's capacity is {capacity}; configured are {allowed}")
            require(len(memory) <= capacity, f"{len(memory)} images stored; the capacity is {capacity}")
        if number == BATCHES // 2:
            require(engine.budget.steps > 0, f"no gradient step was taken in {engine.budget.images} images")
    if full is not None:
        _check_spent(engine, full)
    return observations


# -- budget --------------------------------------------------------------------------------------------------------


def _check_counters(before: dict[str, int], after: dict[str, int], images: int) -> None:
    """Counters never fall; a mini-batch counts as one, with its images."""
    for name, value in after.items():
        require(value >= before[name], f"the budget's {name} fell from {before[name]} to {value}")
    for name, expected in (("images", images), ("batches", 1)):
        grown = after[name] - before[name]
        require(grown == expected, f"the budget's {name} grew by {grown} in a mini-batch; it must grow by {expected}")


def _check_passes(engine: Engine, record: Record) -> None:
    """Steps and backward passes are counted, and are no more than the batch rule and the mini-batches allow."""
    config, budget = engine.config, engine.budget
    earned = config.passes * (config.stream_batch + config.replay_batch)
    rows = engine.parts.batch.rows(config)
    calls = record.calls["objective"]
    require(budget.steps == calls, f"the budget counts {budget.steps} steps; the objective was called {calls} times")
    passes, views = budget.cbp, record.trained
    require(
        passes == views, f"the budget counts {passes} backward passes; the network saw {views} views with a gradient"
    )
    declared = f"batches of {rows} rows, as the batch rule declares, make at most {2 * rows * calls}"
    require(passes <= 2 * rows * calls, f"{passes} backward passes in {calls} steps; {declared}")
    most = 2 * earned * budget.batches
    require(passes <= most, f"{passes} backward passes in {budget.batches} mini-batches; these allow {most}")


def _check_forwards(grown: int, rows: int, most: int, *, replays: bool) -> None:
    """The forward-only counter matches one of two counts of the hooks.

    Before replay starts it may be larger: an alignment that counts all rows may be idle.
    """
    require(
        rows <= grown and (grown <= most or not replays),
        f"the budget's forward_only grew by {grown} in a mini-batch in which networks saw {rows} views or images "
        "without a gradient. Objective and alignment declare the forwards of their own networks in forwards(); a "
        "memory must embed by the function passed to insert",
    )


def _check_spent(engine: Engine, full: dict[str, int]) -> None:
    """The declared rows are trained on; unused rows would be lost budget."""
    rows = engine.parts.batch.rows(engine.config)
    spent, steps = engine.budget.cbp - full["cbp"], engine.budget.steps - full["steps"]
    declared = 2 * rows * steps
    require(
        spent >= LEAST_SPENT * declared,
        f"{spent} backward passes in the last {steps} steps; batches of {rows} rows, as the batch rule declares, make "
        f"{declared}. rows(config) must return how many rows of a full batch reach the network",
    )


# -- collapse ------------------------------------------------------------------------------------------------------


def measure_spread(engine: Engine, seed: int) -> dict[str, Health]:
    """The health of the network's outputs for the first images, without augmentation."""
    network = engine.parts.network
    inputs = engine.augment.plain(torch.cat([mini_batch(engine, seed, number) for number in range(5)]))
    with contract("images cannot be embedded"):
        with frozen(network):
            features, evaluated = network(inputs)
        with torch.no_grad():
            _, trained = copy.deepcopy(network)(inputs)  # a copy: its running statistics see these images
        of_features = feature_health(features, inputs)
        assert of_features is not None  # enough images, all different
        # Normalised by their own batch, embeddings hide a collapse that their norm scales up again. So both count.
        return dict(zip(LEAST_SPREAD, (of_features, health(trained), health(evaluated)), strict=True))


def check_collapse(before: dict[str, Health], after: dict[str, Health]) -> None:
    """No output has collapsed. A small initial spread is accepted if it has grown since."""
    for name, least in LEAST_SPREAD.items():
        then, spread, rank = before[name], after[name].spread, after[name].effective_rank
        grows = then.spread < spread and then.spread < least
        require(
            (spread >= least or grows) and rank >= ONE_DIRECTION,
            f"the {name} have collapsed: their spread (1 for random directions, 0 for one point) went from "
            f"{then.spread:.4f} to {spread:.4f}, and must be at least {least}; their effective rank (number of "
            f"dimensions in use) went from {then.effective_rank:.2f} to {rank:.2f}, and must be at least "
            f"{ONE_DIRECTION}",
        )


# -- loss ----------------------------------------------------------------------------------------------------------


def check_loss_decreases(config: LearnerConfig, inputs: StepInputs, seed: int) -> None:
    """Repeated steps on the same views lower the objective's loss, from a new engine and without alignment."""
    gentle = min(config.lr, GENTLE_LR)
    tried = {}
    for lr in (gentle, gentle / 10):
        tried[lr] = _losses(build(replace(config, lr=lr, alignment_weight=0.0), seed), inputs, seed)
        if _decreases(tried[lr]):
            return
    first = tried[gentle][0]
    constant = all(loss == first for losses in tried.values() for loss in losses)
    curves = [", ".join(f"{loss:.4g}" for loss in losses) + f" at rate {lr:g}" for lr, losses in tried.items()]
    raise ContractViolation(
        f"the objective's loss does not decrease: {STEPS} steps on the same views "
        + (f"left it at {first:.4g}, a constant" if constant else f"gave {' and '.join(curves)}")
        + ". If it need not decrease, set loss_decreases = False in the objective",
    )


def _losses(engine: Engine, inputs: StepInputs, seed: int) -> list[float]:
    """The losses of repeated steps on the same views of the same images."""
    parts, step = engine.parts, engine._eager_step
    losses = []
    with contract("a step cannot be repeated on the same views"):
        if len(inputs[2]) > 0:
            parts.objective.on_first_replay(parts.network)
        if parts.alignment is not None:
            parts.alignment.before_batch(parts.network)
        for _ in range(STEPS):
            step.generator.manual_seed(seed)
            losses.append(step(*inputs)[0].item())
    return losses


def _decreases(losses: list[float]) -> bool:
    loss = torch.tensor(losses, dtype=torch.float64)
    lower_later = (loss[None, :] < loss[:, None]).triu(1).sum()
    last = loss[-LAST:]
    return bool(lower_later >= IN_ORDER) or bool(loss[0] > last.mean() + STANDS_OUT * last.std())
