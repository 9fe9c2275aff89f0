from __future__ import annotations

import inspect

import pytest

from climb.cli.run import run
from climb.recipes import RECIPES, get_recipe
from climb.runs import experiment


@pytest.mark.parametrize("preset", ["default", "paper", "reference"])
@pytest.mark.parametrize("name", RECIPES)
def test_with_nothing_changed_it_is_the_recipe(name: str, preset: str) -> None:
    assert experiment(name, preset=preset) == get_recipe(name, preset=preset)


def test_options_and_their_defaults_are_those_of_the_command() -> None:
    given, command = inspect.signature(experiment).parameters, inspect.signature(run).parameters
    assert given.keys() <= command.keys()
    assert all(option.default == command[name].default for name, option in given.items())
