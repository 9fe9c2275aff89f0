"""What a run is, as data. Field docstrings are the reference; names replace the paper's symbols:

=================  ======================  ==========================================================
paper              here                    meaning
=================  ======================  ==========================================================
b_s                stream_batch            images of one stream mini-batch
b_r                replay_batch            images replayed in each pass
n_p                passes                  gradient steps per stream mini-batch
N                  capacity                images the memory stores at most
L                  stm_centroids           short-term centroids at most
K                  ltm_centroids           long-term centroids at most
M                  images_per_centroid     images that make a centroid long-term
w                  window                  distances the novelty threshold looks back on
p                  novelty_percentile      quantile of those distances
alpha_stm          stm_rate                step of a short-term centroid toward an image that joins it
tau_ema            ema_decay               weight of the old teacher
lambda             alignment_weight        weight of the alignment loss
f, g, a            encoder, projector, aligner
CBP                cbp                     cumulative backward passes: views that got a gradient
=================  ======================  ==========================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from climb.errors import InputError, unknown

Network = Literal["student", "teacher", "both"]
Views = Literal["objective", "simclr", "simsiam", "common"]


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """What the memory keeps. Flat buffers use ``capacity`` alone."""

    capacity: int = 2500
    """Most images ever stored (N)."""
    stm_centroids: int | None = None
    """Most short-term centroids (L); None scales with capacity: min(100, round(0.04 N))."""
    ltm_centroids: int | None = None
    """Most long-term centroids (K); None scales with capacity: round(0.024 N)."""
    images_per_centroid: int = 30
    """Images that make a centroid long-term, and the most one holds (M)."""
    window: int = 1000
    """Distances the novelty threshold looks back on (w)."""
    novelty_percentile: float = 0.95
    """Quantile of those distances above which an image is novel (p)."""
    stm_rate: float = 0.1
    """Step of a short-term centroid toward an image that joins it (alpha_stm)."""
    ltm_accept: float = 0.5
    """Probability that an image replaces one of a full long-term centroid."""
    prune: Literal["anchor", "selective"] = "anchor"
    """How the short-term memory shrinks when the bound is reached."""

    @property
    def short_term(self) -> int:
        """L, given or scaled."""
        return self.stm_centroids if self.stm_centroids is not None else min(100, round(0.04 * self.capacity))

    @property
    def long_term(self) -> int:
        """K, given or scaled."""
        return self.ltm_centroids if self.ltm_centroids is not None else round(0.024 * self.capacity)


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """How images are turned into a network: the method, its parts' settings, the optimiser."""

    method: str = "climb"
    """Name of the method: a choice of memory, batch, objective and alignment (``climb methods``)."""
    objective: str = "simclr"
    """What is learned: "simclr", "simsiam", "byol", "barlow-twins", "vicreg", "osiris" or "scale"; some methods bring
    their own."""
    preset: str = "default"
    """Which reading of the paper: "paper", "default" or "reference". The fields below hold its resolved values."""
    backbone: str = "resnet18"
    """Network: "resnet18", "resnet34", "resnet50", "vit-tiny", "micro", or "timm/NAME"."""
    image_size: int = 32
    """Side of the images, in pixels."""
    stream_batch: int = 10
    """Images of one stream mini-batch (b_s)."""
    replay_batch: int = 128
    """Images replayed in each pass (b_r)."""
    passes: int = 3
    """Gradient steps per stream mini-batch (n_p). A method that trains on fewer rows at a time than stream and replay
    together takes as many more steps as the same budget pays for."""
    lr: float = 0.3
    """Learning rate of SGD, constant."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay, on every trained parameter."""
    temperature: float = 0.5
    """Temperature of the contrastive loss."""
    alignment_weight: float = 0.5
    """Weight of the alignment loss (lambda)."""
    ema_decay: float = 0.999
    """Weight of the old teacher in its moving average (tau_ema)."""
    ema_period: Literal["step", "batch"] = "step"
    """Whether the teacher follows after every gradient step or after every stream mini-batch."""
    embed_mode: Literal["views", "eval", "train"] = "views"
    """Embeddings the memory is given: the mean of the two views of the last pass ("views"), or a separate forward of
    the plain images in eval mode, or (a fault of the released code) in train mode."""
    refresh_mode: Literal["views", "updated"] = "views"
    """Embeddings that refresh the centroids: those of the loss ("views"), or a second forward of the replayed views
    after the step, in eval mode ("updated")."""
    views: Views = "objective"
    """Which random views are learned from: those that belong to the objective, or others (`climb.augment`)."""
    augment_per_batch: bool = False
    """One draw of augmentation parameters for a whole view (a fault of the released code)."""
    train_aligner: bool = True
    """False freezes the aligner at its random start (a fault of the released code)."""
    swapped_refresh: bool = False
    """True lets replayed images refresh each other's centroids (a fault of the released code)."""
    memory_faults: bool = False
    """True takes the memory with all of the released code's faults in place of the paper's."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What the memory keeps."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images."""

    dataset: str = "synthetic"
    """Name of the dataset (``climb data``)."""
    image_size: int | None = None
    """Side the images are resized to; None takes the dataset's own."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else the dataset's loader is given."""


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """In which order they arrive."""

    kind: str = "regular"
    """"regular", "irregular", "blurred" or "iid"."""
    tasks: int = 20
    """Number of tasks; the learner is never told."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else the scenario is given (``cap``, ``generator``, ``blur``)."""
    manifest: dict[str, Any] | None = None
    """A saved scenario to replay, in place of the fields above."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What is measured at the end of each task."""

    network: Network = "student"
    """Which network is probed: the student, its EMA teacher, or both."""
    epochs: int = 100
    """Most epochs of the linear probe."""
    knn: bool = False
    """Also a k-nearest-neighbour probe, at the end."""
    ridge: bool = False
    """Also a ridge classifier, at the end."""


