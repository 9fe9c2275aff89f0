"""Does the budget count what was executed, and is it the budget that the method was given?"""

from __future__ import annotations

from climb.checks.watch import Seen
from climb.engine import Engine
from climb.promise import promise

LEAST_SPENT = 0.995  # of the declared backward passes


def check_counters(before: dict[str, int], after: dict[str, int], images: int) -> None:
    """Counters only grow, and a mini-batch is one, of so many images."""
    for name, value in after.items():
        promise(value >= before[name], f"the budget's {name} fell from {before[name]} to {value}")
    for name, more in (("images", images), ("batches", 1)):
        given = after[name] - before[name]
        promise(given == more, f"the budget's {name} grew by {given} in a mini-batch; it must grow by {more}")


def check_passes(engine: Engine, seen: Seen) -> None:
    """Steps and backward passes are those that were seen, and no more than were declared and earned."""
    config, budget = engine.config, engine.budget
    earned = config.passes * (config.stream_batch + config.replay_batch)
    rows = engine.parts.batch.rows(config)
    asked = seen.asked["objective"]
    promise(budget.steps == asked, f"the budget counts {budget.steps} steps; the objective was asked {asked} times")
    promise(
        budget.cbp == seen.trained,
        f"the budget counts {budget.cbp} backward passes; the network saw {seen.trained} views with a gradient",
    )
    promise(
        budget.cbp <= 2 * rows * budget.steps,
        f"{budget.cbp} backward passes in {budget.steps} steps; batches of {rows} rows, as the batch rule declares, "
        f"make at most {2 * rows * budget.steps}",
    )
    promise(
        budget.cbp <= 2 * earned * budget.batches,
        f"{budget.cbp} backward passes in {budget.batches} mini-batches, which earn {2 * earned * budget.batches}",
    )


def check_forwards(given: int, rows: int, most: int, *, settled: bool) -> None:
    """A mini-batch's passes without gradient: as many as were seen, ``rows`` by one way to count, ``most`` by another.

    Before replay starts they may be more: an alignment is idle then that says how many of all rows its forward sends.
    """
    promise(
        rows <= given and (given <= most or not settled),
        f"the budget's forward_only grew by {given} in a mini-batch in which networks saw {rows} views or images "
        "without a gradient. What objective and alignment send through networks of their own in forward, their "
        "forwards() say; a memory embeds by the function it is given",
    )


def check_spent(engine: Engine, settled: dict[str, int]) -> None:
    """Rows that a rule declares and does not train on are budget that the method is not given."""
    rows = engine.parts.batch.rows(engine.config)
    spent, steps = engine.budget.cbp - settled["cbp"], engine.budget.steps - settled["steps"]
    declared = 2 * rows * steps
    promise(
        spent >= LEAST_SPENT * declared,
        f"{spent} backward passes in the last {steps} steps; batches of {rows} rows, as the batch rule declares, make "
        f"{declared}. Let rows(config) say how many rows of a full batch reach the network",
    )
