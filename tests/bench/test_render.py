"""One table in five formats."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import scipy.stats
from matplotlib.mathtext import MathTextParser

from climb.bench.layouts import Layout, RowSpec, find_layout
from climb.bench.paper import Printed, all_printed
from climb.bench.render import FORMATS, render
from climb.bench.render.markup import PACKAGES
from climb.bench.render.model import blocks, headings
from climb.bench.statistics import bootstrap_interval
from climb.bench.tables import PlacedRun, Table, build_table
from climb.errors import InputError


def has_latex() -> bool:
    """Whether tables can be set here: LaTeX, with the packages that they use."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return False
    names = [f"{name}.sty" for name in re.findall(r"\w+", PACKAGES.partition("{")[2])]
    found = subprocess.run(["kpsewhich", *names], capture_output=True, text=True, check=False)
    return len(found.stdout.split()) == len(names)


def filled(name: str, *, against: bool = True, dataset: str = "imagenet100") -> Table:
    """A layout of the paper with three made-up seeds wherever the paper prints a number."""
    layout = find_layout(name)
    keys = {metric.label: metric for metric in layout.metrics}

    def result(value: Printed, seed: int) -> dict[str, object]:
        metric = keys[value.metric]
        nested: dict[str, object] = {}
        outer, _, inner = metric.key.partition(".")
        number = (value.mean + (seed - 1) * 0.5) / metric.scale
        nested[outer] = {inner: number} if inner else number
        return {"seed": seed, "dataset": dataset, **nested}

    merged: dict[tuple[str, str, int], dict[str, object]] = {}
    for value in all_printed():
        if (value.table, value.dataset) == (name, dataset):
            for seed in range(3):
                place = merged.setdefault((value.row, value.column or layout.columns[0], seed), {})
                for key, found in result(value, seed).items():
                    held = place.get(key)
                    place[key] = {**held, **found} if isinstance(held, dict) and isinstance(found, dict) else found
    placed = [PlacedRun(row=row, column=column, result=found) for (row, column, _), found in merged.items()]
    return build_table(layout, placed, against="paper" if against else None)


@pytest.fixture(scope="module")
def regular() -> Table:
    return filled("table-regular", dataset="cifar100")


def test_blocks_omit_empty_rows_and_separate_bounds(regular: Table) -> None:
    found = blocks(regular)
    assert list(found) == ["20 tasks", "50 tasks", "100 tasks"]
    assert [line.row.label for line in found["20 tasks"] if line.apart] == ["SCALE", "PCMC"]
    assert "i.i.d." not in [line.row.label for line in found["50 tasks"]]
    assert "CA up-to" not in [heading.text for heading in headings(regular)]  # these runs have none
    assert [heading.text for heading in headings(regular)][:3] == ["CA", "CA, paper", "Δ CA"]


def test_terminal_marks_bold_with_a_star(regular: Table) -> None:
    text = render(regular, "terminal")
    line = next(line for line in text.splitlines() if "CLIMB" in line)
    assert " ".join(line.split()) == "CLIMB 41.33 ± 0.50 * 41.33 ± 0.72 * +0.00 44.09 ± 0.50 * 44.09 ± 0.30 * +0.00"
    assert "bold, *: the best of its column" in text
    untested = replace(regular, notes=("no test for 3 of the numbers that are not bold: too few seeds",))
    assert untested.notes[0] in render(untested, "terminal")  # of which none has a star
    assert "one-sided unpaired equal-variance t-test" in text