ADDED: dict[tuple[str, str], Any] = {("learner", "swapped_refresh"): False, ("learner", "views"): "objective"}
"""Settings that are younger than the first runs, with the value that changes nothing. Only other values are part of a
run's identity, so that what was begun before them is continued. Such a value stays the default for ever."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One experiment: everything that decides its result, and nothing that does not."""

    recipe: str = "demo"
    """Name of the recipe it started from."""
    seed: int = 0
    """The one seed that all generators derive from."""
    data: DataConfig = field(default_factory=DataConfig)
    """Which images."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    """In which order."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """Learned how."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Measured how."""

    def config_hash(self) -> str:
        """Identity of the experiment: equal hashes mean the same run up to device and versions.

        >>> RunConfig(seed=1).config_hash() == RunConfig(seed=2).config_hash()
        False
        """
        identity = to_dict(self.resolved())
        del identity["recipe"]  # a name for people
        for (section, name), neutral in ADDED.items():
            if identity[section][name] == neutral:
                del identity[section][name]
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def resolved(self) -> RunConfig:
        """The same experiment with nothing left to derive: centroids in numbers, one image size, 1.0 where 1 was given.

        >>> one, other = (RunConfig(learner=LearnerConfig(lr=rate)) for rate in (1, 1.0))
        >>> one.config_hash() == other.config_hash()
        True
        """
        memory = self.learner.memory
        memory = replace(memory, stm_centroids=memory.short_term, ltm_centroids=memory.long_term)
        learner = replace(self.learner, memory=memory)
        whole = replace(self, learner=learner, data=replace(self.data, image_size=self.learner.image_size))
        return _with_plain_numbers(whole)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how a run is carried out; recorded, but not part of its identity."""

    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1", "mps"."""
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto"
    """Arithmetic of the networks; "auto" is bf16 on a capable GPU and float32 elsewhere."""
    engine: Literal["auto", "eager", "captured", "compiled"] = "auto"
    """How steps are carried out: one kernel after another, as one CUDA graph, or compiled and then as one CUDA graph;
    "auto" chooses by device."""
    deterministic: bool = False
    """Bit-identical repetition on a GPU too, at some cost in speed; on the CPU it always is."""
    data_root: str | None = None
    """Folder that holds the dataset; None looks in the cache."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints."""
    keep: bool = False
    """Keep the last checkpoint when the run is done."""


