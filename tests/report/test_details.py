from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from climb.report.details import reproduce
from climb.report.record import read_record
from climb.runs.run_file_checks import read_object
from climb.settings.config import RunConfig, to_dict
from climb.settings.recipes import get_recipe

MakeRun = Callable[..., Path]


def test_the_command_as_typed(make_run: MakeRun) -> None:
    folder = make_run()
    header = read_object(folder / "config.json") | {"command": "climb run demo --out 'a b'"}
    (folder / "config.json").write_text(json.dumps(header))
    assert "<code>climb run demo --out &#x27;a b&#x27;</code>" in reproduce(read_record(folder))


def test_the_command_of_a_run_started_from_python(make_run: MakeRun) -> None:
    folder = make_run()
    assert "with settings of its own" in reproduce(read_record(folder))
    recipe = get_recipe("demo", preset="paper")
    config = RunConfig(**{**vars(recipe), "seed": 4})
    header = read_object(folder / "config.json")
    header |= {"config": to_dict(config.resolved()), "config_hash": config.config_hash()}
    (folder / "config.json").write_text(json.dumps(header))
    (folder / "result.json").unlink()
    assert "climb run demo --preset paper --seed 4" in reproduce(read_record(folder))
