"""What a run folder says about its run, finished or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.runs import RunFolder


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that the page of a run tells, as plain data."""

    path: Path
    config: dict[str, Any]
    """The configuration: recipe, seed, data, stream, learner, evaluation."""
    execution: dict[str, Any]
    """Where and how it was carried out."""
    versions: dict[str, str]
    """What it was measured with."""
    config_hash: str
    result: dict[str, Any] | None
    """None while the run is not finished."""
    evaluated: str
    """The network whose accuracies are told."""
    tasks: int
    matrix: list[list[float]]
    """Accuracy after task t on task j, in percent; a row for each task finished so far."""
    upto: list[float]
    """Accuracy on the classes seen, one value for each task finished so far."""
    floor: float | None
    """Accuracy of the random encoder, once measured."""
    ends: list[int]
    """Mini-batches done when each task ended."""
    training: list[dict[str, Any]]
    """The journal's lines on training."""

    @property
    def title(self) -> str:
        """The run in one line."""
        learner = self.config["learner"]
        return (
            f"{learner['method']} ({learner['preset']}) on {self.config['data']['dataset']}, "
            f"{self.tasks} {'task' if self.tasks == 1 else 'tasks'}, seed {self.config['seed']}"
        )

    @property
    def boundaries(self) -> list[int]:
        """Where one task gave way to the next."""
        return self.ends[:-1] if len(self.ends) == self.tasks else self.ends


def read_record(path: Path) -> Record:
    """Read `config.json` and, as far as they exist, `journal.jsonl` and `result.json`.

    Raises:
        InputError: there is no run in the folder, or its files are not those of one.
    """
    folder = RunFolder(path)
    if not folder.config_path.is_file():
        raise InputError(
            f"{path} holds no run: there is no config.json in it; give the folder that climb run wrote (its --out)"
        )
    header = _object(folder.config_path)
    result = _object(folder.result_path) if folder.result_path.exists() else None
    try:
        config = header["config"]
        evaluated = _evaluated(config, result, folder.journal.read("floor"))
        lines = [line for line in folder.journal.read("evaluation") if line["network"] == evaluated]
        matrix = [line["per_task"] for line in lines] if result is None else result["accuracy_matrix"]
        return Record(
            path=folder.path,
            config={key: config[key] for key in ("recipe", "seed", "data", "stream", "learner", "evaluation")},
            execution=header["execution"],
            versions=header["versions"] if result is None else result["versions"],
            config_hash=header["config_hash"],
            result=result,
            evaluated=evaluated,
            tasks=len(matrix[0]) if matrix else config["stream"]["tasks"],
            matrix=matrix,
            upto=[line["upto"] for line in lines] if result is None else result["accuracy_upto"],
            floor=_floor(evaluated, folder.journal.read("floor"))
            if result is None
            else result["random_encoder_accuracy"],
            ends=[line["batch"] for line in lines],
            training=folder.journal.read("train"),
        )
    except KeyError as error:
        raise InputError(
            f"the files in {path} lack {error}: they are not those of a run of this version; "
            "run it again with climb run, in another folder"
        ) from error


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # neither text nor JSON
        raise InputError(f"cannot read {path}: {error}; restore the file, or run again in another folder") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object, not a {type(found).__name__}; restore the file")
    return found


def _evaluated(config: dict[str, Any], result: dict[str, Any] | None, floors: list[dict[str, Any]]) -> str:
    """The main network: what the result says, else the first one measured, else what was asked for."""
    if result is not None:
        return str(result["evaluated"])
    measured = [key for line in floors for key in line if key not in ("batch", "event")]
    asked = str(config["evaluation"]["network"])
    return measured[0] if measured else ("student" if asked == "both" else asked)


def _floor(evaluated: str, floors: list[dict[str, Any]]) -> float | None:
    return next((float(line[evaluated]) for line in floors), None)
