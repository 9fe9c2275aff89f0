"""Named experiments."""

from __future__ import annotations

import pytest

from climb.datasets import own_image_size
from climb.errors import InputError
from climb.memory import CentroidMemory
from climb.methods import METHODS
from climb.settings.config import check_learner
from climb.settings.presets import PRESETS
from climb.settings.recipes import RECIPES, describe, get_recipe
from climb.streams import make

every_recipe = pytest.mark.parametrize("name", sorted(RECIPES))


@every_recipe
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_recipe_is_possible(name: str, preset: str) -> None:
    config = get_recipe(name, preset=preset)
    assert (config.recipe, config.learner.preset) == (name, preset)
    check_learner(config.learner)
    assert config.learner.image_size == (config.data.image_size or own_image_size(config.data.dataset))
    assert config.learner.method in METHODS
    memory = config.learner.memory
    CentroidMemory(
        memory.capacity,
        (3, 8, 8),
        4,
        stm_centroids=memory.short_term,
        ltm_centroids=memory.long_term,
        images_per_centroid=memory.images_per_centroid,
    )


@every_recipe
def test_every_recipe_is_described_in_one_line(name: str) -> None:
    assert len(describe(name)) > 20
    assert "\n" not in describe(name)


@pytest.mark.parametrize("dataset", ["cifar100", "imagenet100"])
@pytest.mark.parametrize(
    ("suffix", "kind", "tasks"),
    [
        ("20", "regular", 20),
        ("50", "regular", 50),
        ("100", "regular", 100),
        ("irregular-20", "irregular", 20),
        ("irregular-50", "irregular", 50),
    ],
)
def test_the_papers_experiments(dataset: str, suffix: str, kind: str, tasks: int) -> None:
    config = get_recipe(f"{dataset}-{suffix}", preset="paper")
    assert (config.data.dataset, config.stream.kind, config.stream.tasks) == (dataset, kind, tasks)
    assert config.learner.backbone == "resnet18"
    small = dataset == "cifar100"
    assert (config.learner.image_size, config.learner.lr) == ((32, 0.3) if small else (224, 0.1))
    manifest = make(kind, 100, tasks, seed=0)
    sizes = [len(task) for task in manifest.tasks]
    assert (len(sizes), sum(sizes)) == (tasks, 100)
    if kind == "irregular":
        assert max(sizes) <= (12 if tasks == 20 else 5)


def test_the_demo_needs_no_files_and_is_small() -> None:
    config = get_recipe("demo")
    assert (config.data.dataset, config.learner.backbone) == ("synthetic", "micro")
    assert config.learner.memory.capacity <= 500


def test_unknown_recipes_are_refused() -> None:
    with pytest.raises(InputError, match="unknown recipe 'cifar100-21'; did you mean 'cifar100-20'"):
        get_recipe("cifar100-21")
    with pytest.raises(InputError, match="unknown preset 'best'"):
        get_recipe("demo", preset="best")
