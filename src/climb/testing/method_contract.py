"""`check_method` trains a method for a moment and names the first violated contract."""

from __future__ import annotations

import tempfile
from pathlib import Path

from climb.arguments import checked
from climb.engine import Engine, Observation
from climb.methods import METHODS, Method, choose_method, find_method
from climb.precision import threads
from climb.state import load_tree, save_tree
from climb.testing import training
from climb.testing.contract import contract, require
from climb.testing.trial import BATCHES, CONFIG, build, observe, same

MORE = 4  # mini-batches after the state has been taken


@checked()
def check_method(name_or_method: str | Method, *, seed: int = 0) -> None:
    """Train a method for a moment on tiny synthetic images; `ContractViolation` on a violated contract.

    It uses the micro network on the CPU, with a task boundary halfway. The contracts:

    - Every trainable parameter of network, objective and alignment is in the optimiser once, and moves.
    - Losses are finite scalars, and depend on no tensor that is neither trained nor frozen.
    - Some loss of the alignment has a gradient for the network.
    - `after_step` does not change the student.
    - The objective's loss decreases in repeated steps on the same views.
    - Features and embeddings do not collapse, by `climb.engine.health`.
    - The budget counts what was executed, and mini-batches pay for all backward passes.
    - Images of a memory are replayed, and full batches have the rows that the batch rule declares.
    - The memory stays within its bound and the configured capacity after every mini-batch.
    - Two engines of one seed have the same losses, and taking a state changes nothing.
    - The state can be saved to a file, and an engine that loads it continues to the bit.

    Frozen parameters are ignored. An objective whose loss need not decrease sets ``loss_decreases = False``. A method
    with its own engine is not checked for optimiser, budget, batches and steps; it must take a step within 100 images,
    so pass a `Method` whose ``build`` makes it wait less. `climb.testing.check_memory` checks a memory by itself.

    Args:
        name_or_method: a registered name, or a method, registered or not.
        seed: seed of the images and of all randomness in the method.

    >>> check_method("climb")
    """
    seed = int(seed)
    method = find_method(name_or_method) if isinstance(name_or_method, str) else name_or_method
    custom_engine = method.custom_engine
    # Engines are built from names. Threads gain nothing for work this small, and wait for each other on a busy machine.
    with METHODS.scoped(**{method.name: method}), threads(1):
        config = choose_method(CONFIG, method.name)
        engine = build(config, seed)
        if not custom_engine:
            training.check_optimizer(engine)
        untrained = training.measure_spread(engine, seed)
        observations, step = training.check_training(engine, seed, custom_engine=custom_engine)
        training.check_collapse(untrained, training.measure_spread(engine, seed))
        _check_state(engine, observations, build(config, seed), build(config, seed + 1), seed)
        if step is not None and engine.parts.objective.loss_decreases:
            training.check_loss_decreases(config, step, seed)


def _check_state(engine: Engine, observations: list[Observation], twin: Engine, other: Engine, seed: int) -> None:
    """The engine continues like two others after its state has been taken.

    Args:
        engine: its state is taken.
        observations: those of the engine so far.
        twin: a new engine of the same seed. It observes the same images, and its state is never taken.
        other: loads the state. It has another seed, so that anything missing from the state shows.
        seed: seed of the images.
    """
    for number, observation in enumerate(observations, 1):
        text = f"two engines of one seed differ: in mini-batch {number} the {{0}} is {{1}} and {{2}}. Draw all random "
        _require_equal(observation, observe(twin, seed, number - 1), text + "numbers from the seed")
    _transfer_state(engine, other)
    for number in range(BATCHES, BATCHES + MORE):
        observation = observe(engine, seed, number)
        text = "after taking the state the next {0} is {1}; without taking it, it is {2}"
        _require_equal(observation, observe(twin, seed, number), text)
        text = "after loading the state the next {0} is {2}; without, it is {1}"
        _require_equal(observation, observe(other, seed, number), text)


def _transfer_state(engine: Engine, other: Engine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        with contract("the state cannot be taken"):
            state = engine.state_dict()
        with contract("the state cannot be saved"):
            save_tree(file, state, kind="check")
        with contract("a new engine cannot load the saved state"):
            other.load_state_dict(load_tree(file, kind="check"))
    require(other.budget == engine.budget, f"the loaded budget is {other.budget}; {engine.budget} was saved")


def _require_equal(one: Observation, two: Observation, text: str) -> None:
    """Observations are equal to the bit. ``text`` has places for the name of a value and its two values."""
    for name in ("objective", "alignment"):
        losses = getattr(one, name), getattr(two, name)
        require(same(*losses), text.format(f"{name} loss", *(loss.item() for loss in losses)))
    require(one.report == two.report, text.format("report of the memory", one.report, two.report))
