"""The captured and the compiled step against the eager one, where a GPU is present."""

from __future__ import annotations

import pytest
import torch

from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Engine, EngineKind
from climb.learner import build_engine
from climb.presets import apply_preset

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


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
