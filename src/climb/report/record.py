"""The content of a run folder as plain data: finished or not, with labels or without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.runs import RunFolder
from climb.runs.run_file_checks import check_complete, check_format, check_result, is_number, read_object
from climb.settings.config import LearnerConfig

NOT_TRAINING = frozenset({"start", "floor", "evaluation", "probe", "warning", "guard", "change", "end"})
"""Events of the journal without values for a chart."""


class Record:
    """What the pages show of one run.

    Args:
        path: folder of the run.
        header: content of `config.json`.
        result: content of `result.json`; empty for an unfinished run, and for a stream without labels.
        lines: lines of the journal.
    """

    def __init__(
        self, path: Path, header: dict[str, Any], result: dict[str, Any], lines: Sequence[dict[str, Any]]
    ) -> None:
        self.path = path
        self.config: dict[str, Any] = header["config"]
        """The learner's configuration and, except for `climb learn`, recipe, seed, data, stream and evaluation."""
        self.execution: dict[str, Any] = header.get("execution", {})
        """Device, engine, precision and similar options."""
        self.versions: dict[str, str] = result["versions"] if result else header.get("versions", {})
        """Versions of the libraries, and the device."""
        self.config_hash = str(header["config_hash"])
        self.command = None if header.get("command") is None else str(header["command"])
        """The command line. None for a run started from Python."""
        self.result = result
        floors = [line for line in lines if line.get("event") == "floor"]
        self.evaluated = _evaluated_network(self.config, result, floors)
        """The network whose accuracies are shown: "student" or "teacher"."""
        wanted = ("evaluation", self.evaluated)
        measured = [line for line in lines if (line.get("event"), line.get("network")) == wanted]
        self.matrix: list[list[float]] = result["accuracy_matrix"] if result else [row["per_task"] for row in measured]
        """Accuracy after segment t on task j in percent, one row for each evaluated segment."""
        self.shown: list[list[int]] = result.get("shown") or [[task] for task in range(len(self.matrix))]
        """The tasks that each evaluated segment shows. In an unfinished run, those of a stream of tasks."""
        self.upto: list[float] = result["accuracy_upto"] if result else [row["upto"] for row in measured]
        """Accuracy of a probe trained on the classes seen so far, one value for each evaluated task."""
        measured_floors = (float(line[self.evaluated]) for line in floors)
        self.floor: float | None = result["random_encoder_accuracy"] if result else next(measured_floors, None)
        """Accuracy of the random encoder, if measured yet."""
        _check_types(self.config, self.matrix, [*self.upto, *([] if self.floor is None else [self.floor])])
        self.tasks: int = len(self.matrix[0]) if self.matrix else self.config.get("stream", {}).get("tasks", 0)
        """0 for a stream without tasks, and before the first evaluation of one that decides their number."""
        self.ends: list[int] = [line["batch"] for line in measured]
        """Number of mini-batches at the end of each evaluated task."""
        self.training = [line for line in lines if str(line.get("event")) not in NOT_TRAINING]
        """Lines of the journal with values of the training."""
        self.probes = [line for line in lines if line.get("event") == "probe"]
        """Accuracies of a learner on labelled images (``climb learn --probe``)."""
        self.warnings = [(line["batch"], str(line.get("text"))) for line in lines if line.get("event") == "warning"]
        """Warnings with the number of mini-batches done."""
        self.changes = [(line["batch"], line.get("image")) for line in lines if line.get("event") == "change"]
        """Detected changes of the stream: number of mini-batches done, and of the image."""
        self.ended = [line["event"] for line in lines if line.get("event") in ("start", "end")][-1:] == ["end"]
        """Whether a stream without labels has ended."""

    @property
    def labelled(self) -> bool:
        """Whether the run measures accuracy. A stream without labels has no tasks."""
        stream = self.config.get("stream", {})
        return "evaluation" in self.config and (stream.get("tasks") != 0 or stream.get("kind", "own") != "own")

    @property
    def title(self) -> str:
        """The run in one line."""
        parts = [f"{self.method} on {self.data}"]
        if self.tasks:
            parts.append(f"{self.tasks} {'task' if self.tasks == 1 else 'tasks'}")
        if "seed" in self.config:
            parts.append(f"seed {self.config['seed']}")
        return ", ".join(parts)

    @property
    def method(self) -> str:
        """The method with its preset and, if not the default, its objective."""
        learner = self.config.get("learner", {})
        options = [learner[key] for key in ("preset", "objective") if key in learner]
        text = ", ".join(option for option in options if option != LearnerConfig.objective)
        name = str(learner.get("method", "climb"))
        return f"{name} ({text})" if text else name

    @property
    def data(self) -> str:
        """Name of the dataset or source."""
        dataset = self.config.get("data", {}).get("dataset")
        return str(dataset if dataset is not None else self.config.get("source", self.path.name))

    @property
    def seen(self) -> list[int]:
        """The number of tasks seen after each evaluated segment. Tasks are numbered as they are shown first."""
        counts = accumulate((1 + max(shown) for shown in self.shown), max)
        return [min(count, len(self.matrix[0])) for count in counts]

    @property
    def names(self) -> list[str]:
        """The names of the tasks: numbers, unless they are domains or other groups."""
        groups = self.result.get("groups") or [{"name": str(task)} for task in range(1, self.tasks + 1)]
        return [str(group["name"]) for group in groups]

    @property
    def boundaries(self) -> list[int]:
        """Number of mini-batches at each change of task."""
        return self.ends[:-1] if self.result or len(self.ends) == self.tasks else self.ends

    @property
    def batches(self) -> int:
        """Number of mini-batches in the journal."""
        return max((int(line["batch"]) for line in self.training), default=0)

    def points(self, key: str) -> list[tuple[float, float | None]]:
        """Pairs (mini-batch, value) of a key in the journal, None for missing values; empty without any number."""
        if self.latest(key) is None:
            return []
        return [(line["batch"], line[key] if is_number(line.get(key)) else None) for line in self.training]

    def latest(self, key: str) -> float | None:
        """The latest number in the journal for a key; None if it has none."""
        return next((line[key] for line in reversed(self.training) if is_number(line.get(key))), None)


