"""What a run folder says about its run, finished or not, with labels or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.config import LearnerConfig
from climb.errors import InputError
from climb.runs import Journal, RunFolder
from climb.runs.believed import check_format, check_result
from climb.runs.json_files import is_number, read_object

NOT_TRAINING = frozenset({"start", "floor", "evaluation", "warning", "end"})


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that the page of a run tells, as plain data."""

    path: Path
    config: dict[str, Any]
    """The configuration: the learner's, and of a run also recipe, seed, data, stream, evaluation."""
    execution: dict[str, Any]
    """Where and how it was carried out."""
    versions: dict[str, str]
    """What it was measured with."""
    config_hash: str
    command: str | None
    """What was typed, where that is known."""
    result: dict[str, Any] | None
    """None while the run is not finished."""
    evaluated: str
    """The network whose accuracies are told."""
    tasks: int
    """0 for a stream without tasks."""
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
    warnings: list[tuple[int, str]]
    """What a person was told, and after how many mini-batches."""
    ended: bool
    """Whether a stream without labels came to its end, as far as anybody knows."""

    @property
    def labelled(self) -> bool:
        """Whether accuracy is measured at all: a stream of one's own has no tasks."""
        return "evaluation" in self.config and self.config.get("stream", {}).get("tasks") != 0

    @property
    def title(self) -> str:
        """The run in one line."""
        said = f"{self.method} on {self.data}"
        if self.tasks:
            said += f", {self.tasks} {'task' if self.tasks == 1 else 'tasks'}"
        return f"{said}, seed {self.config['seed']}" if "seed" in self.config else said

    @property
    def method(self) -> str:
        """What learned, and by which preset."""
        learner = self.config.get("learner", {})
        name = str(learner.get("method", "climb"))
        told = [learner[key] for key in ("preset", "objective") if key in learner]
        said = ", ".join(word for word in told if word != LearnerConfig.objective)
        return f"{name} ({said})" if said else name

    @property
    def data(self) -> str:
        """Where the images come from."""
        dataset = self.config.get("data", {}).get("dataset")
        return str(dataset if dataset is not None else self.config.get("source", self.path.name))

    @property
    def boundaries(self) -> list[int]:
        """Where one task gave way to the next."""
        return self.ends[:-1] if len(self.ends) == self.tasks else self.ends

    @property
    def batches(self) -> int:
        """Mini-batches in the journal."""
        return max((int(line["batch"]) for line in self.training), default=0)

    def points(self, key: str) -> list[tuple[float, float | None]]:
        """The values of one key of the journal over the mini-batches."""
        return [(line["batch"], line[key] if is_number(line.get(key)) else None) for line in self.training]

    def has(self, key: str) -> bool:
        """Whether the journal has a number for a key."""
        return any(is_number(line.get(key)) for line in self.training)

    def latest(self, key: str) -> float | None:
        """The last number that the journal has for a key."""
        return next((line[key] for line in reversed(self.training) if is_number(line.get(key))), None)


def read_record(path: Path) -> Record:
    """Read `config.json` and, as far as they exist, `journal.jsonl` and `result.json`.

    Raises:
        InputError: there is no run in the folder, or its files are not those of one.
    """
    folder = RunFolder(path)
    if not path.exists():
        raise InputError(f"there is no {path}; give the folder that climb run or climb learn wrote (its --out)")
    if not folder.config_path.is_file():
        raise InputError(
            f"{path} holds no run: there is no config.json in it; give the folder that climb run or climb learn wrote "
            "(its --out)"
        )
    header = read_object(folder.config_path)
    result = read_object(folder.result_path) if folder.result_path.exists() else None
    lines = [line for part in folder.journal_parts() for line in Journal(part).read()]
    return make_record(folder.path, header, result, lines)


def make_record(
    path: Path, header: dict[str, Any], result: dict[str, Any] | None, lines: Sequence[dict[str, Any]]
) -> Record:
    """The record of a run from what its files hold; ``lines`` are those of the journal."""
    check_format(header, path / "config.json")
    if result is not None:
        check_format(result, path / "result.json")
        check_result(result, header, path / "result.json")
    lines = [line for line in lines if is_number(line.get("batch"))]
    floors = [line for line in lines if line.get("event") == "floor"]
    sittings = [line["event"] for line in lines if line.get("event") in ("start", "end")]
    if result is not None and "accuracy_matrix" not in result:
        result = None  # of a stream without labels: the journal has it all
    try:
        config = header["config"]
        evaluated = _evaluated(config, result, floors)
        evaluations = [line for line in lines if line.get("event") == "evaluation" and line.get("network") == evaluated]
        matrix = [line["per_task"] for line in evaluations] if result is None else result["accuracy_matrix"]
        upto = [line["upto"] for line in evaluations] if result is None else result["accuracy_upto"]
        floor = _floor(evaluated, floors) if result is None else result["random_encoder_accuracy"]
        _check(config, matrix, [*upto, *([] if floor is None else [floor])])
        return Record(
            path=path,
            config=config,
            execution=header.get("execution", {}),
            versions=header.get("versions", {}) if result is None else result["versions"],
            config_hash=str(header["config_hash"]),
            command=None if header.get("command") is None else str(header["command"]),
            result=result,
            evaluated=evaluated,
            tasks=len(matrix[0]) if matrix else config.get("stream", {}).get("tasks", 0),
            matrix=matrix,
            upto=upto,
            floor=floor,
            ends=[line["batch"] for line in evaluations],
            training=[line for line in lines if str(line.get("event")) not in NOT_TRAINING],
            warnings=[(line["batch"], str(line.get("text"))) for line in lines if line.get("event") == "warning"],
            ended=sittings[-1:] == ["end"],
        )
    except KeyError as error:
        raise InputError(
            f"the files in {path} lack {error}: they are not those of a run of this version; "
            "run it again with climb run, in another folder"
        ) from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        # One such folder must not spoil a page on many.
        raise InputError(
            f"the files in {path} are damaged ({error}): restore them, or run again in another folder"
        ) from error


def _check(config: Any, matrix: Any, others: Sequence[Any]) -> None:
    """Refuse what the pages could not show."""
    for name in ("learner", "data", "stream", "evaluation"):
        if not isinstance(config.get(name, {}), dict):
            raise TypeError(f"'{name}' of the configuration is a {type(config[name]).__name__}")
    for section, name in (("learner", "memory"), ("data", "options"), ("stream", "options")):
        part = config.get(section, {}).get(name, {})
        if not isinstance(part, dict):
            raise TypeError(f"'{section}.{name}' of the configuration is a {type(part).__name__}")
    for row in matrix:
        if len(row) != len(matrix[0]) or not all(map(is_number, row)):
            raise ValueError("the accuracies are no matrix of numbers")
    if not all(map(is_number, others)):
        raise ValueError("an accuracy is no number")


def _evaluated(config: dict[str, Any], result: dict[str, Any] | None, floors: list[dict[str, Any]]) -> str:
    """The main network: what the result says, else the first one measured, else what was asked for."""
    if result is not None:
        return str(result["evaluated"])
    measured = [key for line in floors for key in line if key not in ("batch", "event", "time")]
    asked = str(config.get("evaluation", {}).get("network", "student"))
    return measured[0] if measured else ("student" if asked == "both" else asked)


def _floor(evaluated: str, floors: list[dict[str, Any]]) -> float | None:
    return next((float(line[evaluated]) for line in floors), None)
