"""Help as people read it: every name that can be chosen, no default that says nothing, a short list of verbs.

Nothing but ``--help`` needs it: it imports what other packages bring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, get_type_hints

import tyro

ELSEWHERE = "(see: climb methods)"
OURS = "simclr, simsiam, byol, barlow-twins, vicreg, osiris or scale"
Verb = Callable[..., None]
_AS_WRITTEN: dict[Verb, str] = {}  # packages may be installed between two calls for help


def tell_one(verb: Verb) -> None:
    """Ready a verb's own help: all of its text, with every method and objective at hand, other packages' too."""
    from climb.methods import METHODS
    from climb.plugins import load_plugins
    from climb.workshop import OBJECTIVES

    load_plugins()  # what cannot be imported is told by `climb methods`
    verb.__doc__ = _written(verb).replace(ELSEWHERE, f"({', '.join(METHODS)})").replace(OURS, ", ".join(OBJECTIVES))
    _leave_out_empty(verb)


def tell_all(verbs: Iterable[Verb]) -> None:
    """Ready the list of all verbs: of each, the first paragraph."""
    for verb in verbs:
        verb.__doc__ = inspect.cleandoc(_written(verb)).split("\n\n")[0]


def _written(verb: Verb) -> str:
    return _AS_WRITTEN.setdefault(verb, verb.__doc__ or "")


def _leave_out_empty(verb: Verb) -> None:
    """Say no "(default: None)": what is not given is the recipe's, the preset's or the method's, as the texts say."""
    hints = get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        if parameter.default in (None, ()) and isinstance(verb.__annotations__[name], str):  # not twice
            verb.__annotations__[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="")]
