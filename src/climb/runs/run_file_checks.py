"""The JSON files of a run folder: objects of a known format with a checksum, complete, and of one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.evaluation.metrics import ACCURACIES
from climb.files import json_checksum, warn_unchecked, write_json

ADVICE = "restore the file, or delete the folder to start over"
LARGEST = sys.float_info.max
FORMAT_VERSION = 2
"""Format of `config.json` and `result.json`. Files of version 1 have no checksum."""
IDENTITY = ("config_hash", "data_fingerprint", "weights_sha256")
"""Fields of `config.json` and other files that identify a run, or an export."""
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
COMPLETE = (
    *(
        "final_accuracy",
        "random_encoder_accuracy",
        "accuracy_matrix",
        "evaluated",
        "method",
        "preset",
        "dataset",
        "tasks",
    ),
    *("seed", "cbp", "gradient_steps", "forward_only_images", "stored_images", "memory_bytes", "memory", "versions"),
)
"""Fields of every result of a run."""


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: endless nested brackets
        raise InputError(f"cannot read {path}: {error}; {ADVICE}") from error


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object of this format, with its checksum."""
    content = {**content, "format_version": FORMAT_VERSION}
    write_json(path, {**content, "checksum": json_checksum(content)})


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; its checksum is verified and left out."""
    value = read_json(path)
    if not isinstance(value, dict):
        kind = "null" if value is None else f"a {type(value).__name__}"
        raise InputError(f"{path} must hold a JSON object, not {kind}; {ADVICE}")
    checksum, version = value.pop("checksum", None), value.get("format_version", 0)
    if version in (0, 1):
        warn_unchecked(path)
    elif checksum != json_checksum(value) and not (checksum is None and version != FORMAT_VERSION):
        raise InputError(f"{path} is damaged or was edited: it does not match its checksum; {ADVICE}")
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a finite number.

    >>> is_number(0.5), is_number(None), is_number(True), is_number("0.5"), is_number(float("nan"))
    (True, False, False, False, False)
    >>> is_number(10**400)
    False
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def check_format(content: dict[str, Any], path: Path) -> None:
    """Reject a file of a newer version."""
    version = content.get("format_version", 0)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{path} has format_version {version}; this climb reads up to {FORMAT_VERSION}: install a newer one"
        )


def check_result(result: dict[str, Any], header: dict[str, Any], path: Path) -> None:
    """Reject a result that is incomplete, has fields of the wrong type, or belongs to another run.

    Args:
        result: content of `result.json`.
        header: content of `config.json`.
        path: of `result.json`, for messages.

    >>> header = {"config_hash": "1f"}
    >>> check_result({"config_hash": "1f", "final_accuracy": 50.0, "forgetting": None}, header, Path("result.json"))
    >>> check_result({"config_hash": "1f", "cbp": "many"}, header, Path("result.json"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: result.json says cbp is 'many', which is no number; restore the file, or delete ...
    """
    if "config_hash" not in result:
        raise InputError(f"{path} is not a whole result; {ADVICE}")
    for name in (*NUMBERS, *OBJECTS):
        value, kind = result.get(name), "object" if name in OBJECTS else "number"
        if value is not None and not (isinstance(value, dict) if name in OBJECTS else is_number(value)):
            raise InputError(f"{path} says {name} is {value!r}, which is no {kind}; {ADVICE}")
    if text := other_run(result, header):
        raise InputError(
            f"{path} is the result of another run ({text}); put its own back, or delete the folder to start over"
        )


def check_complete(result: Mapping[str, Any], path: Path) -> None:
    """Reject a result without all that `climb run` and the report show.

    >>> check_complete({name: 1 for name in COMPLETE} | {"seconds": {"train": 2.0, "total": 3.0}}, Path("result.json"))
    Traceback (most recent call last):
    climb.errors.InputError: result.json lacks seconds.evaluate; restore the file, or delete the folder to start over
    """
    missing = [name for name in COMPLETE if result.get(name) is None]
    seconds = result.get("seconds") or {}
    missing += [f"seconds.{name}" for name in ("train", "evaluate", "total") if not is_number(seconds.get(name))]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; {ADVICE}")


def other_run(stored: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """How the identity in a file differs from that in `config.json`; "" if it does not, or if either has none.

    >>> other_run({"config_hash": "1f"}, {"config_hash": "2e", "seed": 1})
    'config_hash 1f; its config.json says 2e'
    """
    for name in IDENTITY:  # compared as written: older versions computed the hash in another way
        if name in header and name in stored and header[name] != stored[name]:
            return f"{name} {stored[name]}; its config.json says {header[name]}"
    return ""
