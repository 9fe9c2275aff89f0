"""A table in LaTeX, set like the paper's: booktabs, task counts turned on their side, spreads in small print."""

from __future__ import annotations

from climb.bench.cell import Table
from climb.bench.render.blocks import DIFFERENCE, MISSING, PAPER, Field, Heading, blocks, headings

PACKAGES = r"\usepackage{amsmath,booktabs,graphicx,multirow}"
AT_MOST_THE_TEXT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Scales down what is wider than the text, and leaves alone what is not."""

SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
}


def escape(text: str) -> str:
    r"""Plain text as LaTeX.

    >>> print(escape("50 % of tau_ema"))
    50 \% of tau\_ema
    """
    return r"$\geq$".join("".join(SPECIAL.get(letter, letter) for letter in part) for part in text.split(">="))


def render_latex(table: Table) -> str:
    """A ``table`` environment, never wider than the text; the packages it needs are named in its first line."""
    over, parts = headings(table), blocks(table)
    several = len(table.layout.columns) > 1
    first = ["", r"\textbf{Method}"] if several else [r"\textbf{Method}"]
    width = len(first) + len(over)
    lines = [
        f"% {PACKAGES}",
        "% a table that is wider than the text is scaled down to it",
        r"\begin{table}[t]",
        rf"\caption{{{escape(table.layout.title)}.}}",
        rf"\label{{tab:{table.layout.name}}}",
        r"\begin{center}",
        r"\small",
        *([r"\setlength{\tabcolsep}{3pt}"] if any(heading.part == PAPER for heading in over) else []),
        AT_MOST_THE_TEXT,
        rf"\begin{{tabular}}{{{'c' * (len(first) - 1)}l{'c' * len(over)}}}",
        r"\toprule",
        _row([*first, *(rf"\textbf{{{_heading(heading)}}}" for heading in over)]),
    ]
    for block in parts:
        lines.append(r"\midrule")
        turned = rf"\multirow{{{len(block.lines)}}}{{*}}{{\rotatebox{{90}}{{{escape(block.title)}}}}}"
        for number, line in enumerate(block.lines):
            if line.apart:
                lines.append(rf"\cmidrule(l){{2-{width}}}" if several else r"\midrule")
            place = [turned if number == 0 else ""] if several else []
            label = line.row.latex or escape(line.row.label)
            label = rf"\textit{{{label}}}" if line.row.kind == "bound" else label
            lines.append(_row([*place, label, *map(_field, line.fields)]))
    lines += [r"\bottomrule", r"\end{tabular}}", r"\end{center}"]
    if table.notes:
        lines.append(rf"{{\footnotesize {escape('; '.join(table.notes))}.}}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _heading(heading: Heading) -> str:
    label = escape(heading.metric.label)
    return {PAPER: f"{label} (paper)", DIFFERENCE: rf"$\Delta$ {label}"}.get(heading.part, label)


def _field(field: Field) -> str:
    if field.value == MISSING:
        return MISSING
    number = f"${field.value}$" if field.value[0] in "+-" else field.value  # in text a minus is a hyphen
    if field.bold:
        number = rf"$\mathbf{{{field.value}}}$" if field.value[0] in "+-" else rf"\textbf{{{field.value}}}"
    return number + (rf"{{\small$\pm${field.spread}}}" if field.spread else "")


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
