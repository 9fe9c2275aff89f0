"""A table in LaTeX and in HTML.

LaTeX follows the paper's style: booktabs, rotated task counts, small spreads. HTML is one page without other files.
"""

from __future__ import annotations

from html import escape

from climb.bench.render.model import MISSING, OURS, PAPER, Field, Line, blocks, first_headings, headings
from climb.bench.tables import Cell, Table

PACKAGES = r"\usepackage{amsmath,booktabs,graphicx,multirow}"
AT_MOST_THE_TEXT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Scales a table down to the width of the text, never up."""
LATEX = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"})
LATEX |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$"})
LATEX |= str.maketrans({">": r"$>$", "±": r"$\pm$", "≥": r"$\geq$", "Δ": r"$\Delta$"})
"""The characters that LaTeX takes for something else."""
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; border-block: 2px solid; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; }
th[scope=row], th[scope=rowgroup] { text-align: left; font-weight: normal; }
thead th { border-bottom: 1px solid; }
tbody + tbody tr:first-child > * { border-top: 1px solid; }
tr.apart > * { border-top: 1px solid color-mix(in srgb, currentColor 35%, transparent); }
small, .beside { opacity: .75; }
"""


def escape_latex(text: str) -> str:
    r"""Plain text as LaTeX.

    >>> print(escape_latex("50 % of tau_ema"))
    50 \% of tau\_ema
    """
    return text.replace(">=", "≥").translate(LATEX)


def render_latex(table: Table) -> str:
    """A ``table`` environment, never wider than the text. Its first line names the packages it needs."""
    over = headings(table)
    several = len(table.layout.columns) > 1
    labels = (escape_latex(heading.text).replace(", paper", " (paper)") for heading in over)
    names = [*first_headings(table)[:-1], r"\textbf{Method}", *(rf"\textbf{{{label}}}" for label in labels)]
    lines = [
        f"% {PACKAGES}",
        "% a table that is wider than the text is scaled down to it",
        r"\begin{table}[t]",
        rf"\caption{{{escape_latex(table.layout.title)}.}}",
        rf"\label{{tab:{table.layout.name}}}",
        r"\begin{center}",
        r"\small",
        *([r"\setlength{\tabcolsep}{3pt}"] if any(heading.part == PAPER for heading in over) else []),
        AT_MOST_THE_TEXT,
        rf"\begin{{tabular}}{{{'c' * several}l{'c' * len(over)}}}",
        r"\toprule",
        " & ".join(names) + r" \\",
    ]
    for title, block in blocks(table).items():
        lines.append(r"\midrule")
        rotated = rf"\multirow{{{len(block)}}}{{*}}{{\rotatebox{{90}}{{{escape_latex(title)}}}}}"
        for line in block:
            if line.apart:
                lines.append(rf"\cmidrule(l){{2-{len(names)}}}" if several else r"\midrule")
            label = line.row.latex or escape_latex(line.row.label)
            label = rf"\textit{{{label}}}" if line.row.kind == "bound" else label
            place = [rotated if text else "" for text in line.place]
            lines.append(" & ".join([*place, label, *map(_latex_field, line.fields)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}}", r"\end{center}"]
    if table.notes:
        lines.append(rf"{{\footnotesize {escape_latex('; '.join(table.notes))}.}}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_field(field: Field) -> str:
    if field.value == MISSING:
        return MISSING
    signed = field.value[0] in "+-"  # in text, a minus would be a hyphen
    bold = rf"$\mathbf{{{field.value}}}$" if signed else rf"\textbf{{{field.value}}}"
    number = bold if field.bold else f"${field.value}$" if signed else field.value
    spread = rf"{{\small$\pm${field.spread}}}" if field.spread else ""
    return number + spread + r"$\,\sim$" * field.within_noise


def render_html(table: Table) -> str:
    """A page with the table, its title and its notes. A number shows its seeds and its test on hover."""
    title = escape(table.layout.title)
    names = [*first_headings(table), *(heading.text for heading in headings(table))]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>',
        *(_html_body(table, column, block) for column, block in blocks(table).items()),
        "</table></div>",
        "<ul>",
        *(f"<li>{escape(note)}</li>" for note in table.notes),
        "</ul></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _html_body(table: Table, column: str, block: list[Line]) -> str:
    lines = ["<tbody>"]
    for line in block:
        place = f'<th scope="rowgroup" rowspan="{len(block)}">{escape(column)}</th>' if any(line.place) else ""
        cells = ""
        for field, heading in zip(line.fields, headings(table), strict=True):
            value = f"<strong>{escape(field.value)}</strong>" if field.bold else escape(field.value)
            spread = f" <small>± {escape(field.spread)}</small>" if field.spread else ""
            details = escape(_details(table.cell(line.row.label, column, heading.metric.label), heading.metric.digits))
            kind = f' title="{details}"' if heading.part == OURS else ' class="beside"'
            cells += f"<td{kind}>{value}{spread}{' ~' * field.within_noise}</td>"
        kind = ' class="apart"' if line.apart else ""
        lines.append(f'<tr{kind}>{place}<th scope="row">{escape(line.row.label)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>"])


def _details(cell: Cell | None, digits: int) -> str:
    """Seeds, test and interval of a cell."""
    if cell is None:
        return "no run"
    parts = (
        ("n = {}", cell.n),
        ("seeds {}", ", ".join(map(str, cell.seeds))),
        ("p = {:.3g} against the best", cell.p),
        ("Hedges' g {:.2f}", cell.effect),
        ("{} pairs", cell.pairs),
        ("95 % bootstrap interval {0[0]:.{digits}f} to {0[1]:.{digits}f}", cell.interval),
    )
    return "; ".join(text.format(value, digits=digits) for text, value in parts if value is not None)
