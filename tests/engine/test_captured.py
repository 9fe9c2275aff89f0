"""The captured and the compiled step against the eager one, where a GPU is present."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from climb.engine import Engine, EngineKind
from climb.engine.captured import Captured
from climb.memory import InsertReport
from climb.memory.contract import Embed
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset

pytestmark = pytest.mark.gpu


def make(kind: EngineKind, preset: str) -> Engine:
    config = LearnerConfig(
        backbone="resnet18",
        replay_batch=32,
        memory=MemoryConfig(capacity=200, stm_centroids=20, ltm_centroids=5, images_per_centroid=10, window=100),
    )
    return build_engine(
        apply_preset(config, preset),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        seed=0,
        device=torch.device("cuda"),
        precision="float32",
        kind=kind,
    )


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("kind", ["captured", "compiled"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:TensorFloat32:UserWarning")
def test_faster_steps_agree_with_eager_ones(kind: EngineKind, preset: str) -> None:
    """One step at a time from the same state: over many steps training amplifies any difference in rounding."""
    generator = torch.Generator().manual_seed(0)
    batches = torch.randint(0, 256, (12, 42, 3, 32, 32), dtype=torch.uint8, generator=generator).cuda()
    stream_rows, replay_rows = torch.arange(10).cuda(), torch.arange(10, 42).cuda()
    eager, captured, none = make("eager", preset), make(kind, preset), torch.zeros(0).cuda()
    for number, images in enumerate(batches):
        captured.load_state_dict(eager.state_dict())
        one = eager._step(images, stream_rows, replay_rows, none)
        other = captured._step(images, stream_rows, replay_rows, none)
        for left, right in zip(one, other, strict=True):
            assert (left - right).norm() <= 1e-3 * left.norm() + 1e-4, f"an output of step {number}"
        ours, theirs = captured.parts.network.state_dict(), eager.parts.network.state_dict()
        for name, value in theirs.items():
            if value.is_floating_point():
                assert (value - ours[name]).norm() <= 1e-3 * value.norm() + 1e-4, f"{name} after step {number}"
    assert len(captured._step._captures) == 1  # type: ignore[attr-defined]


def test_the_memory_is_given_what_the_step_embedded() -> None:
    """Insertion runs beside the backward: it must not read embeddings before they are written."""
    stream = torch.randint(0, 256, (25, 10, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    engine = make("captured", "default")
    memory, given = engine.parts.memory, []
    assert memory is not None
    insert, refresh = memory.insert, memory.refresh
    memory.insert = lambda images, embeddings, **rest: (  # type: ignore[method-assign,misc]
        given.append(embeddings.clone()) or insert(images, embeddings, **rest)
    )
    memory.refresh = lambda ids, embeddings: (  # type: ignore[method-assign,misc]
        given.append(embeddings.clone()) or refresh(ids, embeddings)
    )
    for images in stream:
        given.clear()
        observation = engine.observe(images.cuda())
        torch.cuda.synchronize()
        torch.testing.assert_close(given[-1], observation.embeddings[:10], rtol=0, atol=0)
        if len(given) > 1:
            torch.testing.assert_close(given[-2], observation.embeddings[10:], rtol=0, atol=0)


def test_a_captured_engine_continues_from_its_state() -> None:
    stream = torch.randint(0, 256, (30, 10, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    first, second = make("captured", "default"), make("captured", "default")
    for images in stream[:20]:
        first.observe(images)
    second.load_state_dict(first.state_dict())
    one, other = first.observe(stream[20]), second.observe(stream[20])  # replayed here, eager there
    torch.testing.assert_close(other.objective, one.objective, rtol=1e-2, atol=1e-2)
    assert one.report == other.report
    assert first.budget == second.budget


@pytest.mark.parametrize("kind", ["eager", "captured"])
def test_a_memory_embeds_by_the_network_as_the_step_leaves_it(kind: EngineKind) -> None:
    """What a memory embeds within an insertion must wait for the optimiser, though the insertion does not."""
    stream = torch.randint(0, 256, (15, 10, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    engine = make(kind, "default")
    memory, given = engine.parts.memory, []
    assert memory is not None
    insert = memory.insert

    def embedding(images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed) -> InsertReport:
        given.append(embed(images).clone())
        return insert(images, embeddings, embed=embed)

    memory.insert = embedding  # type: ignore[method-assign,assignment]
    for images in stream.cuda():
        engine.observe(images)
        torch.cuda.synchronize()
        torch.testing.assert_close(given[-1], engine.embed(images), rtol=1e-3, atol=1e-4)


def test_what_fails_beside_a_step_is_waited_for() -> None:
    engine = make("eager", "default")
    engine.observe(torch.zeros(10, 3, 32, 32, dtype=torch.uint8).cuda())

    def fail() -> None:
        with engine._overlapping_the_step():
            torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    torch.cuda.current_stream().synchronize()
    assert engine._side is not None
    assert engine._side.query()
    assert engine._stepping is None


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_second_device_is_captured_too() -> None:
    for number in range(2):
        device = torch.device("cuda", number)
        captured = Captured(lambda x: (x * 2,), device=device)
        for value in range(12):
            (doubled,) = captured(torch.full((3,), float(value), device=device))
            assert doubled.tolist() == [2.0 * value] * 3


def test_a_part_that_waits_for_the_device_is_told_what_to_do() -> None:
    # In a process of its own: a capture that failed can leave CUDA in a state that no other test should meet.
    code = (
        "import torch; from climb.engine.captured import Captured; device = torch.device('cuda');"
        "step = Captured(lambda x: (x * x.sum().item(),), device=device);"
        "[step(torch.ones(3, device=device)) for _ in range(12)]"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "ClimbError: the step cannot be captured as a CUDA graph" in found.stderr
    assert "--engine eager" in found.stderr


def test_a_capture_that_breaks_off_for_want_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ending the capture fails then, too, and torch reports that."""

    @contextmanager
    def graph(*args: object, **kwargs: object) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("the capture was invalidated")

    def step(images: torch.Tensor) -> tuple[torch.Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        Captured(step, device=torch.device("cpu"))._capture((torch.zeros(1),))


def test_want_of_memory_in_a_real_capture_says_so() -> None:
    # In a process of its own, as above.
    code = (
        "import torch; from climb.engine.captured import Captured; device = torch.device('cuda');"
        "much = lambda: torch.empty(2**50 if torch.cuda.is_current_stream_capturing() else 1, device=device);"
        "step = Captured(lambda x: (x + 1, much()), device=device);"
        "[step(torch.ones(3, device=device)) for _ in range(12)]"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory" in found.stderr.splitlines()[-1]