def test_markdown_has_as_many_cells_in_every_row(regular: Table) -> None:
    lines = [line for line in render(regular, "markdown").splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {2 + 6 + 1}
    assert len(lines) == 2 + 1 + 3 * 7
    assert "| 20 tasks | i.i.d. | --- | --- | --- | 50.45 ± 0.50 | 50.45 ± 2.03 | +0.00 |" in lines


@pytest.mark.parametrize("name", sorted({value.table for value in all_printed()}))
@pytest.mark.parametrize("against", [True, False])
def test_latex_is_well_formed(name: str, against: bool) -> None:
    text = render(filled(name, against=against), "latex")
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert opened == ["table", "center", "tabular"]
    assert re.findall(r"\\end\{(\w+)\}", text) == opened[::-1]
    bare = re.sub(r"\\[{}$&%#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns is not None
    rows = [line for line in bare.splitlines() if line.endswith(r"\\")]
    assert {row.count("&") + 1 for row in rows} == {len(columns[1])}
    for number, start in enumerate(rows):
        span = re.search(r"\\multirow\{(\d+)\}", start)
        if span:  # a block's first cell reaches over its rows, whose own first cell is empty
            covered = rows[number + 1 : number + int(span[1])]
            assert len(covered) == int(span[1]) - 1
            assert all(row.startswith(" & ") for row in covered)
    for last in re.findall(r"\\cmidrule\(l\)\{2-(\d+)\}", text):
        assert int(last) == len(columns[1])
    parser = MathTextParser("path")
    for formula in re.findall(r"\$[^$]*\$", bare):
        parser.parse(formula)


def test_latex_escapes_plain_text_and_keeps_symbols() -> None:
    text = render(filled("table-sensitivity-update"), "latex")
    assert r"$\tau_{\text{ema}} = 0.999$" in text
    assert "tau_ema = " not in text
    assert r"p $\geq$ 0.05" in text


@pytest.mark.skipif(not has_latex(), reason="no LaTeX here with the packages that tables use")
@pytest.mark.parametrize("name", sorted({value.table for value in all_printed()}))
@pytest.mark.parametrize("against", [True, False])
def test_latex_compiles_and_is_not_wider_than_the_text(name: str, against: bool, tmp_path: Path) -> None:
    lines = (
        r"\documentclass{article}",
        PACKAGES,
        r"\begin{document}",
        render(filled(name, against=against), "latex"),
        r"\end{document}",
    )
    (tmp_path / "table.tex").write_text("\n".join(lines), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert r"Overfull \hbox" not in (tmp_path / "table.log").read_text(encoding="utf-8", errors="replace")


def test_csv_holds_every_number_unrounded(regular: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(render(regular, "csv"))))
    assert len(rows) == len(regular.cells)
    (row,) = [r for r in rows if (r["row"], r["column"], r["metric"]) == ("MinRed", "50 tasks", "FA")]
    cell = regular.cell("MinRed", "50 tasks", "FA")
    assert cell is not None
    assert (float(row["mean"]), float(row["std"]), int(row["n"])) == (cell.mean, cell.std, 3)
    assert tuple(map(float, row["values"].split())) == cell.values
    assert (float(row["paper_mean"]), row["paper_bold"], row["seeds"]) == (43.62, "1", "0 1 2")
    assert (float(row["low"]), float(row["high"])) == bootstrap_interval(cell.values)
    assert (row["p"], row["hedges_g"]) == ("", "")  # the best row has no test
    (other,) = [r for r in rows if (r["row"], r["column"], r["metric"]) == ("CLA-E", "50 tasks", "FA")]
    values = tuple(map(float, other["values"].split()))
    assert float(other["p"]) == pytest.approx(scipy.stats.ttest_ind(cell.values, values, alternative="greater").pvalue)
    # All spreads here are 0.5; the factor is that of 4 degrees of freedom.
    assert float(other["hedges_g"]) == pytest.approx((43.62 - float(other["mean"])) / 0.5 * 0.797885, rel=1e-5)
    assert (row["bold"], other["bold"]) == ("1", "0")


class Shape(HTMLParser):
    """Counts cells per row, with spans, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[int] = []
        self.spans: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.spans = [left - 1 for left in self.spans if left > 1]
            self.rows.append(len(self.spans))
        if tag in ("td", "th"):
            self.rows[-1] += 1
            self.spans += [int(value or 1) for name, value in attrs if name == "rowspan"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_a_whole_table(regular: Table) -> None:
    text = render(regular, "html")
    shape = Shape()
    shape.feed(text)
    assert shape.open == []
    assert set(shape.rows) == {2 + 6}
    assert "<strong>41.33</strong> <small>± 0.50</small>" in text
    assert "http" not in text  # needs nothing else
    assert "p = " in text


def test_labels_are_escaped_everywhere() -> None:
    layout = find_layout("table-pruning")
    odd = "a|b & <c>_{}$"
    rows = (RowSpec(label=odd, method="climb"),)
    table = build_table(
        Layout(name="t", title=odd, rows=rows, columns=("20 tasks",), metrics=layout.metrics),
        [PlacedRun(row=odd, column="20 tasks", result={"seed": 0, "final_accuracy": 1.0})],
    )
    assert r"a\|b" in render(table, "markdown")
    assert r"a|b \& $<$c$>$\_\{\}\$" in render(table, "latex")
    assert "a|b &amp; &lt;c&gt;_{}$" in render(table, "html")
    assert odd in render(table, "terminal")


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_an_empty_table_renders(form: str) -> None:
    assert render(build_table(find_layout("table-regular"), []), form)


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'latex'"):
        render(build_table(find_layout("table-regular"), []), "tex")
