"""The top of the page: title, state and main numbers of a run; and the section with all its accuracies."""

from __future__ import annotations

from html import escape
from statistics import fmean
from typing import Any

from climb.evaluation.metrics import ACCURACIES, MAIN
from climb.report.markup import formatted, number_rows, remark, section, table
from climb.report.record import Record
from climb.runs.run_file_checks import is_number

LABEL_FREE = {
    "images": ("Images", ",.0f", "Learned from the stream so far."),
    "stored": ("Stored", ",.0f", "Images in the memory now."),
    "objective": ("Loss", ".3f", "Loss of the objective, latest value."),
    "effective_rank": ("Effective rank", ".1f", "Directions that the embeddings use; 1 means collapse."),
    "threshold": ("Threshold", ".3f", "Cosine distance above which an image is novel."),
}
"""Cards of a stream without labels: key in the journal to heading, format and meaning."""
PROBES = {
    "knn": ("kNN", "On labelled images, in percent, latest value."),
    "ridge": ("Ridge", "On labelled images, in percent, latest value."),
}
"""Cards of a learner that probes labelled images: key in the journal to heading and meaning."""
DIVERSITY = {
    "vendi_score": ("Vendi score", ".1f", "Effective number of distinct images."),
    "uniformity": ("Uniformity", ".3f", "Log of the mean Gaussian potential of all pairs; lower is more uniform."),
    "intra_distance": ("Intra distance", ".3f", "Mean cosine distance of an image to the mean of its cluster."),
    "inter_intra_ratio": ("Inter / intra", ".2f", "Distance between cluster means, divided by the intra distance."),
}
NAMES = {key: (accuracy.heading, ".2f", accuracy.meaning) for key, accuracy in ACCURACIES.items()}
"""Heading, format and meaning of the accuracies."""
WARNINGS = 3  # the latest ones


def summary(record: Record) -> str:
    """Title, progress of an unfinished run, latest warnings, and a card for each main number."""
    recipe = f"Recipe {record.config['recipe']}. " if "recipe" in record.config else ""
    facts = f"{recipe}Accuracy of the {record.evaluated} network by linear probe, in percent."
    if not record.labelled:
        facts = "Learned without labels. The numbers are the latest in the journal."
    states = [] if record.result else [f'<p class="state">{escape(_progress(record))}</p>']
    states += [
        f'<p class="state warning">After {batch:,} mini-batches: {escape(text)}</p>'
        for batch, text in record.warnings[-WARNINGS:]
    ]
    cards = [_card(record, *row) for row in _main_numbers(record)]
    head = [f"<h1>{escape(record.title)}</h1>", remark(facts), *states]
    return "\n".join(['<header id="summary">', *head, '<div class="cards">', *cards, "</div></header>"])


def _progress(record: Record) -> str:
    if not record.labelled:
        word = "Learned" if record.ended else "Learning"
        return f"{word} from a stream: {record.batches:,} mini-batches in the journal so far."
    return (
        f"This run is not finished: {len(record.matrix)} of {record.tasks} tasks evaluated, "
        f"{record.batches:,} mini-batches in the journal so far."
    )


def _main_numbers(record: Record) -> list[list[str]]:
    """Heading, value and meaning of each card. Without a result, those of the latest task."""
    names = {key: NAMES[key] for key in MAIN}
    values = {key: record.result.get(key) for key in MAIN}
    if record.matrix and not record.result:
        row, task = record.matrix[-1], len(record.matrix)
        names |= {
            "all": ("All tasks", ".2f", f"After task {task}: mean over all tasks, unseen included."),
            "seen": ("Tasks seen", ".2f", f"After task {task}: mean over the tasks seen so far."),
            "upto": ("Up to now", ".2f", f"After task {task}: probe trained on the classes seen so far."),
        }
        values |= {"all": sum(row) / len(row), "seen": fmean(row[: record.seen[-1]]), "upto": record.upto[-1]}
    if not record.labelled:
        names |= LABEL_FREE
        values |= {key: record.latest(key) for key in LABEL_FREE}
        for key, (heading, meaning) in PROBES.items():
            line = record.probes[-1] if record.probes else {}
            start = f" The start: {line[f'start_{key}']:.2f}." if is_number(line.get(f"start_{key}")) else ""
            names[key], values[key] = (heading, ".2f", meaning + start), line.get(key)
    names["floor"], values["floor"] = NAMES["random_encoder_accuracy"], record.floor
    return number_rows([values], names)


def _card(record: Record, name: str, value: str, meaning: str) -> str:
    extra = ""
    if name == NAMES["final_accuracy"][0] and record.floor is not None:
        extra = f'<div class="gain">{record.result["final_accuracy"] - record.floor:+.2f} over random</div>'
    return (
        f'<div class="card"><h3>{escape(name)}</h3><div class="figure">{escape(value)}</div>{extra}'
        f'<div class="meaning">{escape(meaning)}</div></div>'
    )


def all_numbers(record: Record) -> str:
    """The section with all accuracies and the diversity of the memory. Nothing for an unfinished run."""
    if not record.result:
        return ""
    columns = _columns(record.result, record.evaluated)
    rows = number_rows(list(columns.values()), NAMES)
    accuracies = table(rows, heading=["", *columns, "meaning"], numbers=range(1, 1 + len(columns)))
    return section("numbers", "All numbers", accuracies, _diversity(record.result.get("diversity") or {}))


def _columns(result: dict[str, Any], evaluated: str) -> dict[str, dict[str, Any]]:
    """Accuracies by column heading: main network, the same weighted by images if different, other network."""
    columns = {evaluated: result}
    weighted = {key: result[f"{key}_per_image"] for key in ACCURACIES if f"{key}_per_image" in result}
    if any(formatted(value, ".2f") != formatted(result.get(key), ".2f") for key, value in weighted.items()):
        columns["weighted by images"] = weighted
    if "other" in result:
        columns[result["other"]["evaluated"]] = result["other"]
    return columns


def _diversity(measured: dict[str, Any]) -> str:
    """The measures of the paper's appendix, in the space of the embeddings and of the features."""
    spaces = (measured, measured.get("features") or {})
    columns = [{key: value for key, value in space.items() if is_number(value)} for space in spaces]
    rows = number_rows(columns, DIVERSITY)
    heading = ["", "embeddings", "features", "meaning"]
    return f"<h3>Diversity of the memory</h3>{table(rows, heading=heading, numbers=[1, 2])}" if rows else ""
