"""The JSON files of a run folder, read; whatever is wrong with one is said of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from climb.errors import InputError

ADVICE = "restore the file, or delete the folder to start over"
LARGEST = sys.float_info.max


def read_json(path: Path) -> Any:
    """Whatever a JSON file holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last for brackets within brackets without end
        raise InputError(f"cannot read {path}: {error}; {ADVICE}") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    found = read_json(path)
    if not isinstance(found, dict):
        other = "null" if found is None else f"a {type(found).__name__}"
        raise InputError(f"{path} must hold a JSON object, not {other}; {ADVICE}")
    return found


def is_number(value: Any) -> bool:
    """Whether a value can be drawn and reckoned with.

    >>> is_number(0.5), is_number(None), is_number(True), is_number("0.5"), is_number(float("nan"))
    (True, False, False, False, False)
    >>> is_number(10**400)
    False
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
