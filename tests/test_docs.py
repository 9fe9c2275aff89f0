"""The pages about methods say what the methods are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from climb.engine import Parts
from climb.methods import METHODS, PartFactory, build_parts
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.verified import verified

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "methods"
ABLATIONS = "climb-ablations"
CONFIG = LearnerConfig(
    backbone="micro",
    image_size=16,
    replay_batch=8,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=33),
)
# Taken now: other tests register methods of their own, which have no page.
OURS = tuple(name for name, method in METHODS.items() if method.build.__module__.startswith("climb."))


def page_of(name: str) -> Path:
    return PAGES / f"{ABLATIONS if name.startswith('climb-') else name}.md"


def parts_of(name: str) -> Parts:
    engine = build_engine(
        replace(CONFIG, method=name),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        seed=0,
        device=torch.device("cpu"),
        precision="float32",
        kind="eager",
    )
    return engine.parts


def row_of(name: str, text: str) -> list[str]:
    """The cells of the table row that is about a method."""
    rows = [line for line in text.splitlines() if re.match(rf"\| (`{name}`|\[{name}\]\([a-z-]+\.md\)) \|", line)]
    assert len(rows) == 1, f"{name} has {len(rows)} rows"
    return [cell.strip(" `") for cell in rows[0].strip("|").split("|")]


def classes(name: str) -> list[str]:
    """Names of the classes that the method is built of; its memory, batch, objective and alignment."""
    parts = parts_of(name)
    batch = "Pcmc" if METHODS[name].custom_engine else type(parts.batch).__name__
    others = [
        type(part).__name__ if part is not None else "" for part in (parts.memory, parts.objective, parts.alignment)
    ]
    return [others[0], batch, others[1], others[2]]


@pytest.mark.parametrize("name", OURS)
def test_every_method_has_a_page_that_names_its_parts(name: str) -> None:
    text = page_of(name).read_text(encoding="utf-8")
    if name.startswith("climb-"):
        cells = row_of(name, text)[1:5]
    else:
        head = text.index("| memory | batch | objective | alignment |")
        cells = [cell.strip(" `") for cell in text[head:].splitlines()[2].strip("|").split("|")]
    for cell, kind in zip(cells, classes(name), strict=True):
        assert kind in cell if kind else cell == "none"


@pytest.mark.parametrize("name", OURS)
def test_the_table_of_all_names_the_parts(name: str) -> None:
    cells = row_of(name, (PAGES / "README.md").read_text(encoding="utf-8"))
    assert page_of(name).name in cells[0]
    for cell, kind in zip(cells[1:5], classes(name), strict=True):
        assert kind in cell if kind else cell == "-"


@pytest.mark.parametrize("name", OURS)
def test_a_page_tells_the_rates_it_starts_from(name: str) -> None:
    text = page_of(name).read_text(encoding="utf-8")
    said = re.search(r"## Rates \w+ starts? from\n\n(.*?)\n\n## ", text, re.DOTALL)
    assert said is not None
    rate, weight = METHODS[name].lr, METHODS[name].alignment_weight
    if rate is not None:
        assert f"Learning rate {rate:g}" in said[1]
    if weight is not None:
        assert f"alignment weight {weight:.1f}" in said[1]


@pytest.mark.parametrize("name", OURS)
def test_a_page_says_who_proposed_it_the_idea_the_formula_the_choices_and_the_figures(name: str) -> None:
    text = page_of(name).read_text(encoding="utf-8")
    assert METHODS[name].paper.casefold() in " ".join(text.split()).casefold()
    sections = re.findall(r"## (?:The|Its|Their|Our) (idea|formula|parts|choices|budget|figures)\n\n(.+)", text)
    assert [title for title, _ in sections] == ["idea", "formula", "parts", "choices", "budget", "figures"]
    assert "=" in text.partition("formula\n\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", OURS)
def test_the_table_of_all_counts_what_is_stored_and_spent(name: str) -> None:
    cells = row_of(name, (PAGES / "README.md").read_text(encoding="utf-8"))
    spent, stored = cells[5:7]
    assert spent.strip("*") == ("not equal" if METHODS[name].custom_engine else "equal")
    if METHODS[name].custom_engine:
        assert stored.startswith("**unbounded**")
        assert not METHODS[name].memory.bounded  # type: ignore[union-attr]
        return
    # An embedding of ResNet-18 is 2048 long; the backbone itself takes no room in a memory.
    factory = PartFactory(config=LearnerConfig(method=name, backbone="micro"), seed=0, device=torch.device("cpu"))
    factory.network.embedding_dim = 2048
    memory = build_parts(factory).memory
    if memory is None:
        assert stored.partition(" ")[0] == "0"
    else:
        assert memory.bounded
        assert stored == f"{memory.capacity}, {memory.nbytes / 1e6:.2f} MB"


def test_no_page_is_about_nothing() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {page_of(name).stem for name in OURS} | {"README"}


@pytest.mark.parametrize("name", OURS)
def test_a_page_tells_what_was_measured(name: str) -> None:
    text = page_of(name).read_text(encoding="utf-8")
    found = [row for row in verified() if row.method == name]
    assert not found or "Not yet measured" not in text
    if not name.startswith("climb"):  # CLIMB's own page leads to all its results, the ablations share one
        assert found or "Not yet measured on real data." in text
        assert all(f"FA {row.final_accuracy:.2f}" in text for row in found)
