"""What came out: the run's name, its numbers, and what each of them means."""

from __future__ import annotations

from html import escape
from typing import Any

from climb.evaluation.accuracies import ACCURACIES, MAIN
from climb.report.diversity import diversity
from climb.report.figure import quiet, section
from climb.report.record import Record
from climb.report.table import table

LABEL_FREE = (
    ("images", "Images", ",.0f", "Of the stream, learned from so far."),
    ("stored", "Stored", ",.0f", "Images in the memory now."),
    ("objective", "Loss", ".3f", "Of the objective, in the last line of the journal."),
    ("effective_rank", "Effective rank", ".1f", "Directions that the embeddings use; 1 is a collapse."),
    ("threshold", "Threshold", ".3f", "Cosine distance beyond which an image is novel."),
)
WARNINGS = 3  # the last ones


def headline(record: Record) -> str:
    """The run in one line, how far it is, and its numbers beside the random encoder's."""
    parts = ['<header id="headline">', f"<h1>{escape(record.title)}</h1>", quiet(_facts(record))]
    if record.result is None:
        parts.append(f'<p class="state">{escape(_so_far(record))}</p>')
    parts += [
        f'<p class="state warning">After {batch:,} mini-batches: {escape(text)}</p>'
        for batch, text in record.warnings[-WARNINGS:]
    ]
    parts.append('<div class="cards">')
    parts += _final_cards(record.result, record.floor) if record.result is not None else _cards_so_far(record)
    if not record.labelled:
        parts += _cards_without_labels(record)
    if record.floor is not None:
        random = ACCURACIES["random_encoder_accuracy"]
        parts.append(_card(random.heading, f"{record.floor:.2f}", random.meaning))
    return "\n".join([*parts, "</div></header>"])


def every_number(record: Record) -> str:
    """All accuracies of a finished run, and its memory's diversity; nothing for one that is not."""
    if record.result is None:
        return ""
    columns = _columns(record.result, record.evaluated)
    rows = [
        [accuracy.heading, *(_percent(column.get(key)) for column in columns.values()), accuracy.meaning]
        for key, accuracy in ACCURACIES.items()
        if record.result.get(key) is not None
    ]
    numbers = range(1, 1 + len(columns))
    accuracies = table(rows, heading=["", *columns, "meaning"], numbers=numbers)
    return section("numbers", "Every number", accuracies, diversity(record.result))


def _columns(result: dict[str, Any], evaluated: str) -> dict[str, dict[str, Any]]:
    """The accuracies by heading: the main network's, weighted by images where that matters, the other network's."""
    columns = {evaluated: result}
    weighted = {key: result[f"{key}_per_image"] for key in ACCURACIES if f"{key}_per_image" in result}
    if any(_percent(value) != _percent(result.get(key)) for key, value in weighted.items()):
        columns["weighted by images"] = weighted
    if "other" in result:
        columns[result["other"]["evaluated"]] = result["other"]
    return columns


def _so_far(record: Record) -> str:
    if not record.labelled:
        word = "Learned" if record.ended else "Learning"
        return f"{word} from a stream: {record.batches:,} mini-batches in the journal. The page shows what there is."
    return (
        f"This run is not finished: {len(record.matrix)} of {record.tasks} tasks evaluated, "
        f"{record.batches:,} mini-batches in the journal. The page shows what there is so far."
    )


def _facts(record: Record) -> str:
    if not record.labelled:
        return "Learned without labels: the numbers are those of the journal's last lines."
    recipe = f"Recipe {record.config['recipe']}. " if "recipe" in record.config else ""
    return f"{recipe}Evaluated network: {record.evaluated}, by linear probe, in percent."


def _cards_without_labels(record: Record) -> list[str]:
    return [
        _card(name, format(value, form), meaning)
        for key, name, form, meaning in LABEL_FREE
        if (value := record.latest(key)) is not None
    ]


def _final_cards(result: dict[str, Any], floor: float | None) -> list[str]:
    cards = []
    for key in MAIN:
        if result.get(key) is not None:
            gain = f"{result[key] - floor:+.2f} over random" if key == "final_accuracy" and floor is not None else ""
            cards.append(_card(ACCURACIES[key].heading, f"{result[key]:.2f}", ACCURACIES[key].meaning, beside=gain))
    return cards


def _cards_so_far(record: Record) -> list[str]:
    if not record.matrix:
        return []
    row, task = record.matrix[-1], len(record.matrix)
    seen = row[:task]
    return [
        _card("All tasks", f"{sum(row) / len(row):.2f}", f"After task {task}: mean over all tasks, unseen ones too."),
        _card("Tasks seen", f"{sum(seen) / len(seen):.2f}", f"After task {task}: mean over the tasks seen so far."),
        _card("Up to now", f"{record.upto[-1]:.2f}", f"After task {task}: a probe that knows the classes seen only."),
    ]


def _card(name: str, value: str, meaning: str, *, beside: str = "") -> str:
    extra = f'<div class="beside">{escape(beside)}</div>' if beside else ""
    return (
        f'<div class="card"><h3>{escape(name)}</h3><div class="figure">{escape(value)}</div>{extra}'
        f'<div class="meaning">{escape(meaning)}</div></div>'
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
