"""How much work a run is, and about how long it will take: said before a grid starts, corrected by finished runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from climb.config import LearnerConfig, RunConfig
from climb.memory import PartAndSelectMemory
from climb.methods import find_method, kind_of_memory

DATASET_SIZES = {
    "cifar10": (10, 50_000, 10_000),
    "cifar100": (100, 50_000, 10_000),
    "tiny-imagenet": (200, 100_000, 10_000),
    "imagenet100": (100, 126_700, 5_000),  # depends a little on the classes drawn
}
"""Classes, training and test images."""
VIEWS = 2
HELD_OUT = 0.1
OVERHEAD = 1.0
"""Seconds to load the dataset and to write the result."""

PIXELS_PER_SECOND = {
    ("cuda", "resnet18"): 3.6e7,  # NVIDIA H200 to itself, bf16, compiled step: 7 ms for 276 views of 32 px
    ("cuda", "micro"): 1e8,  # not measured
    ("cpu", "resnet18"): 2e4,  # one core: 2.7 s for 52 views of 32 px
    ("cpu", "micro"): 1.1e6,  # one core: 12 ms for 52 views of 16 px
}
"""Trained pixels a second; a forward pass alone is about three times as fast."""
DEFAULT_RATE = {"cuda": 4e6, "cpu": 1e4, "mps": 5e5}  # not measured


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run has to do."""

    stream_images: int
    backward_passes: int | None
    """None for a method with a loop of its own: how much it trains shows only when it runs."""
    seconds: float
    """On one device, by the table above; with a loop of its own, a unit that its finished runs can be measured in."""


def work_of(config: RunConfig, device: str) -> Work | None:
    """The work of a run on a kind of device ("cpu", "cuda"); None where the size of the dataset is not known.

    >>> work_of(RunConfig(), "cpu").stream_images
    1800
    """
    sizes = _sizes(config)
    if sizes is None:
        return None
    classes, train, test = sizes
    learner, evaluation = config.learner, config.evaluation
    stream = train - classes * int(HELD_OUT * train / classes)
    steps = learner.passes * (stream // learner.stream_batch)
    backward = VIEWS * steps * (learner.stream_batch + learner.replay_batch)
    networks = 2 if evaluation.network == "both" else 1
    forward = (config.stream.tasks + 2) * networks * (train + test)  # a floor first, other probes last
    forward += embedded_anew(learner, stream)
    rate = PIXELS_PER_SECOND.get((device, learner.backbone), DEFAULT_RATE.get(device, DEFAULT_RATE["cpu"]))
    seconds = OVERHEAD + (backward + forward / 3) * learner.image_size**2 / rate
    own_loop = find_method(learner.method).own_loop
    return Work(stream_images=stream, backward_passes=None if own_loop else backward, seconds=seconds)


def embedded_anew(learner: LearnerConfig, stream_images: int) -> int:
    """Images that go through the network, over a stream, so that the memory can choose among all it holds (SCALE).

    >>> embedded_anew(LearnerConfig(method="scale"), 45_000), embedded_anew(LearnerConfig(), 45_000)
    (10667500, 0)
    """
    method, batch, capacity = find_method(learner.method), learner.stream_batch, learner.memory.capacity
    choices = stream_images // batch - capacity // batch  # until it is full all are kept
    if choices < 1 or not issubclass(kind_of_memory(method), PartAndSelectMemory):
        return 0
    return choices * (capacity + batch) - capacity % batch  # at the first choice it is not quite full


class Clock:
    """Expected seconds of a run: the table's, corrected by what finished runs took, of the same method if any did.

    A method with a loop of its own is known by its own finished runs alone, and says nothing of others.
    """

    def __init__(self, device: str, finished: Iterable[tuple[RunConfig, Mapping[str, Any]]] = ()) -> None:
        self.device = device
        self._ratios: dict[str, list[float]] = {}
        for config, result in finished:
            work = work_of(config, device)
            took, there = result.get("seconds", {}).get("total"), result.get("versions", {}).get("device")
            if work is not None and took is not None and str(there).startswith(device):
                ratio = took / work.seconds
                self._ratios.setdefault(config.learner.method, []).append(ratio)

    @property
    def measured(self) -> bool:
        """Whether a finished run stands behind the numbers of methods in general."""
        return bool(self._general_ratios())

    def seconds(self, config: RunConfig) -> float | None:
        """Expected time of a run; None where nothing is known of its dataset, or of what its method takes."""
        work, method = work_of(config, self.device), config.learner.method
        if work is None or (work.backward_passes is None and method not in self._ratios):
            return None
        ratios = self._ratios.get(method) or self._general_ratios()
        return work.seconds * (median(ratios) if ratios else 1.0)

    def _general_ratios(self) -> list[float]:
        return [ratio for name, ratios in self._ratios.items() if not find_method(name).own_loop for ratio in ratios]


def say_seconds(seconds: float) -> str:
    """A time for people.

    >>> say_seconds(42), say_seconds(600), say_seconds(9000), say_seconds(400_000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _sizes(config: RunConfig) -> tuple[int, int, int] | None:
    """Classes, training and test images of a run's dataset."""
    data = config.data
    if data.dataset != "synthetic":
        return DATASET_SIZES.get(data.dataset)
    classes, train, test = (
        int(data.options.get(name, otherwise))
        for name, otherwise in (("classes", 10), ("train_per_class", 200), ("test_per_class", 50))
    )
    return classes, classes * train, classes * test
