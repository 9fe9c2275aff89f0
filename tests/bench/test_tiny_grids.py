"""A rehearsal of every grid: the right runs, the right cells, bold by the rule."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest
from scipy import stats

from climb.bench.grids import GRIDS, Request, build_grid
from climb.bench.plan import make_plan
from climb.bench.tables import Cell, Table, build_table
from climb.cli import run_command

pytestmark = pytest.mark.slow(seconds=10)  # each: all of them together take minutes
TINY = Request(scale="tiny")
RUNS = 161


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """All grids by one command; the folder, and what was printed."""
    out = tmp_path_factory.mktemp("rehearsal")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run_command(["bench", *GRIDS, "--scale", "tiny", "--device", "cpu", "--out", str(out)])
    assert code == 0, printed.getvalue()
    return out, printed.getvalue()


def table_of(name: str, out: Path) -> Table:
    grid = build_grid(name, TINY)
    return build_table(grid.layout, make_plan([grid], out).placed(grid), mix=True)


def is_bold(cell: Cell, rivals: list[Cell], higher: bool) -> bool:
    """The paper's rule, by scipy: the best, or not significantly worse (one-sided, equal variance)."""
    best = (max if higher else min)(rivals, key=lambda rival: rival.mean)
    if cell.mean == best.mean:
        return True
    side = "greater" if higher else "less"
    return bool(stats.ttest_ind(best.values, cell.values, alternative=side).pvalue >= 0.05)


def test_one_run_for_each_configuration(rehearsal: tuple[Path, str]) -> None:
    out, printed = rehearsal
    results = list(out.glob("runs/*/result.json"))
    assert len(results) == RUNS
    assert f"{RUNS} runs (0 done), {RUNS} to do" in printed
    for path in results:
        assert json.loads(path.read_text())["config_hash"] == path.parent.name
    assert not list(out.glob("runs/*/error.txt"))
    assert not list(out.glob("runs/*/checkpoint"))


@pytest.mark.parametrize("name", GRIDS)
def test_cells(name: str, rehearsal: tuple[Path, str]) -> None:
    out, printed = rehearsal
    grid, table = build_grid(name, TINY), table_of(name, out)
    layout = grid.layout
    assert layout.title in printed
    seeds = {entry.config.seed for entry in grid.entries}
    for row in layout.rows:
        for column in layout.columns:
            for metric in layout.metrics:
                cell = table.cell(row.label, column, metric.label)
                if cell is None:  # an event that did not happen has no number
                    assert name == "figure-dynamics"
                    continue
                assert cell.n == len(seeds)
                assert set(cell.seeds) == seeds
    for suffix in ("md", "tex", "csv", "html"):
        assert (out / name / f"table.{suffix}").stat().st_size > 0
    lines = list(csv.reader((out / name / "table.csv").read_text().splitlines()))
    assert len(lines) > len(layout.rows)
    if name.startswith("figure-"):
        assert (out / name / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (out / name / f"{name}.svg").read_text()


ONE_SEED = ("table-diversity", "table-faults")  # and nothing to compare


@pytest.mark.filterwarnings("ignore")  # scipy's, of two values that are equal
@pytest.mark.parametrize("name", [name for name in GRIDS if name not in ONE_SEED])
def test_bold_by_the_rule(name: str, rehearsal: tuple[Path, str]) -> None:
    table = table_of(name, rehearsal[0])
    for (row, column, label), cell in table.cells.items():
        metric = next(metric for metric in table.layout.metrics if metric.label == label)
        spec = table.layout.row(row)
        if spec.kind != "method" or metric.higher_is_better is None:
            assert not cell.bold
            continue
        rivals = [
            table.cells[other.label, column, label]
            for other in table.layout.rows
            if other.kind == "method" and other.group == spec.group
        ]
        assert cell.bold == is_bold(cell, rivals, metric.higher_is_better), (row, column, label)


def test_all_runs_are_finished(rehearsal: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = rehearsal
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    assert run_command(["bench", *GRIDS, "--scale", "tiny", "--device", "cpu", "--out", str(out)]) == 0
    assert f"{RUNS} runs ({RUNS} done), 0 to do" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_equal_runs_at_different_places_are_one(rehearsal: tuple[Path, str]) -> None:
    out, _ = rehearsal
    regular, ablation = table_of("table-regular", out), table_of("table-ablation", out)
    climb = ablation.cell("SSL + memory + alignment + EMA (CLIMB)", "20 tasks", "FA")
    assert climb is not None
    ours = regular.cell("CLIMB", "20 tasks", "FA")
    assert ours is not None
    assert climb.values == ours.values
    bound = [regular.cell("i.i.d.", column, "FA") for column in regular.layout.columns]
    assert bound[0] == bound[1] == bound[2] is not None
