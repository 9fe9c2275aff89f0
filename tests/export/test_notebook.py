"""How a notebook displays a learner and results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from climb import Climb
from climb.export import open_model, probe
from climb.runs import Result
from climb.runs.run_file_checks import read_object
from climb.session import learn


def cells(html: str) -> dict[str, str]:
    """The two columns of a table; fails on HTML that is not well formed."""
    return {row[0].text or "": row[1].text or "" for row in ElementTree.fromstring(html).iter("tr")}


def test_a_learner_says_what_it_has_learned(learned: tuple[Climb, Path]) -> None:
    model, _ = learned
    shown = cells(model._repr_html_())
    assert shown["learned"] == f"60 images in {model.engine_.budget.steps} steps"
    assert model.memory_ is not None
    assert shown["memory"] == f"{len(model.memory_)} of at most 60 images"
    assert shown["network"] == "micro, 16 x 16 pixels, on cpu"


def test_a_learner_that_has_learned_nothing() -> None:
    shown = cells(Climb(method="<b>", capacity=70)._repr_html_())
    assert shown == {"model": "Climb(method='<b>', capacity=70)", "learned": "nothing yet"}


def test_the_result_of_a_run(run_folder: Path) -> None:
    result = Result(read_object(run_folder / "result.json"))
    shown = cells(result._repr_html_())
    assert shown["final accuracy"] == f"{result['final_accuracy']:.2f}"
    assert shown["cbp"] == f"{result['cbp']:,}"
    assert shown["method"] == "climb"
    assert "accuracy matrix" not in shown
    assert Result().rows() == []


def test_every_kind_of_value_is_shown_as_people_write_it() -> None:
    numbers = {"seed": 12345, "cbp": 1234567, "deterministic": True, "share": np.float32(0.5), "count": np.int64(2000)}
    result = Result(**numbers, data_name="<b>", accuracy_matrix=[[1.0]], forgetting=None)
    assert result.rows() == [
        ("seed", "12345"),
        ("cbp", "1,234,567"),
        ("deterministic", "True"),
        ("share", "0.50"),
        ("count", "2,000"),
        ("data name", "<b>"),
    ]
    assert "<td>&lt;b&gt;</td>" in result._repr_html_()


def test_results_show_themselves(learned: tuple[Climb, Path], coloured: Callable[..., Path], tmp_path: Path) -> None:
    labelled = coloured({"train": 12, "test": 4})
    found = probe(open_model(learned[1], device="cpu", precision="float32"), labelled)
    assert cells(found._repr_html_())["linear accuracy"] == f"{found['linear_accuracy']:.2f}"
    became = learn(labelled, out=tmp_path / "learner", size="edge", image_size=16, budget=60, device="cpu")
    shown = cells(became._repr_html_())
    assert (shown["images"], shown["folder"]) == (str(became.images), str(became.folder))
