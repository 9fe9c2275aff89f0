"""Parts and methods of other people: modules that installed packages name as entry points."""

from __future__ import annotations

import importlib.metadata

from climb.errors import ClimbError

GROUP = "climb.methods"


def load_plugins() -> None:
    """Import what installed packages name under ``climb.methods``: importing it registers methods and objectives."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # somebody else's code, which may fail in any way
            package = "a package" if entry.dist is None else f"the package '{entry.dist.name}'"
            raise ClimbError(
                f"{package} names '{entry.value}' under {GROUP}, which cannot be imported: "
                f"{type(error).__name__}: {error}. Mend or uninstall it"
            ) from error
