"""The configuration of a run. Each setting is declared here, once. Names replace the paper's symbols:

=================  ======================  ==========================================================
paper              here                    meaning
=================  ======================  ==========================================================
b_s                stream_batch            images of one stream mini-batch
b_r                replay_batch            images replayed in each pass
n_p                passes                  gradient steps per stream mini-batch
N                  capacity                most images in memory
L                  stm_centroids           most short-term centroids
K                  ltm_centroids           most long-term centroids
M                  images_per_centroid     images that make a centroid long-term
w                  window                  latest distances that set the novelty threshold
p                  novelty_percentile      quantile of those distances
alpha_stm          stm_rate                step of a short-term centroid toward a new image
tau_ema            ema_decay               weight of the old value in the teacher's moving average
lambda             alignment_weight        weight of the alignment loss
f, g, a            encoder, projector, aligner
CBP                cbp                     cumulative backward passes: views that received a gradient
=================  ======================  ==========================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from climb.errors import InputError, unknown
from climb.settings.fields import check_settings, sections_of, setting, settings_of, with_plain_numbers

Network = Literal["student", "teacher", "both"]
TrackerName = Literal["tensorboard", "wandb"]
RENORMALISED = ("cifar10", "tiny-imagenet")
"""Datasets whose normalisation in the released code is not by their own statistics."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """The memory. Memories without centroids use ``capacity`` alone."""

    capacity: int = setting(2500, least=1, symbol="N")
    """Most images in memory."""
    stm_centroids: int | None = setting(None, symbol="L")
    """Most short-term centroids; by default min(100, 4 % of the capacity)."""
    ltm_centroids: int | None = setting(None, symbol="K")
    """Most long-term centroids; by default 2.4 % of the capacity."""
    images_per_centroid: int = setting(30, least=2, symbol="M")
    """Images that make a centroid long-term, and the most that one holds."""
    window: int = setting(1000, least=1, symbol="w")
    """Number of latest distances that set the novelty threshold."""
    novelty_percentile: float = setting(0.95, least=0, most=1, symbol="p")
    """Quantile of those distances above which an image is novel."""
    stm_rate: float = setting(0.1, least=0, most=1, symbol="alpha_stm")
    """Step of a short-term centroid toward an image that joins it."""
    ltm_accept: float = setting(0.5, least=0, most=1)
    """Probability that an image replaces one of a full long-term centroid."""
    prune: Literal["anchor", "selective"] = setting("anchor")
    """How CLIMB's short-term memory shrinks at its bound."""

    @property
    def short_term(self) -> int:
        """Most short-term centroids: as set, or scaled with the capacity."""
        return self.stm_centroids if self.stm_centroids is not None else min(100, round(0.04 * self.capacity))

    @property
    def long_term(self) -> int:
        """Most long-term centroids: as set, or scaled with the capacity."""
        return self.ltm_centroids if self.ltm_centroids is not None else round(0.024 * self.capacity)


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """The learner: method, network, optimiser and losses."""

    method: str = setting("climb", names="method")
    """Method: a choice of memory, batch, objective and alignment (``climb methods``)."""
    objective: str = setting("simclr", names="objective", preset=True)
    """Objective; some methods bring their own."""
    preset: str = setting("default", names="preset")
    """Version of the settings: default (best measured), paper (as printed), reference (the released code with its
    faults)."""
    backbone: str = setting("resnet18", names="backbone")
    """Network that encodes images: a name, timm/NAME, or hf:FOLDER-OR-ID."""
    weights: str = setting("none", added="none")
    """Weights that the network starts from: none (random), pretrained (its published ones), or a path: a folder of run,
    learn or export, a file of Climb.save, safetensors, or .pth. Images are normalised with the statistics that come
    with the weights, if some do."""
    weights_sha256: str | None = setting(None, flag=False, added=None)
    """Digest of those weights and statistics, filled in before any work."""
    image_size: int = setting(32, least=8)
    """Side of the images in pixels."""
    stream_batch: int = setting(10, least=1, symbol="b_s")
    """Images of one mini-batch of the stream."""
    replay_batch: int = setting(128, least=1, symbol="b_r")
    """Images replayed in each gradient step; at most half of the capacity."""
    passes: int = setting(3, least=1, symbol="n_p")
    """Gradient steps per mini-batch of the stream. Methods with smaller batches take more, for the same budget."""
    lr: float = setting(0.3, above=0, preset=True)
    """Learning rate of SGD; constant."""
    momentum: float = setting(0.9, least=0, below=1)
    """Momentum of SGD."""
    weight_decay: float = setting(1e-4, least=0)
    """Weight decay of all trained parameters."""
    temperature: float = setting(0.5, above=0)
    """Temperature of contrastive losses."""
    alignment_weight: float = setting(0.5, least=0, preset=True, symbol="lambda")
    """Weight of the alignment loss."""
    ema_decay: float = setting(0.999, least=0, most=1, symbol="tau_ema")
    """Weight of the old value in the teacher's moving average."""
    ema_period: Literal["step", "batch"] = setting("step", flag=False)
    """Whether the teacher is updated after each gradient step or after each mini-batch of the stream."""
    embed_mode: Literal["views", "eval", "train"] = setting("views", flag=False)
    """Embeddings for the memory: "views", the mean over the two views of the last pass; "eval", a separate forward of
    the plain images in eval mode; "train", the same in train mode (a fault of the released code)."""
    refresh_mode: Literal["views", "updated"] = setting("views", flag=False)
    """Embeddings that refresh centroids: "views", those of the loss; "updated", a second forward of the replayed views
    after the step, in eval mode."""
    views: str = setting("objective", names="views", preset=True, added="objective")
    """Random views to train on: "objective", those of the objective; or a policy by name, such as simclr, simsiam and
    common (weaker colour changes), satellite, microscope (any orientation), or one of your own."""
    augment_per_batch: bool = setting(False, flag=False)
    """One draw of augmentation parameters for a whole view (a fault of the released code)."""
    train_aligner: bool = setting(True, flag=False)
    """False freezes the aligner at its random start (a fault of the released code)."""
    swapped_refresh: bool = setting(False, flag=False, added=False)
    """True lets replayed images refresh each other's centroids (a fault of the released code)."""
    memory_faults: bool = setting(False, flag=False)
    """True replaces the paper's memory by one with all faults of the released code."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """The memory."""


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """Options that change several fields of `LearnerConfig`."""

    faults: tuple[str, ...] = setting((), names="fault")
    """Faults of the released code to switch on."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The images."""

    dataset: str = setting("synthetic", names="dataset")
    """Dataset (``climb data``)."""
    image_size: int | None = setting(None, flag=False)
    """Side to which images are resized; None for the dataset's own."""
    normalisation: Literal["measured", "released"] | None = setting(None, flag=False, added="released")
    """Channel statistics of CIFAR-10 and Tiny-ImageNet: "measured", or "released", the constants of the released code,
    which fit neither. None for the preset's: released under reference, else measured. Other datasets have one set."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the dataset's loader, such as those of `DataOptions`."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options that fill ``DataConfig.options``."""

    classes: int | None = setting(None)
    """Number of classes, for datasets that leave the choice: synthetic, imagenet100."""
    class_list: str | None = setting(None)
    """File with one class folder per line, for imagenet100; by default, classes are drawn by seed."""
    pixel_range: tuple[float, float] | None = setting(None, names="range")
    """Values that become black and white in images of more than 8 bits, for your own images. By default those of
    the MODEL, or else the smallest and the largest value of each image."""


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """The order of the images."""

    kind: str = setting("regular", names="scenario", flag="scenario")
    """Kind of stream."""
    tasks: int = setting(20)
    """Number of tasks; the learner never sees it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the scenario, from `StreamOptions`."""
    manifest: dict[str, Any] | None = None
    """A saved scenario to replay; replaces the fields above."""


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Options that fill ``StreamConfig.options`` and ``StreamConfig.manifest``."""

    generator: Literal["uniform", "released"] | None = setting(None, flag="sizes")
    """How sizes of irregular tasks are drawn: uniform over all within the cap, or as in the released code."""
    cap: int | None = setting(None)
    """Most classes of an irregular task."""
    blur: int | None = setting(None)
    """Images on each side of a blurred boundary."""
    manifest: str | None = setting(None)
    """A saved scenario (scenario.json of another run) to replay."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The measurements at the end of each task."""

    network: Network = setting("student", flag="evaluate", preset=True)
    """Network whose features are probed."""
    epochs: int = setting(100, least=1, flag="probe_epochs")
    """Most epochs of the linear probe."""
    knn: bool = setting(False)
    """Also report a k-nearest-neighbour probe at the end."""
    ridge: bool = setting(False)
    """Also report a ridge classifier at the end."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One experiment: everything that decides its result."""

    recipe: str = setting("demo", names="recipe", flag=False)
    """Name of the recipe it started from."""
    seed: int = setting(0)
    """Seed of everything random."""
    data: DataConfig = field(default_factory=DataConfig)
    """The images."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    """Their order."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """The learner."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """The measurements."""

    def config_hash(self) -> str:
        """Identity of the experiment: runs with equal hashes differ at most in device and versions.

        >>> RunConfig(seed=1).config_hash() == RunConfig(seed=2).config_hash()
        False
        """
        identity = to_dict(self.resolved())
        del identity["recipe"]  # a name for people
        if identity["learner"]["weights_sha256"] is not None:
            identity["learner"]["weights"] = "none"  # the digest counts, not the place
        _drop_added(identity, type(self))
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def resolved(self) -> RunConfig:
        """The same experiment with derived values filled in: centroids, image size, normalisation, 1.0 for 1.

        >>> one, other = (RunConfig(learner=LearnerConfig(lr=rate)) for rate in (1, 1.0))
        >>> one.config_hash() == other.config_hash()
        True
        """
        memory = self.learner.memory
        memory = replace(memory, stm_centroids=memory.short_term, ltm_centroids=memory.long_term)
        learner = replace(self.learner, memory=memory)
        normalisation = None
        if self.data.dataset in RENORMALISED:
            of_preset: Literal["measured", "released"] = "released" if learner.preset == "reference" else "measured"
            normalisation = self.data.normalisation or of_preset
        data = replace(self.data, image_size=learner.image_size, normalisation=normalisation)
        whole: RunConfig = with_plain_numbers(replace(self, learner=learner, data=data))
        return whole


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how a run is executed. Recorded, but not part of its identity."""

    device: str = setting("auto", names="device")
    """Device: auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "float32", "tf32", "bf16"] = setting("auto")
    """Arithmetic of the networks; auto is bf16 on a capable GPU and on a CPU where it is faster, else float32."""
    engine: Literal["auto", "eager", "captured", "compiled"] = setting("auto")
    """How steps are executed: eager, captured (one CUDA graph), compiled (torch.compile, on a GPU in a CUDA graph);
    auto chooses by device, and on a CPU by measurement if the run is long."""
    deterministic: bool = setting(False)
    """Bit-identical repetition on a GPU, too, at some cost in speed. A CPU repeats to the bit with the same precision,
    engine, layout and threads, which the folder stores."""
    data_root: str | None = setting(None, flag="data")
    """Folder that holds the dataset; by default $CLIMB_DATA, then the cache."""
    checkpoint_seconds: float = setting(60.0, least=0, finite=False)
    """Time between two checkpoints."""
    keep: bool = setting(False)
    """Keep the last checkpoint of a finished run."""
    imports: tuple[str, ...] = setting((), names="file")
    """Python file that registers parts of your own, such as my_parts.py. Can be given several times."""


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """Options of ``climb learn`` alone. They are not stored."""

    watch: bool = setting(False)
    """Follow a folder or a pattern of shards: learn new files as they appear, until interrupted."""
    size: Literal["auto", "edge", "cpu", "gpu"] = setting("auto")
    """Settings for a kind of machine; auto chooses by device."""
    budget: str | None = setting(None)
    """Most images in memory (2500), or most megabytes of it (200MB)."""
    every: int = setting(1, least=1)
    """Take every n-th frame of a video or camera."""
    workers: int = setting(2, least=1)
    """Threads that load images."""
    journal_seconds: float = setting(10.0, least=0, finite=False)
    """Time between two journal lines."""
    novel: str | None = setting(None)
    """File (novel.jsonl) that receives a line for each new image before it is learned: path, score, nearest stored
    image."""
    novel_to: str | None = setting(None)
    """Folder for copies of new images, at most the latest 1,000 and 100 MB."""
    false_alarms: float = setting(0.01, above=0, below=1)
    """Share of images like the stored ones that may be reported as new."""
    track: TrackerName | None = setting(None)
    """Also send the numbers of the journal to a tracker; needs the extra climb-ssl[track]."""


Config = TypeVar("Config")


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON data."""
    return dataclasses.asdict(config)


