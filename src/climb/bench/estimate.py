"""The work and the expected time of a run, corrected by the times of finished runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from climb.bench.collect import lookup
from climb.memory import PartAndSelectMemory
from climb.methods import find_method
from climb.settings.config import LearnerConfig, RunConfig
from climb.streams import Manifest

DATASET_SIZES = {
    "cifar10": (10, 50_000, 10_000),
    "cifar100": (100, 50_000, 10_000),
    "tiny-imagenet": (200, 100_000, 10_000),
    "imagenet100": (100, 126_700, 5_000),  # varies slightly with the classes drawn
}
"""Classes, training images and test images."""
VIEWS = 2
OVERHEAD = 1.0
"""Seconds to load the dataset and to write the result."""

PIXELS_PER_SECOND = {
    ("cuda", "resnet18"): 3.6e7,  # an otherwise idle NVIDIA H200, bf16, compiled step: 7 ms for 276 views of 32 px
    ("cuda", "micro"): 1e8,  # not measured
    ("cpu", "resnet18"): 2e4,  # one core: 2.7 s for 52 views of 32 px
    ("cpu", "micro"): 1.1e6,  # one core: 12 ms for 52 views of 16 px
}
"""Trained pixels per second. A forward pass alone is about three times as fast."""
DEFAULT_RATE = {"cuda": 4e6, "cpu": 1e4, "mps": 5e5}  # not measured


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a run."""

    stream_images: int
    backward_passes: int | None
    """None for a method with its own engine: only a run shows how much it trains."""
    forward_images: int
    """Images embedded for the evaluations, and by memories that embed again."""
    train_images: int
    """Training images of the probes."""
    evaluations: int
    """Probes, or pairs of them: before the first task, after each, and at the end."""
    seconds: float
    """On one device, from the table above. With an own engine, only a unit for the times of its finished runs."""


def work_of(config: RunConfig, device: str) -> Work | None:
    """The work of a run on "cpu" or "cuda"; None if the size of the dataset is unknown.

    >>> work_of(RunConfig(), "cpu").stream_images
    1800
    """
    data, learner, evaluation = config.data, config.learner, config.evaluation
    sizes = DATASET_SIZES.get(data.dataset)
    if data.dataset == "synthetic":
        defaults = (("classes", 10), ("train_per_class", 200), ("test_per_class", 50))
        classes, train, test = (int(data.options.get(name, default)) for name, default in defaults)
        sizes = (classes, classes * train, classes * test)
    if sizes is None:
        return None
    classes, train, test = sizes
    stream = train - classes * int(Manifest.validation * train / classes)
    steps = learner.passes * (stream // learner.stream_batch)
    backward = VIEWS * steps * (learner.stream_batch + learner.replay_batch)
    networks = 2 if evaluation.network == "both" else 1
    # After each task, before the first, other probes.
    evaluations = (max(1, config.stream.tasks) + 2) * networks  # 0 tasks: the scenario decides
    forward = evaluations * (train + test) + reembedded(learner, stream)
    rate = PIXELS_PER_SECOND.get((device, learner.backbone), DEFAULT_RATE.get(device, DEFAULT_RATE["cpu"]))
    seconds = OVERHEAD + (backward + forward / 3) * learner.image_size**2 / rate
    custom = find_method(learner.method).custom_engine
    return Work(
        stream_images=stream,
        backward_passes=None if custom else backward,
        forward_images=forward,
        train_images=stream,
        evaluations=evaluations,
        seconds=seconds,
    )


def reembedded(learner: LearnerConfig, stream_images: int) -> int:
    """Images that SCALE's memory embeds anew over a stream to choose among all it holds; 0 for other memories.

    >>> reembedded(LearnerConfig(method="scale"), 45_000), reembedded(LearnerConfig(), 45_000)
    (10667500, 0)
    """
    method, batch, capacity = find_method(learner.method), learner.stream_batch, learner.memory.capacity
    choices = stream_images // batch - capacity // batch  # until it is full, it keeps all images
    if choices < 1 or not method.uses("memory", PartAndSelectMemory):
        return 0
    return choices * (capacity + batch) - capacity % batch  # at the first choice it may not be quite full


class Clock:
    """Expected seconds of a run, corrected by finished runs: those of the same method if any, else of all methods.

    A method with its own engine is timed by its own finished runs only, and does not correct other methods.

    Args:
        device: "cpu" or "cuda".
        finished: configurations and results of finished runs.
        timed: gives the seconds of a run from a few steps; asked if no run of its method has finished.
    """

    def __init__(
        self,
        device: str,
        finished: Iterable[tuple[RunConfig, Mapping[str, Any]]] = (),
        timed: Callable[[RunConfig], float | None] | None = None,
    ) -> None:
        self.device = device
        self._timed = timed
        self._all: list[float] = []  # measured seconds relative to those of `work_of`
        self._by_method: dict[str, list[float]] = defaultdict(list)
        for config, result in finished:
            work, seconds = work_of(config, device), lookup(result, "seconds.total")
            same_device = str(lookup(result, "versions.device")).startswith(device)
            if work is not None and seconds is not None and same_device:
                self._by_method[config.learner.method].append(seconds / work.seconds)
                self._all += [] if work.backward_passes is None else [seconds / work.seconds]
        self.measured = bool(self._all)
        """Whether finished runs correct the times of methods in general."""

    def seconds(self, config: RunConfig) -> float | None:
        """Expected time of a run; None for an unknown dataset or an untimed method with its own engine."""
        work, own = work_of(config, self.device), self._by_method.get(config.learner.method)
        if work is None or (work.backward_passes is None and not own):
            return None
        if not own and self._timed is not None and (seconds := self._timed(config)) is not None:
            return seconds
        return work.seconds * median(own or self._all or [1.0])


def say_seconds(seconds: float) -> str:
    """A duration in words.

    >>> say_seconds(42), say_seconds(600), say_seconds(9000), say_seconds(400_000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
