"""Help that names what can be chosen, methods and objectives of other packages too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from climb.errors import ClimbError

ELSEWHERE = "(see: climb methods)"
OURS = "simclr, simsiam, byol, barlow-twins or vicreg"
_AS_WRITTEN: dict[Callable[..., None], str] = {}  # packages may be installed between two calls for help


def name_choices(verb: Callable[..., None]) -> None:
    """Write every method and objective at hand into the help of a verb. Nothing but help needs it: it imports them."""
    from climb.methods import METHODS
    from climb.plugins import load_plugins
    from climb.workshop import OBJECTIVES

    with contextlib.suppress(ClimbError):  # a package that cannot be imported: help is given all the same
        load_plugins()
    text = _AS_WRITTEN.setdefault(verb, verb.__doc__ or "")
    verb.__doc__ = text.replace(ELSEWHERE, f"({', '.join(METHODS)})").replace(OURS, ", ".join(OBJECTIVES))
