"""A real Ray cluster: two nodes, a worker that dies during a run, and a local cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watching import ENDLESS, holder, wait_for, without_seconds

from climb.bench.executors import Job, run_job
from climb.bench.executors.cluster import ray_executor
from climb.runs import Journal, RunFolder
from climb.settings.config import RunConfig

MakeConfig = Callable[..., RunConfig]
MakeJob = Callable[..., Job]

pytestmark = [pytest.mark.slow(seconds=20), pytest.mark.filterwarnings("ignore")]  # Ray's own


@pytest.fixture
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


def test_a_run_resumes_after_its_worker_died(
    tiny_config: MakeConfig, make_job: MakeJob, two_nodes: str, tmp_path: Path
) -> None:
    jobs = [
        make_job(tiny_config(seed=seed, train_per_class=count), checkpoint_seconds=0.0, out=tmp_path / "disturbed")
        for seed, count in enumerate((40, 11, 11))
    ]
    victim = jobs[0]

    def kill() -> None:
        wait_for(RunFolder(victim.folder).checkpoint_path.exists)
        os.kill(holder(victim.folder), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = {job.folder: outcome for job, outcome in ray_executor(address=two_nodes, device="cpu")(jobs)}
    killer.join()
    assert [outcomes[job.folder].status for job in jobs] == ["done"] * 3
    starts = Journal(victim.folder / "journal.jsonl").read("start")
    assert [line["batch"] > 0 for line in starts] == [False, True]  # from its checkpoint, not from the start
    undisturbed = make_job(victim.config, out=tmp_path / "undisturbed")
    run_job(undisturbed)
    ours, theirs = without_seconds(victim.folder), without_seconds(undisturbed.folder)
    assert ours == theirs
    models = [(folder / "model.safetensors").read_bytes() for folder in (victim.folder, undisturbed.folder)]
    assert models[0] == models[1]


def test_a_local_cluster_starts_and_stops(
    tiny_config: MakeConfig, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # of another one, which is none of its business
    done, long = make_job(tiny_config(method="er-fifo")), make_job(tiny_config(seed=1, train_per_class=ENDLESS))
    outcomes = ray_executor(device="cpu", per_device=2)([done, long])
    job, outcome = next(outcomes)
    assert (job, outcome.status) == (done, "done")
    wait_for(lambda: Journal(long.folder / "journal.jsonl").read("train"))
    outcomes.close()  # as Ctrl-C does
    assert not ray.is_initialized()
    state = RunFolder(long.folder).load_checkpoint()
    assert state is not None
    assert state["done"] > 0
    assert RunFolder(long.folder).result() is None


def test_nothing_to_do_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr(ray, "init", refused)
    assert list(ray_executor(device="cpu")([])) == []