Config = TypeVar("Config")


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    """Types of the fields. Python evaluates them anew every time, and a table of many runs asks thousands of times."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _with_plain_numbers(config: Config) -> Config:
    """Numbers as their fields have them: equal settings are then written, and hashed, alike."""
    hints, changes = _hints(type(config)), dict[str, Any]()
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value, hint = getattr(config, item.name), hints[item.name]
        if dataclasses.is_dataclass(value):
            changes[item.name] = _with_plain_numbers(value)
        elif type(value) is bool:
            continue  # no number, though Python counts it as one
        elif hint is float and isinstance(value, Real):
            changes[item.name] = float(value)
        elif hint in (int, int | None) and isinstance(value, Integral):
            changes[item.name] = int(value)
    return replace(config, **changes)  # type: ignore[type-var]


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON data."""
    return dataclasses.asdict(config)


def from_dict(kind: type[Config], data: dict[str, Any]) -> Config:
    """The configuration that `to_dict` gave; an unknown key is refused with the nearest valid name."""
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise unknown(f"key of {kind.__name__}", key, fields)
    nested = {
        "memory": MemoryConfig,
        "data": DataConfig,
        "stream": StreamConfig,
        "learner": LearnerConfig,
        "evaluation": EvaluationConfig,
    }
    return kind(**{key: from_dict(nested[key], value) if key in nested else value for key, value in data.items()})


def check_choices(config: Any) -> None:
    """Refuse a value that is not among a field's choices, here and in nested configurations."""
    hints = _hints(type(config))
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            check_choices(value)
        elif get_origin(hints[item.name]) is Literal and value not in get_args(hints[item.name]):
            raise unknown(item.name, str(value), get_args(hints[item.name]))


def check_numbers(config: LearnerConfig | MemoryConfig) -> None:
    """Refuse texts, and what else is no number, where one belongs: from Python anything may be given.

    >>> check_numbers(replace(LearnerConfig(), image_size="32"))
    Traceback (most recent call last):
    climb.errors.InputError: image_size must be a whole number; given '32'
    """
    hints = _hints(type(config))
    for item in dataclasses.fields(config):
        value, hint = getattr(config, item.name), hints[item.name]
        if hint is MemoryConfig:
            check_numbers(value)
        elif hint in (int, int | None) and not (value is None and hint is not int):
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"{item.name} must be a whole number; given {value!r}")
        elif hint is float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{item.name} must be a number; given {value!r}")


def check_learner(config: LearnerConfig) -> None:
    """Refuse impossible values before any work."""
    check_choices(config)
    check_numbers(config)
    memory = config.memory
    for name, value, least in (
        ("stream_batch", config.stream_batch, 1),
        ("replay_batch", config.replay_batch, 1),
        ("passes", config.passes, 1),
        ("capacity", memory.capacity, 1),
        ("images_per_centroid", memory.images_per_centroid, 2),
    ):
        if value < least:
            raise InputError(f"{name} must be at least {least}; given {value}")
    if 2 * config.replay_batch > memory.capacity:
        raise InputError(
            f"replay_batch must be at most half of capacity: {config.replay_batch} > {memory.capacity} / 2; "
            "replay a smaller batch or store more images"
        )
    # Written so that nan, which is neither above nor below anything, is refused too.
    if not 0 < config.lr < math.inf:
        raise InputError(f"lr must be above 0 and finite; given {config.lr}")
    if not 0 < config.temperature < math.inf:
        raise InputError(f"temperature must be above 0 and finite; given {config.temperature}")
    if not 0 <= config.alignment_weight < math.inf:
        raise InputError(f"alignment_weight must be at least 0 and finite; given {config.alignment_weight}")
    if not 0 <= config.momentum < 1:
        raise InputError(f"momentum must be at least 0 and below 1; given {config.momentum}")
    if not 0 <= config.weight_decay < math.inf:
        raise InputError(f"weight_decay must be at least 0 and finite; given {config.weight_decay}")
    if not 0 <= config.ema_decay <= 1:
        raise InputError(f"ema_decay must be in 0..1; given {config.ema_decay}")
    if config.image_size < 8:
        raise InputError(f"image_size must be at least 8 pixels; given {config.image_size}")
