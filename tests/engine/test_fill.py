"""``replay_when_short``: what a step replays while the memory holds fewer images than one replay batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from climb.engine import Engine
from climb.memory import FifoMemory, InsertReport
from climb.settings.config import LearnerConfig, RunConfig, from_dict, to_dict
from climb.state import load_tree, save_tree

Make = Callable[..., Engine]
Draw = Callable[..., torch.Tensor]
EARNED = 3 * (10 + 8)


class Forgetful(FifoMemory):
    """Holds two images less with each mini-batch once it was full, down to four."""

    def insert(self, images: torch.Tensor, embeddings: torch.Tensor | None = None, **kwargs: object) -> InsertReport:
        report = super().insert(images, embeddings)
        if self._seen > 30:
            state = self.state_dict()
            keep = max(4, 16 - (self._seen - 30) // 5)
            state["images"], state["ids"] = state["images"][:keep], state["ids"][:keep]
            self._store.clear()
            self._store.write(range(keep), state["images"], state["ids"].tolist())
            self._ids[:], self._ids[:keep] = -1, state["ids"].numpy()
            self._slot_of = {image: slot for slot, image in enumerate(state["ids"].tolist())}
        return report

    by_number = False

    def _slots(self, images: torch.Tensor, embeddings: object, embed: object = None) -> list[int | None]:
        free = self.capacity - len(self)
        return [len(self) + row if row < free else None for row in range(len(images))]


def forgetful(make_engine: Make, **changes: object) -> Engine:
    engine = make_engine("er-fifo", **changes)
    engine.parts = replace(engine.parts, memory=Forgetful(20, (3, 16, 16), 128, seed=0))
    return engine


def rows(engine: Engine, images: Draw, batches: int) -> list[list[int]]:
    """The replay rows of each step, by mini-batch."""
    step, steps = engine._step, list[int]()

    def watched(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps.append(len(inputs[2]))
        return step(*inputs)

    engine._step = watched
    by_batch = []
    for number in range(batches):
        before = len(steps)
        engine.observe(images(10, number))
        by_batch.append(steps[before:])
    engine._step = step
    return by_batch


def test_a_short_memory_pauses_replay_or_is_made_up_for(make_engine: Make, images: Draw) -> None:
    paused = rows(forgetful(make_engine), images, 12)
    assert paused[0] == [0, 0, 0]
    assert paused[2] == [8, 8, 8]
    assert paused[-1] == [0, 0, 0]
    engine = forgetful(make_engine, replay_when_short="fill")
    filled = rows(engine, images, 12)
    assert filled[:6] == paused[:6]
    assert set(filled[-1]) == {4}
    assert max(map(len, filled[-3:])) > 3
    # As many rows as a memory that is never short, but for less than two steps and the first mini-batch.
    whole = make_engine("er-fifo")
    rows(whole, images, 12)
    assert whole.budget.cbp == 2 * (12 * EARNED - 3 * 8)
    assert 0 <= whole.budget.cbp - engine.budget.cbp < 2 * (3 * 4 + 18)


def test_a_memory_that_is_never_short_trains_as_before(make_engine: Make, images: Draw) -> None:
    losses = []
    for setting in ("pause", "fill"):
        engine = make_engine("climb", replay_when_short=setting)
        losses.append([engine.observe(images(10, number)).objective.item() for number in range(12)])
    assert losses[0] == losses[1]


def test_the_rows_owed_are_part_of_the_state(make_engine: Make, images: Draw, tmp_path: Path) -> None:
    whole = forgetful(make_engine, replay_when_short="fill")
    rows(whole, images, 9)
    save_tree(tmp_path / "state", whole.state_dict(), kind="check")
    other = forgetful(make_engine, replay_when_short="fill")
    other.load_state_dict(load_tree(tmp_path / "state", kind="check"))
    for number in range(20, 24):
        one, two = (engine.observe(images(10, number)) for engine in (whole, other))
        assert torch.equal(one.objective, two.objective)
    assert whole.budget == other.budget


def test_older_states_owe_nothing(make_engine: Make, images: Draw) -> None:
    engine = make_engine("er-fifo")
    state = engine.state_dict()
    del state["owed"]
    engine.load_state_dict(state)
    engine.observe(images(10, 0))


def test_the_default_is_not_part_of_the_identity() -> None:
    config = RunConfig()
    older = to_dict(config)
    del older["learner"]["replay_when_short"]
    assert from_dict(RunConfig, older).config_hash() == config.config_hash()
    other = RunConfig(learner=LearnerConfig(replay_when_short="fill"))
    assert other.config_hash() != config.config_hash()


@pytest.mark.parametrize("method", ["climb", "minred", "finetune", "lump"])
def test_fill_works_with_every_kind_of_batch(method: str, make_engine: Make, images: Draw) -> None:
    engine = make_engine(method, replay_when_short="fill")
    plain = make_engine(method)
    for number in range(6):
        engine.observe(images(10, number))
        plain.observe(images(10, number))
    assert engine.budget.cbp >= plain.budget.cbp
