"""Small real runs, made once per session; a real server; a real browser, if installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from climb.methods import choose_method
from climb.session import execute
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
)

TOKEN = "a-token-of-some-length"
SECONDS = 300  # timeout, generous for slow machines
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip


def config(method: str, seed: int) -> RunConfig:
    learner = LearnerConfig(
        backbone="micro",
        image_size=16,
        replay_batch=8,
        memory=MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50),
    )
    return RunConfig(
        seed=seed,
        data=DataConfig(image_size=16, options={"classes": 4, "train_per_class": 40, "test_per_class": 10}),
        stream=StreamConfig(tasks=2),
        learner=choose_method(learner, method),
        evaluation=EvaluationConfig(network="student", epochs=2),
    )


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, one of them in a subfolder."""
    folder = tmp_path_factory.mktemp("real") / "runs"
    execute(config("climb", 0), Execution(device="cpu"), folder / "climb-0")
    execute(config("climb-fifo", 1), Execution(device="cpu"), folder / "sweep" / "fifo-1")
    return folder


@pytest.fixture
def runs(real_runs: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(real_runs, tmp_path / "runs"))


@pytest.fixture
def unfinished(runs: Path) -> Callable[[int], Path]:
    """``unfinished(lines)`` creates the run "live" with the first lines of a real journal, as if in progress."""

    def make(lines: int) -> Path:
        folder = Path(shutil.copytree(runs / "climb-0", runs / "live"))
        for name in ("result.json", "memory.safetensors"):
            (folder / name).unlink()
        journal = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
        (folder / "journal.jsonl").write_text("".join(journal[:lines]))
        return folder

    return make


def learned_without_labels(folder: Path) -> Path:
    """A learner's folder: no tasks, no accuracy, a warning, a rotated journal."""
    folder.mkdir(parents=True)
    header = {
        "format_version": 1,
        "config_hash": "feedfeedfeedfeed",
        "config": {
            "recipe": "learn",
            "seed": 0,
            "data": {"dataset": "own images"},
            "stream": {"kind": "own", "tasks": 0},
            "learner": {"method": "climb", "preset": "default", "memory": {"capacity": 60}},
            "evaluation": {"network": "teacher"},
        },
        "command": "climb learn photos --out here",
    }
    (folder / "config.json").write_text(json.dumps(header))
    for name, batches in (("journal.1.jsonl", range(1, 40)), ("journal.jsonl", range(40, 60))):
        lines: list[dict[str, Any]] = [
            {"batch": n, "event": "train", "time": 1e9 + n, "images": 10 * n, "objective": 4 / n, "alignment": None,
             "stored": min(n, 60), "novelty_rate": 1 / n, "stm_images": n, "ltm_images": 0}
            for n in batches
        ]  # fmt: skip
        lines.append({"batch": batches[-1], "event": "warning", "text": "the network has <collapsed>"})
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def own_stream(tmp_path: Path) -> Path:
    return learned_without_labels(tmp_path / "runs" / "photos")


@contextmanager
def running(folder: Path, *options: str, token: str | None = None) -> Iterator[str]:
    """Run `climb serve` in another process and yield its address."""
    code = "import sys; from climb.cli import main; main(sys.argv[1:])"
    environment = {"CLIMB_TOKEN": token} if token else {}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    watch = threading.Timer(SECONDS, process.kill)
    watch.start()
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().split("?")[0]
    finally:
        watch.cancel()
        process.terminate()
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def start() -> Callable[..., Any]:
    return running


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=1000 * SECONDS)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Callable[..., Any]:
    """``with open_page(address, scheme="light") as page:``; the test fails on console messages and foreign requests.

    The page closes before its server, because a page without its server logs errors.
    """

    @contextmanager
    def opened(address: str, *, scheme: str = "light", width: int = 1280) -> Iterator[Any]:
        complaints: list[str] = []
        own = address.split("/")[2]
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        try:
            context.set_default_timeout(1000 * SECONDS)
            page = context.new_page()
            page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            page.on("request", lambda request: complaints.append(request.url) if _elsewhere(request.url, own) else None)
            page.goto(address)
            yield page
        finally:
            context.close()
        assert complaints == []

    return opened


def _elsewhere(url: str, own: str) -> bool:
    return not url.startswith(("data:", "file:")) and url.split("/")[2] != own
