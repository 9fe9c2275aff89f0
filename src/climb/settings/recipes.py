"""Named experiments: functions that return a `RunConfig`. Values without a comment are the paper's (section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from climb.errors import unknown
from climb.registry import first_line
from climb.settings.config import DataConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.settings.presets import NETWORK, apply_preset

Recipe = Callable[[], RunConfig]
RECIPES: dict[str, Recipe] = {}


def recipe(build: Recipe) -> Recipe:
    """Register a recipe under its function's name, with dashes."""
    RECIPES[build.__name__.replace("_", "-")] = build
    return build


def get_recipe(name: str, *, preset: str = "default") -> RunConfig:
    """The configuration of a named experiment under a preset.

    >>> get_recipe("cifar100-20", preset="paper").learner.lr
    0.3
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    config = RECIPES[name]()
    return replace(
        config,
        recipe=name,
        learner=apply_preset(config.learner, preset),
        evaluation=replace(config.evaluation, network=NETWORK[preset]),
    )


SIZES = {
    "edge": LearnerConfig(backbone="micro", replay_batch=16, passes=1, memory=MemoryConfig(capacity=500)),
    "cpu": LearnerConfig(backbone="micro", replay_batch=64, passes=1),
    "gpu": LearnerConfig(backbone="resnet18", image_size=64),
}
"""Learners of ``climb learn`` by machine: a single-board computer, a computer without a GPU, one with a GPU. They start
from random weights."""

_LITE = LearnerConfig(backbone="efficientnet-lite0", weights="pretrained", image_size=128, replay_batch=32, passes=1)
PRETRAINED: dict[str, tuple[LearnerConfig, ...]] = {
    "edge": (),
    "cpu": (_LITE,),
    "gpu": (replace(_LITE, backbone="timm/resnet50.a1_in1k", image_size=160, replay_batch=128), _LITE),
}
"""Learners from pretrained weights that go before those of `SIZES`, if their extra is installed; the best first."""


def describe(name: str) -> str:
    """The description of a recipe in one line."""
    return first_line(RECIPES[name].__doc__)


@recipe
def demo() -> RunConfig:
    """CLIMB on a built-in synthetic stream: a minute or two on two CPU cores."""
    return RunConfig(
        data=DataConfig(dataset="synthetic", options={"classes": 10, "train_per_class": 300, "test_per_class": 50}),
        stream=StreamConfig(tasks=5),
        learner=LearnerConfig(
            backbone="micro",
            # Two CPU cores finish this in a minute or two; the memory is small enough to promote, merge and prune.
            replay_batch=64,
            memory=MemoryConfig(capacity=240, stm_centroids=30, ltm_centroids=10, images_per_centroid=12, window=300),
            # The stream is 50 times shorter than the paper's: a teacher at 0.999 would still be near its random start.
            ema_decay=0.99,
        ),
    )


def _split(name: str, classes: str, dataset: str, tasks: int, *, kind: str = "regular", note: str = "") -> None:
    """Register a recipe for a dataset that is cut into tasks; ``classes`` and ``note`` are parts of its description."""
    title, side = {
        "cifar10": ("CIFAR-10", 32),
        "cifar100": ("CIFAR-100", 32),
        "tiny-imagenet": ("Tiny-ImageNet", 64),
        "imagenet100": ("ImageNet-100", 224),
    }[dataset]

    def build() -> RunConfig:
        return RunConfig(
            data=DataConfig(dataset=dataset),
            stream=StreamConfig(kind=kind, tasks=tasks),
            learner=LearnerConfig(backbone="resnet18", image_size=side),
        )

    size = f" at {side} px" if side > 32 else ""
    build.__doc__ = f"Split {title}, {tasks} tasks of {classes}, ResNet-18{size}.{note}"
    RECIPES[name] = build


for _dataset in ("cifar100", "imagenet100"):
    _split(f"{_dataset}-20", "5 classes", _dataset, 20)
    _split(f"{_dataset}-50", "2 classes", _dataset, 50)
    _split(f"{_dataset}-100", "one class", _dataset, 100)
    _split(f"{_dataset}-irregular-20", "1 to 12 classes", _dataset, 20, kind="irregular")
    _split(f"{_dataset}-irregular-50", "1 to 5 classes", _dataset, 50, kind="irregular")
_split("cifar10-5", "2 classes", "cifar10", 5, note=" Not in the paper; its CIFAR-100 settings.")
_split("tiny-imagenet-20", "10 classes", "tiny-imagenet", 20, note=" Not in the paper.")


@recipe
def folder() -> RunConfig:
    """Your own images by class (--data FOLDER), 5 tasks, ResNet-18 at 64 px. CIFAR-100's settings."""
    return RunConfig(
        data=DataConfig(dataset="folder", image_size=64),
        stream=StreamConfig(tasks=5),
        learner=LearnerConfig(backbone="resnet18", image_size=64),
    )