def from_dict(kind: type[Config], data: dict[str, Any]) -> Config:
    """The configuration that `to_dict` turned into data. Unknown keys are refused with the nearest valid name."""
    sections = sections_of(kind)
    for key in data:
        if key not in sections and key not in settings_of(kind):
            raise unknown(f"key of {kind.__name__}", key, [*settings_of(kind), *sections])
    # Stored configurations that are older than a setting have its neutral value.
    neutral = {name: declared.added for name, declared in settings_of(kind).items() if declared.is_added}
    values = {key: from_dict(sections[key], value) if key in sections else value for key, value in data.items()}
    return kind(**{**neutral, **values})


def _drop_added(data: dict[str, Any], kind: type) -> None:
    """Drop added settings with their neutral value, and those that do not apply."""
    for name, declared in settings_of(kind).items():
        if declared.is_added and data[name] in (declared.added, None):
            del data[name]
    for name, section in sections_of(kind).items():
        _drop_added(data[name], section)


def check_learner(config: LearnerConfig) -> None:
    """Refuse values outside their bounds, and values that exclude each other."""
    check_settings(config)
    if 2 * config.replay_batch > config.memory.capacity:
        raise InputError(
            f"replay_batch must be at most half of capacity: {config.replay_batch} > {config.memory.capacity} / 2; "
            "replay a smaller batch or store more images"
        )
