"""The latest numbers of every run for Prometheus, in the text format 0.0.4."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from climb.errors import InputError
from climb.evaluation.metrics import MAIN
from climb.report.accuracy_section import PROBES
from climb.report.markup import encodable
from climb.report.memory_charts import NOT_VALUES
from climb.report.record import Record
from climb.runs.run_file_checks import is_number
from climb.serve.watched_run import WatchedRun
from climb.session import MEASURES

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RESULTS = (*MAIN, "random_encoder_accuracy")
Sample = tuple[str, dict[str, str], float]
"""Name, labels and value."""


def metrics(runs: Iterable[WatchedRun]) -> str:
    """All runs in one text. Every value is a gauge with the run's name as a label.

    A run with damaged files still has the values that need no files. Without any, no alert could fire.
    """
    samples: dict[str, dict[str, float]] = {}  # each series once: Prometheus rejects a text with duplicates
    for run in runs:
        try:
            recorded = run.brief("metrics", run.version(), lambda record: list(_of_record(record)))
            readable = True
        except (InputError, OSError):
            recorded, readable = [], False
        for name, more, value in [*recorded, *_of_process(run, readable)]:
            labels = ",".join(f'{key}="{escaped(text)}"' for key, text in {"run": run.title, **more}.items())
            samples.setdefault(name, {}).setdefault(labels, value)
    meanings = {metric_name(key): meaning for key, meaning in MEASURES.items()}
    lines = []
    for name, values in sorted(samples.items()):
        if name in meanings:
            lines.append(f"# HELP {name} {meanings[name]}")
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{{{labels}}} {value:.10g}" for labels, value in values.items()]
    return encodable("\n".join([*lines, ""]))


def metric_name(key: str) -> str:
    """The metric of a key in the journal.

    >>> metric_name("effective_rank"), metric_name("loss/total")
    ('climb_effective_rank', 'climb_loss_total')
    """
    return "climb_" + re.sub(r"[^a-zA-Z0-9_]", "_", key)


def escaped(text: str) -> str:
    r"""The value of a label.

    >>> print(escaped('a "b"\n\\'))
    a \"b\"\n\\
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_process(run: WatchedRun, readable: bool) -> Iterable[Sample]:
    """Values that change without a change of files. A run with a damaged result has not finished."""
    yield "climb_run_readable", {}, float(readable)
    yield "climb_run_finished", {}, float(readable and run.state() == "finished")
    yield "climb_run_at_work", {}, float(run.at_work())
    if math.isfinite(run.silence()):
        yield "climb_run_silence_seconds", {}, run.silence()


def _of_record(record: Record) -> Iterable[Sample]:
    about = {key: str(record.config.get("learner", {}).get(key, "")) for key in ("method", "preset")}
    about |= {"data": record.data, "seed": str(record.config.get("seed", "")), "config_hash": record.config_hash}
    yield "climb_run_info", about, 1.0
    yield "climb_batches", {}, float(record.batches)
    for key in dict.fromkeys(key for line in record.training[-50:] for key in line if key not in NOT_VALUES):
        if (value := record.latest(key)) is not None:
            yield metric_name(key), {}, float(value)
    if record.matrix:
        yield "climb_tasks_evaluated", {}, float(len(record.matrix))
        yield "climb_accuracy_upto", {"network": record.evaluated}, float(record.upto[-1])
    for probe in PROBES:
        for name, key in (("climb_probe_accuracy", probe), ("climb_probe_start_accuracy", f"start_{probe}")):
            if record.probes and is_number(record.probes[-1].get(key)):
                yield name, {"probe": probe}, float(record.probes[-1][key])
    for key in RESULTS:
        if is_number(record.result.get(key)):
            yield metric_name(key), {"network": record.evaluated}, float(record.result[key])
