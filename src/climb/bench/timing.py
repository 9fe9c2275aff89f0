"""The expected time of a run, from a few steps timed on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch

from climb.bench.estimate import OVERHEAD, VIEWS, work_of
from climb.engine import IidChunks, resolve_device, resolve_engine, resolve_precision
from climb.evaluation import LinearProbeConfig, extract_features, fit_linear_probe
from climb.methods.build import build_engine
from climb.precision import threads
from climb.settings.config import Execution, LearnerConfig, RunConfig

TOTAL_SECONDS = 6.0
"""Time after which no further configuration is timed; the others are judged by those that were."""
STEP_SECONDS, FORWARD_SECONDS = 1.0, 0.3
"""Time to spend on steps, and on forward passes."""
PROBE_ROWS, PROBE_CLASSES, PROBE_EPOCHS = 2000, 100, 2
"""Size of the probe that is timed."""
UPTO_SHARE = 0.5
"""Images of the second probe, trained on the tasks so far, relative to the first; on average over tasks."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What this machine does in a second."""

    rows: float
    """Training rows, with all that a method does for them."""
    images: float
    """Images embedded."""
    probe_rows: float
    """Rows of features that a probe trains on, each epoch."""


class Stopwatch:
    """Times a few steps of some configurations; those that differ only in numbers such as the rate share the time.

    On a CPU one thread is timed, as each run of a grid has one. A long list is not timed to its end: the remaining
    configurations are expected to be as much slower than the table of `climb.bench.estimate` as those before.

    >>> from climb.session import experiment
    >>> seconds = Stopwatch(Execution(device="cpu")).seconds(experiment("demo", tasks=1, probe_epochs=1))
    >>> seconds is not None and seconds > 1
    True
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._paces: dict[LearnerConfig, Pace] = {}
        self._spent = 0.0
        self._ratios: list[float] = []  # timed seconds relative to those of `work_of`

    def seconds(self, config: RunConfig) -> float | None:
        """Expected time of a run; None for an unknown dataset or a method with its own engine."""
        work = work_of(config, "cpu")
        if work is None or work.backward_passes is None:
            return None
        pace = self._pace(config.learner)
        if pace is None:
            return median(self._ratios) * work.seconds
        probed = (1 + UPTO_SHARE) * work.train_images * config.evaluation.epochs * work.evaluations
        training = work.backward_passes / VIEWS / pace.rows
        seconds = OVERHEAD + training + work.forward_images / pace.images + probed / pace.probe_rows
        self._ratios.append(seconds / work.seconds)
        return seconds

    def _pace(self, learner: LearnerConfig) -> Pace | None:
        # Numbers that change no shape.
        key = replace(learner, lr=1.0, momentum=0.0, weight_decay=0.0, temperature=1.0, alignment_weight=1.0)
        if key not in self._paces and self._ratios and self._spent > TOTAL_SECONDS:
            return None
        if key not in self._paces:
            began = time.perf_counter()
            device = resolve_device(self._execution.device)
            with threads(1 if device.type == "cpu" else torch.get_num_threads()):
                # A pass costs the same in a mini-batch of one.
                self._paces[key] = _measure(replace(learner, passes=1), device, self._execution)
            self._spent += time.perf_counter() - began
        return self._paces[key]


def _measure(learner: LearnerConfig, device: torch.device, execution: Execution) -> Pace:
    precision = resolve_precision(execution.precision, device)
    engine = build_engine(
        learner,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        seed=0,
        device=device,
        precision=precision,
        kind="eager" if device.type == "cpu" else resolve_engine(execution.engine, device),
    )
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> torch.Tensor:
        shape = (count, 3, learner.image_size, learner.image_size)
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    takes_chunks = isinstance(engine.parts.batch, IidChunks)
    size = learner.passes * (learner.stream_batch + learner.replay_batch) if takes_chunks else learner.stream_batch

    def train() -> float:
        before = engine.budget.cbp
        engine.observe(draw(size))
        return (engine.budget.cbp - before) / VIEWS

    # Steps are small until replay starts, so they only warm up; but those of a slow network have to do.
    train()
    began = time.perf_counter()
    rows = train()
    took = time.perf_counter() - began
    pace, slow = rows / took, took > STEP_SECONDS / 4
    while not slow and engine.budget.images < 2 * learner.replay_batch:
        train()
    images = draw(8 if slow else 64)

    def embed() -> float:
        extract_features(
            engine.parts.network.encoder,
            images,
            engine.augment.plain,
            batch_size=len(images),
            device=device,
            precision=precision,
        )
        return len(images)

    embed()
    features = torch.randn(PROBE_ROWS, engine.parts.network.feature_dim, generator=generator).to(device)
    labels = (torch.arange(PROBE_ROWS) % PROBE_CLASSES).to(device)
    probe = LinearProbeConfig(epochs=PROBE_EPOCHS)

    def fit() -> float:
        fit_linear_probe(features, labels, features[:100], labels[:100], classes=PROBE_CLASSES, config=probe, seed=0)
        return PROBE_ROWS * PROBE_EPOCHS

    return Pace(
        rows=pace if slow else _per_second(train, STEP_SECONDS, device),
        images=_per_second(embed, FORWARD_SECONDS, device),
        probe_rows=_per_second(fit, FORWARD_SECONDS, device),
    )


def _per_second(work: Callable[[], float], seconds: float, device: torch.device) -> float:
    """How much of some work is done in a second; it is repeated for about so many seconds, at least once."""
    done, began = 0.0, time.perf_counter()
    while done == 0 or time.perf_counter() - began < seconds:
        done += work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return done / (time.perf_counter() - began)
