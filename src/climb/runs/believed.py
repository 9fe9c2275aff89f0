"""Whether the files of a run folder can be believed: of a known format, whole, and of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.evaluation.accuracies import ACCURACIES
from climb.runs.json_files import ADVICE, is_number

FORMAT_VERSION = 1
"""Of `config.json` and `result.json`."""
IDENTITY = ("config_hash", "data_fingerprint")
"""What both `config.json` and `result.json` say of a run."""
NUMBERS = (
    *ACCURACIES,
    "validation_accuracy",
    "cbp",
    "gradient_steps",
    "forward_only_images",
    "stored_images",
    "memory_bytes",
    "tasks",
    "seed",
)
OBJECTS = ("memory", "seconds", "versions", "diversity", "other")


def check_format(found: dict[str, Any], path: Path) -> None:
    """Refuse a file that a newer version wrote."""
    version = found.get("format_version", 0)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{path} has format_version {version}; this climb reads up to {FORMAT_VERSION}: install a newer one"
        )


def check_result(result: dict[str, Any], header: dict[str, Any], path: Path) -> None:
    """Refuse a result that is not whole, says of a number or an object what is none, or is not of the run beside it.

    That is told by what both files say, not by hashing anew: older versions hashed otherwise.

    >>> header = {"config_hash": "1f"}
    >>> check_result({"config_hash": "1f", "final_accuracy": 50.0, "forgetting": None}, header, Path("result.json"))
    >>> check_result({"config_hash": "1f", "cbp": "many"}, header, Path("result.json"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: result.json says cbp is 'many', which is no number; restore the file, or delete ...
    """
    if "config_hash" not in result:
        raise InputError(f"{path} is not a whole result; {ADVICE}")
    for names, kind, fits in ((NUMBERS, "number", is_number), (OBJECTS, "object", _is_object)):
        for name in names:
            if result.get(name) is not None and not fits(result[name]):
                raise InputError(f"{path} says {name} is {result[name]!r}, which is no {kind}; {ADVICE}")
    for name in IDENTITY:
        if name in header and name in result and header[name] != result[name]:
            raise InputError(
                f"{path} is the result of another run ({name} {result[name]}; its config.json says {header[name]}); "
                "put its own back, or delete the folder to start over"
            )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
