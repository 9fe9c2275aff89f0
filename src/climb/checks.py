"""Does a method keep its promises? A short training, and an AssertionError that names the first broken one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Engine, IidChunks, Observation
from climb.engine.health import health
from climb.errors import ClimbError
from climb.learner import build_engine
from climb.methods import METHODS, Method, choose_method, find_method
from climb.nets import frozen
from climb.seeds import torch_generator
from climb.state import load_tree, save_tree

SIDE = 16
CONFIG = LearnerConfig(
    backbone="micro",
    image_size=SIDE,
    replay_batch=8,
    # It would move a parameter that gets no more than a gradient of zero, and so hide that nothing trains it.
    weight_decay=0.0,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100),
)
# Three capacities of images and a little: memories fill, and then have to choose. After three, a place that goes round
# and that the state leaves out would be back at its start.
BATCHES = 19
LEAST_SPREAD = 0.05  # see `climb.engine.health`; healthy networks are above 0.2 here
LEAST_SPENT = 0.995  # of the declared backward passes
# Steps on the same views. All of the last losses must be below all of the first, or the very first must stand out by so
# many standard deviations of the last: a margin on views this few is kept after a step or two. A loss that is noise has
# less than two chances in a thousand, and ours are far below.
DESCENT, FIRST, LAST, STANDS_OUT = 20, 4, 10, 5.0
GENTLE_LR = 0.03  # for those steps at most: a rate that suits a long stream may overshoot here


def check_method(name_or_method: str | Method, *, seed: int = 0) -> None:
    """Train a method for a moment on tiny synthetic images; AssertionError on a broken promise.

    It runs on the CPU with the micro network, with a task boundary halfway. The promises:

    - every trainable parameter of network, objective and alignment is in the optimiser once, and moves;
    - the losses are finite scalars in every pass, and an alignment has its say;
    - the objective's loss falls when steps are taken on the same views again and again;
    - features and embeddings of different images stay different (no collapse);
    - the budget counts what was executed, and backward passes stay within what the mini-batches earned;
    - where there is a memory, its images are replayed, and from then on batches have the rows that the rule declares;
    - the memory stays within its bound and within the configured capacity, after every mini-batch;
    - the state can be saved to a file, and an engine that loads it has the same next losses, to the bit.

    What is frozen is taken to be so on purpose. An objective whose loss need not fall says so by ``falls = False``.
    Of a method with a loop of its own (``own_loop``) neither optimiser, budget, batches nor steps are known, so those
    are left out; it must take a step within 100 images: give one that waits longer as a `Method` whose ``build`` makes
    it wait less. Whether a memory is sound in itself is for `climb.memory.check_memory` to say.

    Args:
        name_or_method: a registered name, or a method, registered or not.
        seed: of the images, and of everything random in the method.

    >>> check_method("climb")
    """
    method = find_method(name_or_method) if isinstance(name_or_method, str) else name_or_method
    with _registered(method), _one_thread():
        config = choose_method(CONFIG, method.name)
        engine = _built(config, seed)
        if not method.own_loop:
            _check_optimizer(engine)
        _check_learning(engine, seed, own_loop=method.own_loop)
        _check_spread(engine, seed)
        _check_round_trip(engine, _built(config, seed + 1), seed)
        if not method.own_loop and engine.parts.objective.falls:
            _check_descent(_built(replace(config, lr=min(config.lr, GENTLE_LR)), seed), seed)


def _promise(kept: bool, otherwise: str) -> None:
    # Not an assert statement: `python -O` must not turn the check off.
    if not kept:
        raise AssertionError(otherwise)


@contextmanager
def _registered(method: Method) -> Iterator[None]:
    """The method under its name for a while: engines are built from names."""
    before = METHODS.get(method.name)
    METHODS[method.name] = method
    try:
        yield
    finally:
        if before is None:
            del METHODS[method.name]
        else:
            METHODS[method.name] = before


@contextmanager
def _one_thread() -> Iterator[None]:
    """Work this small is not worth sharing: on a busy machine threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _built(config: LearnerConfig, seed: int) -> Engine:
    try:
        return build_engine(
            config,
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
            seed=seed,
            device=torch.device("cpu"),
            precision="float32",
            kind="eager",
        )
    except ClimbError as error:
        raise AssertionError(f"the method cannot be built: {error}") from error


def _images(engine: Engine, seed: int, number: int) -> torch.Tensor:
    """The mini-batch of that number: blobs of colour, easier to tell apart than noise. uint8 (n, 3, H, W)."""
    config = engine.config
    rows = config.stream_batch
    if isinstance(engine.parts.batch, IidChunks):
        rows = config.passes * (config.stream_batch + config.replay_batch)
    coarse = torch.rand(rows, 3, 4, 4, generator=torch_generator(seed, f"check {number}"))
    return (255 * F.interpolate(coarse, SIDE, mode="bilinear", align_corners=False)).to(torch.uint8)


