"""The clinic's numbers: what each law says of a bug and of its right version."""

import html
import math
from dataclasses import dataclass

import plotly.graph_objects as go

from viz.numbers import number


@dataclass(frozen=True)
class Finding:
    """What a law measured: the violation (NaN: nothing could be measured), whether that breaks it, and in what."""

    amount: float
    broken: bool
    of: str  # what the amount is a number of: "weight", "output", "scores" …
    refused: bool = False  # PyTorch computed nothing


@dataclass(frozen=True)
class LawRow:
    """A law in words, its findings with the bug and without, and what it needs where it can say nothing here."""

    words: str
    wrong: Finding
    right: Finding
    needs: str
    telling: bool  # the law that tells this bug best


def law_table(rows: list[LawRow]) -> str:
    """An HTML table: the telling law first, then the other broken ones, then those that hold."""
    ordered = sorted(rows, key=lambda row: (not row.telling, not row.wrong.broken))
    body = "".join(
        f'<tr><td style="white-space:normal{";font-weight:600" if row.telling else ""}">{html.escape(row.words)} '
        f'<span style="opacity:.7;font-weight:400">({html.escape(row.wrong.of)})</span></td>'
        f"{_cell(row.wrong, row.needs)}{_cell(row.right, row.needs)}</tr>"
        for row in ordered
    )
    head = "<tr><th>law</th><th>with the bug</th><th>right version</th></tr>"
    return f'<table class="numbers laws">{head}{body}</table>'


def amount_text(finding: Finding) -> str:
    """What a person reads of a finding: "broken: 7.97", "held: 0", "–"."""
    if math.isnan(finding.amount):
        return "–"
    if finding.refused:
        return "broken: not computed"
    if math.isinf(finding.amount):
        return "broken: NaN"
    return f"{'broken' if finding.broken else 'held'}: {number(finding.amount)}"


def say_nan(figure: go.Figure) -> None:
    """In the large picture, rows that may look nowhere hold NaN and not 0: say so there."""
    for note in figure.layout.annotations:
        if note.xref == "x":
            note.text = "NaN"


def _cell(finding: Finding, needs: str) -> str:
    text = html.escape(amount_text(finding))
    if math.isnan(finding.amount):
        return f'<td title="needs {html.escape(needs)}">{text}</td>'
    colour = "#D55E00" if finding.broken else "#009E73"
    mark = f'<span class="swatch" style="background:{colour}"></span>'
    return f"<td>{mark}{f'<b>{text}</b>' if finding.broken else text}</td>"
