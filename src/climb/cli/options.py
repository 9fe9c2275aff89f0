"""Options of the verbs, derived from the settings: `with_settings` adds them to a verb, `tyro_command` parses them."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import tyro

from climb.registry import load_file, load_plugins
from climb.settings.config import DataConfig, EvaluationConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.settings.fields import Setting, settings_of

Verb = TypeVar("Verb", bound=Callable[..., None])
Names = Callable[[str], Iterable[str]]
SEED = settings_of(RunConfig)["seed"]
DERIVED = (DataConfig, StreamConfig, LearnerConfig, MemoryConfig, EvaluationConfig)


def options_of(*sections: type, only: Iterable[str] = (), without: Iterable[str] = ()) -> tuple[Setting, ...]:
    """The settings of some classes that have an option; ``only`` some, or all ``without`` some, by option name."""
    declared = [each for section in sections for each in settings_of(section).values() if each.has_option]
    return tuple(each for each in declared if (not only or each.option in only) and each.option not in tuple(without))


def with_settings(**groups: tuple[Setting, ...]) -> Callable[[Verb], Verb]:
    """Add groups of options to a verb, which receives those that are typed as keyword arguments.

    Every option is optional, and its default stays with its declaration: it may be the recipe's or the preset's.
    """

    def add(verb: Verb) -> Verb:
        verb.groups = groups  # type: ignore[attr-defined]
        return verb

    return add


def tyro_command(verb: Callable[..., None], *, names: Names | None = None) -> Callable[..., None]:
    """The verb as a function that tyro can parse: a dataclass for each group, and help for each option.

    Args:
        verb: a verb, with the groups of `with_settings`.
        names: gives the valid names of a kind, such as "method", for the help of this verb. None for a verb in the list
            of verbs: its docstring is cut to the first paragraph and the arguments, which errors explain.
    """
    groups: Mapping[str, tuple[Setting, ...]] = getattr(verb, "groups", {})
    kinds = {title: _dataclass(title, settings, names) for title, settings in groups.items()}
    hints = get_type_hints(verb, include_extras=True)
    parameters = inspect.signature(verb).parameters.values()
    own = [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]

    def command(*arguments: Any, **values: Any) -> None:
        typed = {
            name: value for title in kinds for name, value in vars(values.pop(title)).items() if value not in (None, ())
        }
        if "imports" in typed:  # absolute paths, because jobs of a cluster may start in another folder
            typed["imports"] = tuple(str(Path(file).expanduser().resolve()) for file in typed["imports"])
            for file in typed["imports"]:
                load_file(file)  # before any name is checked
        verb(*arguments, **values, **typed)

    text = inspect.cleandoc(verb.__doc__ or "").replace("\n" + 8 * " ", " ")  # an argument's help is one line
    summary, *others = text.split("\n\n")
    explained = [each for each in others if names is not None or each.startswith("Args:")]
    command.__doc__ = "\n\n".join([summary, *explained])
    command.__name__ = verb.__name__
    command.__annotations__ = {**{each.name: _own_argument(each, hints[each.name]) for each in own}, **kinds}
    added = [inspect.Parameter(title, inspect.Parameter.KEYWORD_ONLY, default=kind()) for title, kind in kinds.items()]
    command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    return command


def _dataclass(title: str, settings: Iterable[Setting], names: Names | None) -> type:
    fields: list[tuple[str, Any, Any]] = []
    for setting in settings:
        hint = setting.hint if setting.kind is tuple else setting.kind | None
        # A default says nothing if it is empty, or if the recipe, the preset or the method decides.
        derived = setting.section in DERIVED or setting.default in (None, False, ())
        argument = tyro.conf.arg(
            help=_explained(setting, names),
            name="import" if setting.option == "imports" else None,  # a keyword of Python
            metavar="|".join(setting.choices)
            or {"file": "FILE", "folder": "FOLDER", "range": "LOW HIGH"}.get(setting.names or ""),
            help_behavior_hint="" if derived else f"(default: {setting.default})",
        )
        if setting.names == "file":
            hint = Annotated[hint, tyro.conf.UseAppendAction]
        default = setting.default if setting.kind is tuple else None
        fields.append((setting.option, Annotated[hint, argument], dataclasses.field(default=default)))
    return dataclasses.make_dataclass(title.title(), fields, kw_only=True)


def _explained(setting: Setting, names: Names | None) -> str:
    """The help of an option: its docstring, bounds, default and valid names."""
    text = setting.text.replace("``", "").rstrip(".")
    text += f" ({setting.bounds})." if str(setting.bounds) else "."
    if setting.preset:
        text += " By default, the preset and the method decide."
    if setting.names is not None and names is not None and (listed := tuple(names(setting.names))):
        text += f" One of: {', '.join(listed)}."
    return text


def _own_argument(parameter: inspect.Parameter, hint: Any) -> Any:
    """The type of an argument that the verb itself declares.

    A positional one is shown by its name: IMAGES, [RECIPE], RUNS [RUNS ...] or [GRIDS ...]. There is no hint
    "(default: None)", which says nothing.
    """
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        name = parameter.name.upper()
        more = f"[{name} ...]" if get_origin(hint) is tuple else ""
        required = parameter.default is inspect.Parameter.empty
        metavar = f"{name} {more}".strip() if required else more or f"[{name}]"
        behaviour = "(required)" if required and more else None  # tyro has "(default: )" for a tuple
        hint = Annotated[hint, tyro.conf.Positional, tyro.conf.arg(metavar=metavar, help_behavior_hint=behaviour)]
    return Annotated[hint, tyro.conf.arg(help_behavior_hint="")] if parameter.default in (None, ()) else hint


NAMES = {
    "method": "climb.methods:METHODS",
    "objective": "climb.methods:OBJECTIVES",
    "views": "climb.augment:POLICIES",
    "backbone": "climb.nets.build:BACKBONES",
    "preset": "climb.settings.presets:PRESETS",
    "fault": "climb.settings.presets:FAULTS",
    "dataset": "climb.datasets:names",
    "scenario": "climb.streams:SCENARIOS",
    "recipe": "climb.settings.recipes:RECIPES",
    "tunable": "climb.bench.tuning:tunable",
}
"""Where the valid names of a kind of setting are listed."""


def names_of(kind: str) -> Iterable[str]:
    """The valid names of a kind of setting, parts of installed packages included; () for a kind without a list."""
    load_plugins()  # `climb methods` reports those that cannot be imported
    place = pkgutil.resolve_name(NAMES[kind]) if kind in NAMES else ()
    names: Iterable[str] = place() if callable(place) else place
    return ("objective", *names) if kind == "views" else names


def names_for_live_streams(kind: str) -> Iterable[str]:
    """As `names_of`, without the methods that cannot learn from an endless stream."""
    from climb.session.configure import unfit_for_live_streams

    return [name for name in names_of(kind) if kind != "method" or not unfit_for_live_streams(name)]