def read_record(path: Path) -> Record:
    """Read `config.json` and, if they exist, `journal.jsonl` and `result.json`.

    Raises:
        InputError: the folder holds no run, or its files are damaged.
    """
    folder = RunFolder(path)
    if not folder.config_path.is_file():
        fault = f"{path} holds no run: it has no config.json" if path.exists() else f"there is no {path}"
        raise InputError(f"{fault}; give a folder written by climb run or climb learn (their --out)")
    result = read_object(folder.result_path) if folder.result_path.exists() else None
    return make_record(path, read_object(folder.config_path), result, folder.journal.read())


def make_record(
    path: Path, header: dict[str, Any], result: dict[str, Any] | None, lines: Sequence[dict[str, Any]]
) -> Record:
    """Build the record from the content of `config.json`, `result.json` and the journal.

    Raises:
        InputError: a value is missing or of a wrong type.
    """
    check_format(header, path / "config.json")
    if result is not None:
        check_format(result, path / "result.json")
        check_result(result, header, path / "result.json")
    if result is None or "accuracy_matrix" not in result:
        result = {}  # unfinished, or of a stream without labels: the journal has its values
    if result:
        check_complete(result, path / "result.json")
    try:
        return Record(path, header, result, [line for line in lines if is_number(line.get("batch"))])
    except KeyError as error:
        raise InputError(
            f"the files in {path} lack {error}: they were not written by this version of climb run; "
            "run it again in another folder"
        ) from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        # One damaged folder must not spoil a page on many runs.
        raise InputError(
            f"the files in {path} are damaged ({error}): restore them, or run again in another folder"
        ) from error


def _evaluated_network(config: dict[str, Any], result: dict[str, Any], floors: list[dict[str, Any]]) -> str:
    """The network in the result, else the first one measured, else the configured one."""
    if result:
        return str(result["evaluated"])
    measured = [key for line in floors for key in line if key not in ("batch", "event", "time")]
    configured = str(config.get("evaluation", {}).get("network", "student"))
    return measured[0] if measured else ("student" if configured == "both" else configured)


def _check_types(config: Any, matrix: Any, accuracies: Sequence[Any]) -> None:
    """Reject values that the pages cannot show."""
    for name in ("learner", "data", "stream", "evaluation", "learner.memory", "data.options", "stream.options"):
        value = config
        for key in name.split("."):
            value = value.get(key, {})
        if not isinstance(value, dict):
            raise TypeError(f"'{name}' of the configuration is a {type(value).__name__}")
    for row in matrix:
        if not row or len(row) != len(matrix[0]) or not all(map(is_number, row)):
            raise ValueError("the accuracies are no matrix of numbers")
    if not all(map(is_number, accuracies)):
        raise ValueError("an accuracy is no number")
