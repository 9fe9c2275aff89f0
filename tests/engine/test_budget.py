from __future__ import annotations

from climb.engine import Budget


def test_starts_at_nothing_and_continues_where_it_was() -> None:
    budget = Budget()
    assert set(budget.state_dict().values()) == {0}
    budget.cbp += 36
    budget.steps += 1
    other = Budget(cbp=5, images=7)  # what it counted before is not added
    other.load_state_dict(budget.state_dict())
    assert other == budget
    assert (other.cbp, other.steps, other.images) == (36, 1, 0)
