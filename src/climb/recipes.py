"""Named experiments: functions that return a `RunConfig`. Values without a comment are the paper's (section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from climb.config import DataConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.errors import unknown
from climb.plugins import first_line
from climb.presets import apply_preset, evaluated_network

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
        evaluation=evaluated_network(config.evaluation, preset),
    )


def describe(name: str) -> str:
    """One line about a recipe."""
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


def _cifar100(tasks: int, kind: str = "regular") -> RunConfig:
    return RunConfig(
        data=DataConfig(dataset="cifar100"),
        stream=StreamConfig(kind=kind, tasks=tasks),
        learner=LearnerConfig(backbone="resnet18", image_size=32),
    )


def _imagenet100(tasks: int, kind: str = "regular") -> RunConfig:
    return RunConfig(
        data=DataConfig(dataset="imagenet100"),
        stream=StreamConfig(kind=kind, tasks=tasks),
        learner=LearnerConfig(backbone="resnet18", image_size=224),
    )


@recipe
def cifar100_20() -> RunConfig:
    """Split CIFAR-100, 20 tasks of 5 classes, ResNet-18."""
    return _cifar100(20)


@recipe
def cifar100_50() -> RunConfig:
    """Split CIFAR-100, 50 tasks of 2 classes, ResNet-18."""
    return _cifar100(50)


@recipe
def cifar100_100() -> RunConfig:
    """Split CIFAR-100, 100 tasks of one class, ResNet-18."""
    return _cifar100(100)


@recipe
def cifar100_irregular_20() -> RunConfig:
    """Split CIFAR-100, 20 tasks of 1 to 12 classes, ResNet-18."""
    return _cifar100(20, "irregular")


@recipe
def cifar100_irregular_50() -> RunConfig:
    """Split CIFAR-100, 50 tasks of 1 to 5 classes, ResNet-18."""
    return _cifar100(50, "irregular")


@recipe
def imagenet100_20() -> RunConfig:
    """Split ImageNet-100, 20 tasks of 5 classes, ResNet-18 at 224 px."""
    return _imagenet100(20)


@recipe
def imagenet100_50() -> RunConfig:
    """Split ImageNet-100, 50 tasks of 2 classes, ResNet-18 at 224 px."""
    return _imagenet100(50)


@recipe
def imagenet100_100() -> RunConfig:
    """Split ImageNet-100, 100 tasks of one class, ResNet-18 at 224 px."""
    return _imagenet100(100)


@recipe
def imagenet100_irregular_20() -> RunConfig:
    """Split ImageNet-100, 20 tasks of 1 to 12 classes, ResNet-18 at 224 px."""
    return _imagenet100(20, "irregular")


@recipe
def imagenet100_irregular_50() -> RunConfig:
    """Split ImageNet-100, 50 tasks of 1 to 5 classes, ResNet-18 at 224 px."""
    return _imagenet100(50, "irregular")


@recipe
def cifar10_5() -> RunConfig:
    """Split CIFAR-10, 5 tasks of 2 classes, ResNet-18. Not in the paper; its CIFAR-100 settings."""
    return RunConfig(
        data=DataConfig(dataset="cifar10"),
        stream=StreamConfig(tasks=5),
        learner=LearnerConfig(backbone="resnet18", image_size=32),
    )


@recipe
def tiny_imagenet_20() -> RunConfig:
    """Split Tiny-ImageNet, 20 tasks of 10 classes, ResNet-18 with the small-image stem at 64 px. Not in the paper."""
    return RunConfig(
        data=DataConfig(dataset="tiny-imagenet"),
        stream=StreamConfig(tasks=20),
        learner=LearnerConfig(backbone="resnet18", image_size=64),
    )


@recipe
def folder() -> RunConfig:
    """Your own images by class (--data FOLDER), 5 tasks, ResNet-18 at 64 px. CIFAR-100's settings."""
    return RunConfig(
        data=DataConfig(dataset="folder", image_size=64),
        stream=StreamConfig(tasks=5),
        learner=LearnerConfig(backbone="resnet18", image_size=64),
    )
