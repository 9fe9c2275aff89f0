"""Is the state all there is? It is saved, loaded, and must change nothing by being taken."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from climb.checks.trial import BATCHES, observe, same
from climb.engine import Engine, Observation
from climb.promise import promise, promised
from climb.state import load_tree, save_tree

MORE = 4  # mini-batches that follow once the state has been taken


def check_state(engine: Engine, observed: list[Observation], silent: Engine, other: Engine, seed: int) -> None:
    """An engine that has ``observed`` something goes on as two others do.

    Args:
        engine: whose state is taken.
        observed: what it has observed up to here.
        silent: of the same seed, at its first step. It sees the same images and is never asked for its state.
        other: loads the state; of another seed, so that whatever the state leaves out shows.
        seed: of the images.
    """
    for number, observation in enumerate(observed):
        for what, one, two in _differences(observation, observe(silent, seed, number)):
            promise(
                False,
                f"two engines of one seed differ: in mini-batch {number + 1} the {what} is {one} and {two}. What is "
                "random must be drawn from the seed",
            )
    _hand_over(engine, other)
    for number in range(BATCHES, BATCHES + MORE):
        went_on = observe(engine, seed, number)
        for what, one, two in _differences(went_on, observe(silent, seed, number)):
            promise(False, f"after taking the state the next {what} is {one}; where nobody took it, it is {two}")
        for what, one, two in _differences(went_on, observe(other, seed, number)):
            promise(False, f"after loading the state the next {what} is {two}; without, it is {one}")


def _hand_over(engine: Engine, other: Engine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        with promised("the state cannot be taken"):
            state = engine.state_dict()
        with promised("the state cannot be saved"):
            save_tree(file, state, kind="check")
        with promised("the saved state cannot be loaded into an engine that has not learnt yet"):
            other.load_state_dict(load_tree(file, kind="check"))
    promise(other.budget == engine.budget, f"the loaded budget is {other.budget}; {engine.budget} was saved")


def _differences(one: Observation, two: Observation) -> Iterator[tuple[str, object, object]]:
    """What is not the same to the bit, and what it is in either."""
    for name in ("objective", "alignment"):
        losses = getattr(one, name), getattr(two, name)
        if not same(*losses):
            yield f"{name} loss", losses[0].item(), losses[1].item()
    if one.report != two.report:
        yield "report of the memory", one.report, two.report
