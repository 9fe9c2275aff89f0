from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from climb.bench.executors import Job, run_job
from climb.bench.executors.job import Outcomes
from climb.bench.grids import Request, configure
from climb.bench.layouts import RowSpec
from climb.settings.config import Execution, RunConfig

sys.path.insert(0, str(Path(__file__).parent))  # `watching`: what tests do to runs in other processes


@pytest.fixture
def tiny_config() -> Callable[..., RunConfig]:
    """``tiny_config(seed=1, train_per_class=40)``: a run of a rehearsal; more images make it longer."""

    def make(*, method: str = "climb", seed: int = 0, train_per_class: int = 11) -> RunConfig:
        config = configure(Request(scale="tiny"), RowSpec(label="", method=method), seed=seed, tasks=20)
        options = {**config.data.options, "train_per_class": train_per_class}
        return replace(config, data=replace(config.data, options=options))

    return make


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    """``make_job(config)``: the job of a run, below the test's own folder."""

    def make(config: RunConfig, *, checkpoint_seconds: float = 60.0, out: Path | None = None) -> Job:
        return Job(
            config=config,
            execution=Execution(device="cpu", checkpoint_seconds=checkpoint_seconds),
            folder=(out or tmp_path) / "runs" / config.config_hash(),
            label=f"{config.learner.method}, seed {config.seed}",
        )

    return make


@pytest.fixture
def here() -> Callable[[Sequence[Job]], Outcomes]:
    """An executor of this process: what all of them do, without the machinery."""

    def run(jobs: Sequence[Job]) -> Outcomes:
        for job in jobs:
            yield job, run_job(job)

    return run
