"""The tables and figures that a grid writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from climb.bench.executors import run_job
from climb.bench.grids import Request, build_grid
from climb.bench.plan import make_plan
from climb.bench.scheduler import publish_each
from climb.bench.tables import Table
from climb.errors import InputError
from climb.settings.config import Execution


def test_a_rejected_table_does_not_affect_the_others(tmp_path: Path) -> None:
    """At this size the first mini-batches, without replay, make MinRed's budget another than CLIMB's."""
    unequal = build_grid("table-simsiam", Request(scale="tiny", methods=("minred", "climb"), seeds=(0,), tasks=(20,)))
    equal = build_grid("table-pruning", Request(scale="tiny", seeds=(0,), tasks=(20,)))
    plan = make_plan([unequal, equal], tmp_path)
    assert [run_job(job).status for job in plan.jobs(Execution(device="cpu"))] == ["done"] * 4
    (_, reason), (_, table) = publish_each([unequal, equal], plan.refreshed(), tmp_path)
    assert isinstance(reason, InputError)
    assert "different budgets of backward passes" in str(reason)
    assert not (tmp_path / "table-simsiam").exists()
    assert isinstance(table, Table)
    assert len(list((tmp_path / "table-pruning").glob("table.*"))) == 4


def test_missing_runs_and_the_shared_bound_are_noted(tmp_path: Path) -> None:
    grid = build_grid("table-regular", Request(scale="tiny", methods=("iid", "climb"), seeds=(0,), tasks=(20, 50)))
    plan = make_plan([grid], tmp_path)
    bound, first, second = plan.jobs(Execution(device="cpu"))
    assert [run_job(job).status for job in (bound, first)] == ["done"] * 2
    ((_, table),) = publish_each([grid], plan.refreshed(), tmp_path)
    assert isinstance(table, Table)
    bounds, missing = (
        "i.i.d. knows no tasks: evaluated on 2 of equal size in every column",
        "not whole: 1 of 3 runs are not finished (CLIMB)",
    )
    assert {bounds, missing} <= set(table.notes)
    written = (tmp_path / "table-regular" / "table.md").read_text()
    assert missing in written
    assert "micro, preset paper, student evaluated" in written
    assert "a rehearsal at tiny scale" in written
    assert run_job(second).status == "done"
    ((_, whole),) = publish_each([grid], plan.refreshed(), tmp_path)
    assert isinstance(whole, Table)
    assert not any("not whole" in note for note in whole.notes)


def test_a_table_notes_pcmcs_memory_and_budget(tmp_path: Path) -> None:
    grid = build_grid("table-regular", Request(scale="tiny", methods=("pcmc", "climb"), seeds=(0,), tasks=(20,)))
    plan = make_plan([grid], tmp_path)
    assert [run_job(job).status for job in plan.jobs(Execution(device="cpu"))] == ["done"] * 2
    ((_, table),) = publish_each([grid], plan.refreshed(), tmp_path)
    assert isinstance(table, Table)  # an indicative row is not compared
    assert {"a memory without bound: PCMC", "backward passes outside the budget in 20 tasks: PCMC 0"} <= {
        *table.notes
    }  # at this size it never sleeps
    written = (tmp_path / "table-regular" / "table.md").read_text()
    assert "a memory without bound: PCMC" in written


@pytest.mark.parametrize("name", ["table-regular", "table-irregular"])
def test_a_single_column_also_notes_the_tasks_of_its_bound(name: str, tmp_path: Path) -> None:
    grid = build_grid(name, Request(methods=("iid",), seeds=(0,), tasks=(50,)))
    ((_, table),) = publish_each([grid], make_plan([grid], tmp_path), tmp_path)
    assert isinstance(table, Table)
    assert any("knows no tasks: evaluated on 20 of equal size in every column" in note for note in table.notes)
