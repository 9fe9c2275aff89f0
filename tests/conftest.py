"""What all tests, and the processes that they start, find."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One thread a process: the suite runs a process per core, and two threads on one core wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the processes that tests start

# A shell has its background jobs ignore Ctrl-C, nohup a closed terminal, and both hand that on; tests send both.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# However slow the machine is, and with no folder of examples that two processes share. Where a change is judged, every
# run has the same examples: one that fails there fails for everybody.
settings.register_profile(
    "climb",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("climb")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest first: of two processes, none is to begin one of them when the other has no more."""
    seconds = Counter[Path]()
    for item in items:
        marker = item.get_closest_marker("slow")
        seconds[item.path] += marker.kwargs.get("seconds", 0) if marker is not None else 0
    items.sort(key=lambda item: -seconds[item.path])  # which leaves equals in their order


@contextmanager
def scoped_registries() -> Iterator[None]:
    """Inside, parts may be registered; on leaving, they are gone."""
    from climb.alignment import ALIGNMENTS
    from climb.augment import POLICIES
    from climb.datasets.dataset import DATASETS
    from climb.engine import BATCH_RULES
    from climb.memory import MEMORIES
    from climb.methods import METHODS, OBJECTIVES
    from climb.nets import BACKBONES
    from climb.sources.source import SOURCES
    from climb.streams import SCENARIOS

    parts = (METHODS, OBJECTIVES, BACKBONES, MEMORIES, BATCH_RULES, ALIGNMENTS, POLICIES, DATASETS, SOURCES, SCENARIOS)
    with ExitStack() as stack:
        for registry in parts:
            stack.enter_context(registry.scoped())
        yield
    for module in [name for name in sys.modules if name.startswith("climb_file_")]:
        del sys.modules[module]  # so that the next test imports its file again


@pytest.fixture
def registries() -> Iterator[None]:
    """Parts that the test registers are gone after it."""
    with scoped_registries():
        yield


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """``install(module, source)``: a package whose entry point is that module, for this process and those it starts.
    Gives its file of entry points; gone after the test."""
    modules = []

    def installed(module: str, source: str) -> Path:
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[climb.methods]\n{module} = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        return about / "entry_points.txt"

    with scoped_registries():
        yield installed
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def few_calls() -> Iterator[int]:
    """Inside, functions can be nested this deep and no deeper: folders nested deeper can still be removed after it."""
    before, nested = sys.getrecursionlimit(), 60
    sys.setrecursionlimit(len(inspect.stack(0)) + nested)
    yield nested
    sys.setrecursionlimit(before)
