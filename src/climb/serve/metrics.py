"""The latest numbers of every run as Prometheus reads them: one line a value, in the text format 0.0.4."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from climb.errors import InputError
from climb.evaluation.accuracies import MAIN
from climb.learn import MEASURES
from climb.report.encodable import encodable
from climb.report.lived import NOT_VALUES
from climb.report.record import Record
from climb.runs.json_files import is_number
from climb.serve.watched import WatchedRun

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RESULTS = (*MAIN, "random_encoder_accuracy")
Value = tuple[str, dict[str, str], float]


def metrics(runs: Iterable[WatchedRun]) -> str:
    """All runs in one text. Every value is a gauge that carries the run's name.

    Of a run whose files are damaged there is what can be known without them: one that is missing raises no alarm.
    """
    samples: dict[str, dict[str, float]] = {}  # each once: of two alike Prometheus takes none, nor the rest
    for run in runs:
        try:
            told, legible = run.brief("metrics", run.version(), lambda record: list(_of_record(record))), True
        except (InputError, OSError):
            told, legible = [], False
        for name, more, value in [*told, *_of_now(run, legible)]:
            labels = ",".join(f'{key}="{escaped(text)}"' for key, text in {"run": run.title, **more}.items())
            samples.setdefault(name, {}).setdefault(labels, value)
    meanings = {metric_name(key): meaning for key, meaning in MEASURES.items()}
    lines = []
    for name, found in sorted(samples.items()):
        if name in meanings:
            lines.append(f"# HELP {name} {meanings[name]}")
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{{{labels}}} {value:.10g}" for labels, value in found.items()]
    return encodable("\n".join([*lines, ""]))


def metric_name(key: str) -> str:
    """A key of the journal as the name of a metric.

    >>> metric_name("effective_rank"), metric_name("loss/total")
    ('climb_effective_rank', 'climb_loss_total')
    """
    return "climb_" + re.sub(r"[^a-zA-Z0-9_]", "_", key)


def escaped(text: str) -> str:
    r"""A label's value.

    >>> print(escaped('a "b"\n\\'))
    a \"b\"\n\\
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_now(run: WatchedRun, legible: bool) -> Iterable[Value]:
    """What changes though no file does, and whether the files can be read: with a damaged result no run is finished."""
    yield "climb_run_readable", {}, float(legible)
    yield "climb_run_finished", {}, float(legible and run.state() == "finished")
    yield "climb_run_at_work", {}, float(run.at_work())
    if math.isfinite(run.silence()):
        yield "climb_run_silence_seconds", {}, run.silence()


def _of_record(record: Record) -> Iterable[Value]:
    learner: dict[str, Any] = record.config.get("learner", {})
    about = {
        "method": str(learner.get("method", "")),
        "preset": str(learner.get("preset", "")),
        "data": record.data,
        "seed": str(record.config.get("seed", "")),
        "config_hash": record.config_hash,
    }
    yield "climb_run_info", about, 1.0
    yield "climb_batches", {}, float(record.batches)
    for key in dict.fromkeys(key for line in record.training[-50:] for key in line if key not in NOT_VALUES):
        value = record.latest(key)
        if value is not None:
            yield metric_name(key), {}, float(value)
    if record.matrix:
        yield "climb_tasks_evaluated", {}, float(len(record.matrix))
        yield "climb_accuracy_upto", {"network": record.evaluated}, float(record.upto[-1])
    for key in RESULTS:
        if record.result is not None and is_number(record.result.get(key)):
            yield metric_name(key), {"network": record.evaluated}, float(record.result[key])