def _modules(engine: Engine) -> dict[str, nn.Module]:
    parts = engine.parts
    rooms = {"network": parts.network, "objective": parts.objective, "alignment": parts.alignment}
    return {room: module for room, module in rooms.items() if module is not None}


def _trainable(engine: Engine) -> dict[str, nn.Parameter]:
    return {
        f"{room}.{name}": parameter
        for room, module in _modules(engine).items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def _check_optimizer(engine: Engine) -> None:
    groups = engine._eager_step.optimizer.param_groups
    held = [id(parameter) for group in groups for parameter in group["params"]]
    for name, parameter in _trainable(engine).items():
        times = held.count(id(parameter))
        _promise(times == 1, f"the optimiser holds {name} {times} times; it must hold it once")


def _check_learning(engine: Engine, seed: int, *, own_loop: bool) -> None:
    """Losses, counters, bound, replay and movement over a short stream with one task boundary."""
    settled: dict[str, int] | None = None  # the budget as it was when batches should be full
    start = {name: parameter.detach().clone() for name, parameter in _trainable(engine).items()}
    with _watched(engine) as seen:
        for number in range(BATCHES):
            if number == BATCHES // 2:
                engine.on_boundary()
            images = _images(engine, seed, number)
            before = engine.budget.state_dict()
            if settled is None and number >= BATCHES // 2 and not own_loop:
                settled = before if engine.parts.memory is None or engine._replayed else None
            engine.observe(images)
            _check_counters(before, engine.budget.state_dict(), len(images))
            if not own_loop:
                _check_budget(engine, seen)
            _check_bound(engine)
            if number == BATCHES // 2:
                _promise(engine.budget.steps > 0, f"no gradient step was taken in {engine.budget.images} images")
        _promise(seen["objective"] > 0, "the objective was never asked for its loss")
        if not own_loop:
            _check_replay(engine)
        if settled is not None:
            _check_spent(engine, settled)
        if engine.parts.alignment is not None:
            _promise(seen["alignment"] > 0, f"the alignment never had a say in {BATCHES} mini-batches")
    now = _trainable(engine)
    _promise(now.keys() == start.keys(), f"parameters came or went: {sorted(now.keys() ^ start.keys())}")
    for name, parameter in now.items():
        _promise(bool(parameter.isfinite().all()), f"{name} is no longer finite")
        _promise(not torch.equal(parameter, start[name]), f"{name} is trainable, but never moved: nothing trains it")


@contextmanager
def _watched(engine: Engine) -> Iterator[dict[str, int]]:
    """Look at every loss as it is made, and count: calls of each loss, rows that the network saw with a gradient."""
    seen = {"network": 0, "objective": 0, "alignment": 0}

    def count_rows(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        if torch.is_grad_enabled():
            seen["network"] += len(inputs[0])

    def look_at_loss(room: str, loss: Any) -> None:
        seen[room] += 1
        _promise(
            isinstance(loss, torch.Tensor) and loss.ndim == 0,
            f"the {room}'s loss must be a scalar tensor; it is {getattr(loss, 'shape', type(loss).__name__)}",
        )
        _promise(bool(loss.isfinite()), f"the {room}'s loss is {loss.item()} in its call number {seen[room]}")

    modules = _modules(engine)
    handles = [modules.pop("network").register_forward_hook(count_rows)]
    for room, module in modules.items():
        handles.append(module.register_forward_hook(lambda _, __, loss, room=room: look_at_loss(room, loss)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _check_counters(before: dict[str, int], after: dict[str, int], images: int) -> None:
    for name, value in after.items():
        _promise(value >= before[name], f"the budget's {name} fell from {before[name]} to {value}")
    for name, more in (("images", images), ("batches", 1)):
        given = after[name] - before[name]
        _promise(given == more, f"the budget's {name} grew by {given} in a mini-batch; it must grow by {more}")


def _check_budget(engine: Engine, seen: dict[str, int]) -> None:
    config, budget = engine.config, engine.budget
    earned = config.passes * (config.stream_batch + config.replay_batch)
    rows = engine.parts.batch.rows(config)
    _promise(
        budget.steps == seen["objective"],
        f"the budget counts {budget.steps} steps; the objective was asked {seen['objective']} times",
    )
    _promise(
        budget.cbp == seen["network"],
        f"the budget counts {budget.cbp} backward passes; the network saw {seen['network']} views with a gradient",
    )
    _promise(
        budget.cbp <= 2 * rows * budget.steps,
        f"{budget.cbp} backward passes in {budget.steps} steps; batches of {rows} rows, as the batch rule declares, "
        f"make at most {2 * rows * budget.steps}",
    )
    _promise(
        budget.cbp <= 2 * earned * budget.batches,
        f"{budget.cbp} backward passes in {budget.batches} mini-batches, which earn {2 * earned * budget.batches}",
    )


def _check_replay(engine: Engine) -> None:
    memory = engine.parts.memory
    if memory is None:
        return
    _promise(
        engine._replayed,
        f"no stored image was replayed in {engine.budget.images} images: the memory holds {len(memory)}, and "
        f"{type(engine.parts.batch).__name__} made no batch with replay rows. A method that does not replay has "
        "memory=None",
    )


def _check_spent(engine: Engine, settled: dict[str, int]) -> None:
    """Rows that a rule declares and does not train on are budget that the method is not given."""
    rows = engine.parts.batch.rows(engine.config)
    spent, steps = engine.budget.cbp - settled["cbp"], engine.budget.steps - settled["steps"]
    declared = 2 * rows * steps
    _promise(
        spent >= LEAST_SPENT * declared,
        f"{spent} backward passes in the last {steps} steps; batches of {rows} rows, as the batch rule declares, make "
        f"{declared}. Let rows(config) say how many rows of a full batch reach the network",
    )


def _check_descent(engine: Engine, seed: int) -> None:
    """The method's own step from a fresh start, on the same images in the same views each time."""
    parts, step = engine.parts, engine._eager_step
    images = torch.cat([_images(engine, seed, number) for number in range(2)])[: parts.batch.rows(engine.config)]
    stream_rows, none = torch.arange(len(images)), torch.zeros(0, dtype=torch.int64)
    if parts.alignment is not None:
        parts.alignment.before_batch(parts.network)
    losses = []
    for _ in range(DESCENT):
        step.generator.manual_seed(seed)
        losses.append(step(images, stream_rows, none, torch.zeros(0))[0].item())
    last = losses[-LAST:]
    level = torch.tensor(last)
    at_its_least = losses[0] > float(level.mean() + STANDS_OUT * level.std())
    _promise(
        at_its_least or max(last) < min(losses[:FIRST]),
        f"the objective's loss does not fall: {DESCENT} steps on the same views went from "
        f"{_listed(losses[:FIRST])} to {_listed(last)}. Where it need not fall, the objective says so by "
        "falls = False",
    )


def _listed(losses: list[float]) -> str:
    return ", ".join(f"{loss:.4g}" for loss in losses)


def _check_bound(engine: Engine) -> None:
    memory = engine.parts.memory
    if memory is None or not memory.bounded:
        return
    allowed = engine.config.memory.capacity
    _promise(memory.capacity <= allowed, f"the memory's capacity is {memory.capacity}; configured are {allowed}")
    _promise(len(memory) <= memory.capacity, f"{len(memory)} images stored, the capacity is {memory.capacity}")


def _check_spread(engine: Engine, seed: int) -> None:
    network = engine.parts.network
    images = torch.cat([_images(engine, seed, number) for number in range(5)])
    with frozen(network):
        features, embeddings = network(engine.augment.plain(images))
    for kind, vectors in (("features", features), ("embeddings", embeddings)):
        spread = health(vectors).spread
        _promise(
            spread > LEAST_SPREAD,
            f"the {kind} have collapsed: their spread, which is 1 for random directions and 0 for one point, is "
            f"{spread:.4f}; it must be above {LEAST_SPREAD}",
        )


def _check_round_trip(engine: Engine, other: Engine, seed: int) -> None:
    """``other`` started from another seed, so that whatever the state leaves out shows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        try:
            save_tree(file, engine.state_dict(), kind="check")
        except (TypeError, ValueError, ClimbError) as error:
            raise AssertionError(f"the state cannot be saved: {error}") from error
        other.load_state_dict(load_tree(file, kind="check"))
    _promise(other.budget == engine.budget, f"the loaded budget is {other.budget}; {engine.budget} was saved")
    for number in range(BATCHES, BATCHES + 4):
        if number == BATCHES + 2:
            engine.on_boundary()
            other.on_boundary()
        images = _images(engine, seed, number)
        _check_same(engine.observe(images), other.observe(images))


def _check_same(went_on: Observation, loaded: Observation) -> None:
    for name in ("objective", "alignment"):
        one, two = getattr(went_on, name), getattr(loaded, name)
        same = torch.equal(one, two) or bool(one.isnan() & two.isnan())
        _promise(same, f"after loading the state the next {name} loss is {two.item()}; without, it is {one.item()}")
    _promise(
        went_on.report == loaded.report,
        f"after loading the state the memory reports {loaded.report}; without, {went_on.report}",
    )
