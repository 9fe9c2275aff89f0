"""The plan of a grid: shared runs, finished runs, remaining runs and their time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.bench.estimate import Clock, reembedded, work_of
from climb.bench.executors import run_job
from climb.bench.grids import Request, build_grid
from climb.bench.plan import Plan, finished_runs, make_plan
from climb.bench.tuning import tuning_grid
from climb.datasets import fingerprint
from climb.errors import InputError
from climb.memory import PartAndSelectMemory
from climb.runs import RunFolder
from climb.runs.run_file_checks import read_object, write_object
from climb.settings.config import Execution, RunConfig
from climb.settings.recipes import get_recipe

CPU = Execution(device="cpu")
TINY = Request(scale="tiny", methods=("climb", "er-fifo"), seeds=(0,), tasks=(20,))


def statuses(plan: Plan) -> list[str]:
    return [run.status for run in plan.runs.values()]


def test_grids_share_their_runs(tmp_path: Path) -> None:
    plan = make_plan([build_grid(name, TINY) for name in ("table-regular", "table-forgetting")], tmp_path)
    assert len(plan.runs) == 2
    assert not (tmp_path / "runs").exists()  # planning writes nothing


def test_every_row_has_its_first_seed_before_any_has_its_second(tmp_path: Path) -> None:
    plan = make_plan([build_grid("table-pruning", Request(scale="tiny"))], tmp_path)
    assert [job.config.seed for job in plan.jobs(CPU)] == [0] * 4 + [1] * 4


def test_the_expected_time_is_divided_by_parallel_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "seconds", lambda clock, config: 60.0)
    monkeypatch.setattr("climb.bench.plan.say_seconds", lambda seconds: f"{seconds:g} s")
    plan = make_plan([build_grid("table-regular", TINY)], tmp_path)
    assert "about 120 s of device time on cpu" in plan.describe("cpu")
    assert "about 120 s on cpu" in plan.describe("cpu", parallel=1)
    assert "about 60 s on cpu" in plan.describe("cpu", parallel=2)
    assert "about 60 s on cpu" in plan.describe("cpu", parallel=4)  # more places than runs


def test_the_status_of_runs(tmp_path: Path) -> None:
    grid = build_grid("table-regular", TINY)
    plan = make_plan([grid], tmp_path)
    first, second = plan.jobs(CPU)
    assert plan.describe("cpu", parallel=2).startswith("2 runs (0 done), 2 to do: 200 stream images, ")
    assert "rough guess" in plan.describe("cpu", parallel=2)
    run_job(second)
    first.folder.mkdir(parents=True)
    (first.folder / "config.json").write_text("{}")
    plan = make_plan([grid], tmp_path)
    assert [job.label for job in plan.jobs(CPU)] == [first.label]
    said = plan.describe("cpu")
    assert said.startswith("2 runs (1 done, 1 begun), 1 to do")
    assert "from finished runs" in said
    assert "of device time" in said  # the number of parallel runs is unknown
    (first.folder / "error.txt").write_text("no")
    assert plan.refreshed().describe("cpu").startswith("2 runs (1 done, 1 failed before), 1 to do")
    (placed,) = plan.placed(grid)
    assert (placed.row, placed.column) == ("er-fifo", "20 tasks")
    assert placed.result["method"] == "er-fifo"
    # A finished run elsewhere counts when its configuration is the same.
    other = make_plan([grid], tmp_path / "other", reuse=[tmp_path])
    assert [job.label for job in other.jobs(CPU)] == [first.label]
    assert other.placed(grid)[0].result == placed.result


def test_finished_runs_with_another_execution_are_counted(tmp_path: Path) -> None:
    grid = build_grid("table-regular", TINY)
    for job, precision in zip(make_plan([grid], tmp_path).jobs(CPU), ("float32", "bf16"), strict=True):
        RunFolder(job.folder).claim(job.config, CPU, {})
        result = {"config_hash": job.config.config_hash(), "precision": precision, "deterministic": True}
        (job.folder / "result.json").write_text(json.dumps(result))
    plan = make_plan([grid], tmp_path)
    assert statuses(plan).count("done") == 2
    assert plan.execution_differences(CPU) == ""
    assert (
        plan.execution_differences(replace(CPU, engine="eager", deterministic=True)) == ""
    )  # of the engine nothing is known
    assert plan.execution_differences(replace(CPU, precision="bf16")) == (
        "1 finished run did not use precision bf16 but precision float32; for new runs, give another "
        "--out, without --reuse"
    )


def test_reused_folders_must_hold_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        make_plan([build_grid("table-regular", TINY)], tmp_path, reuse=[tmp_path / "nowhere"])
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not a complete run folder"):
        finished_runs([tmp_path])


def test_a_run_of_an_older_version_is_reused(tmp_path: Path) -> None:
    """It was written before there was a setting, and had what is the default now."""
    grid = build_grid("table-regular", Request(scale="tiny", methods=("er-fifo",), seeds=(0,), tasks=(20,)))
    (job,) = make_plan([grid], tmp_path).jobs(CPU)
    run_job(job)
    for name in ("config.json", "result.json"):
        written = read_object(job.folder / name)
        written["config_hash"] = "0" * 16
        if name == "config.json":
            assert written["config"]["learner"].pop("memory_faults") is False
        write_object(job.folder / name, written)
    ((key, run),) = finished_runs([tmp_path]).items()
    assert (key, run.path) == (job.config.config_hash(), job.folder)


def test_work_of_the_paper() -> None:
    work = work_of(get_recipe("cifar100-20", preset="paper"), "cuda")
    assert work is not None
    assert (work.stream_images, work.backward_passes) == (45_000, 3_726_000)
    assert 90 < work.seconds < 150  # 121 s were measured, of the preset that costs a little less
    assert work_of(replace(RunConfig(), data=replace(RunConfig().data, dataset="folder")), "cpu") is None


def test_finished_runs_set_the_clock(tiny_config: Callable[..., RunConfig]) -> None:
    def result(seconds: float, device: str = "cpu") -> dict[str, object]:
        return {"seconds": {"total": seconds}, "versions": {"device": device}}

    climb, fifo = tiny_config(), tiny_config(method="er-fifo")
    guess = Clock("cpu").seconds(climb)
    assert guess is not None
    clock = Clock("cpu", [(climb, result(3 * guess)), (fifo, result(guess / 2)), (climb, result(1e9, "cuda"))])
    assert clock.measured
    assert clock.seconds(climb) == pytest.approx(3 * guess)
    assert clock.seconds(fifo) == pytest.approx(guess / 2)
    assert clock.seconds(tiny_config(method="er-reservoir")) == pytest.approx(1.75 * guess)  # the middle of all
    assert not Clock("cuda", [(climb, result(1.0))]).measured
    assert not Clock("cpu", [(climb, {})]).measured  # a foreign result without time or device


@pytest.mark.parametrize("more", [0, 3])
def test_reembedded_images_are_counted(tiny_config: Callable[..., RunConfig], more: int) -> None:
    learner = tiny_config(method="scale").learner
    learner = replace(learner, memory=replace(learner.memory, capacity=learner.memory.capacity + more))
    embedded = []

    def embed(images: torch.Tensor) -> torch.Tensor:
        embedded.append(len(images))
        return images.flatten(1).float()

    memory = PartAndSelectMemory(learner.memory.capacity, (3, 2, 2), 12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        size = (learner.stream_batch, 3, 2, 2)
        memory.insert(torch.randint(0, 256, size, dtype=torch.uint8, generator=generator), None, embed=embed)
    assert sum(embedded) == reembedded(learner, 20 * learner.stream_batch) > 0
    assert reembedded(learner, learner.memory.capacity) == 0
    paper = get_recipe("cifar100-20", preset="paper")
    climb, scale = (
        work_of(replace(paper, learner=replace(paper.learner, method=name)), "cuda") for name in ("climb", "scale")
    )
    assert climb is not None
    assert scale is not None
    assert climb.backward_passes == scale.backward_passes
    assert 1.6 < scale.seconds / climb.seconds < 2.4


def test_an_own_engine_is_timed_only_by_its_own_runs(tiny_config: Callable[..., RunConfig]) -> None:
    pcmc, climb = tiny_config(method="pcmc"), tiny_config()
    took = {"seconds": {"total": 500.0}, "versions": {"device": "cpu"}}
    assert Clock("cpu").seconds(pcmc) is None
    assert Clock("cpu", [(climb, took)]).seconds(pcmc) is None
    clock = Clock("cpu", [(pcmc, took)])
    assert clock.seconds(pcmc) == pytest.approx(500)
    assert clock.seconds(climb) == Clock("cpu").seconds(climb)
    assert not clock.measured


def test_a_plan_names_methods_of_unknown_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*methods: str) -> str:
        grid = build_grid("table-regular", replace(TINY, methods=methods))
        return make_plan([grid], tmp_path).describe("cpu", parallel=1).partition("to do: ")[2]

    foreseen = said("climb").removeprefix("100 stream images, ").removesuffix(" on cpu (a rough guess)")
    passes, about = foreseen.split("; ")
    why = "pcmc: only a run shows how much it trains"
    both = f"200 stream images, {passes}, not counting pcmc; {about} on cpu (a rough guess, without {why})"
    assert said("climb", "pcmc") == both
    assert said("pcmc") == f"100 stream images; time unknown for {why}"
    monkeypatch.setattr(Clock, "seconds", lambda clock, config: 60.0)  # once it has finished runs
    assert said("pcmc") == "100 stream images; about 60 s on cpu (a rough guess)"


def test_a_plan_of_unknown_images_has_no_time(tmp_path: Path) -> None:
    plan = make_plan([build_grid("table-pruning", Request(dataset="folder"))], tmp_path)
    assert "not known" in plan.describe("cpu")


@pytest.mark.parametrize("content", [b"", b'{"final_acc', b"\xff\xfe\x00", b"[]", b"{}"])
def test_a_damaged_result_does_not_affect_other_runs(content: bytes, tmp_path: Path) -> None:
    grid = build_grid("table-regular", TINY)
    first, second = make_plan([grid], tmp_path).jobs(CPU)
    assert run_job(second).status == "done"
    first.folder.mkdir(parents=True)
    (first.folder / "config.json").write_text(json.dumps({"config_hash": first.config.config_hash()}))
    (first.folder / "result.json").write_bytes(content)
    plan = make_plan([grid], tmp_path)
    assert [job.label for job in plan.jobs(CPU)] == [first.label]
    assert "1 done, 1 failed before" in plan.describe("cpu")
    assert [placed.row for placed in plan.placed(grid)] == ["er-fifo"]
    outcome = run_job(first)  # nothing is thrown away that a person did not throw away
    assert outcome.status == "failed"
    assert "delete the folder to start over" in outcome.error


def test_a_damaged_configuration_does_not_affect_other_runs(tmp_path: Path) -> None:
    grid = build_grid("table-regular", TINY)
    first, _ = make_plan([grid], tmp_path).jobs(CPU)
    first.folder.mkdir(parents=True)
    (first.folder / "config.json").write_text("hi")
    assert [run_job(job).status for job in make_plan([grid], tmp_path).jobs(CPU)] == ["failed", "done"]
    assert "1 done, 1 failed before" in make_plan([grid], tmp_path).describe("cpu")


def test_the_result_of_another_run_is_rejected(tmp_path: Path) -> None:
    grid = build_grid("table-regular", TINY)
    first, second = make_plan([grid], tmp_path).jobs(CPU)
    for job in (first, second):
        assert run_job(job).status == "done"
    shutil.copy(second.folder / "result.json", first.folder / "result.json")
    plan = make_plan([grid], tmp_path)
    assert [job.label for job in plan.jobs(CPU)] == [first.label]
    assert [placed.row for placed in plan.placed(grid)] == ["er-fifo"]
    assert "result of another run" in run_job(first).error
    with pytest.raises(InputError, match="result of another run"):
        finished_runs([first.folder])
    assert list(finished_runs([tmp_path])) == [second.config.config_hash()]


def test_runs_on_other_images_are_not_reused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Plans look at names and sizes alone: these images are never opened."""
    for name in ("a", "b"):
        for number in range(4):
            file = tmp_path / name / f"class {number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name * number if name == "a" else name)
    config = replace(RunConfig(), data=replace(RunConfig().data, dataset="folder"))
    grid = tuning_grid(config, {"lr": (0.1,)}, [0])
    made = make_plan([grid], tmp_path / "out")
    with pytest.raises(InputError, match="dataset 'folder' needs the folder of the images: --data FOLDER"):
        made.jobs(CPU)  # once, and not by every run
    (job,) = made.jobs(replace(CPU, data_root=str(tmp_path / "a")))
    found = fingerprint("folder", root=tmp_path / "a")
    RunFolder(job.folder).claim(job.config, CPU, {}, images=found)
    result = {"config_hash": job.config.config_hash(), "data_fingerprint": found}
    result |= {"dataset": "folder", "method": "climb", "seed": 0, "tasks": 20}
    (job.folder / "result.json").write_text(json.dumps(result))

    def plan(images: str | None, out: str = "out", **more: Any) -> Plan:
        return make_plan([grid], tmp_path / out, data_root=None if images is None else str(tmp_path / images), **more)

    assert statuses(plan("a")).count("done") == statuses(plan(None)).count("done") == 1
    with pytest.raises(InputError, match="holds a run on other images"):
        plan("b")
    assert statuses(plan("a", "new", reuse=[tmp_path / "out"])).count("done") == 1
    assert statuses(plan("b", "new", reuse=[tmp_path / "out"])).count("new") == 1
    assert "made from other images" in caplog.text


def test_own_finished_runs_come_before_reused_ones_and_of_those_the_first_given(tmp_path: Path) -> None:
    """On a GPU no two results are the same: which one stands in a table is not left to chance."""
    grid = build_grid("table-regular", Request(scale="tiny", methods=("er-fifo",), tasks=(20,), seeds=(0,)))
    for name in ("own", "b", "a"):
        (job,) = make_plan([grid], tmp_path / name).jobs(CPU)
        assert run_job(job).status == "done"

    def folder(out: str) -> Path:
        (planned,) = make_plan([grid], tmp_path / out, reuse=[tmp_path / "b", tmp_path / "a"]).runs.values()
        return planned.folder

    assert folder("own").is_relative_to(tmp_path / "own")
    assert folder("new").is_relative_to(tmp_path / "b")
