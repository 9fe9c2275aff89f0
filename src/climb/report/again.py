"""The command that does it again."""

from __future__ import annotations

import shlex
from html import escape

from climb.config import RunConfig, from_dict
from climb.errors import InputError
from climb.recipes import get_recipe
from climb.report.figure import quiet, section
from climb.report.record import Record


def again(record: Record) -> str:
    """What was typed; of a run that was started from Python, the command that gives the same configuration."""
    if record.command is not None:
        return _section(record.command, "As it was typed. In the same folder it continues, or shows the result.")
    command = _derived(record)
    if command is not None:
        return _section(command, "The run was started from Python; this command has the same configuration.")
    said = "The run was started from Python, with settings of its own: those of config.json, below."
    return section("again", "The exact command", quiet(said))


def _section(command: str, said: str) -> str:
    return section(
        "again", "The exact command", f'<pre class="command"><code>{escape(command)}</code></pre>', quiet(said)
    )


def _derived(record: Record) -> str | None:
    try:
        config = from_dict(RunConfig, record.config)
        recipe = get_recipe(config.recipe, preset=config.learner.preset)
    except (InputError, TypeError):  # settings of another version, or not of a run
        return None
    if RunConfig(**{**vars(recipe), "seed": config.seed}).config_hash() != record.config_hash:
        return None
    return shlex.join(["climb", "run", config.recipe, "--preset", config.learner.preset, "--seed", str(config.seed)])
