"""The clinic's numbers: what each law says of a bug and of its right version."""

import math
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup

from viz.head import comparison_figure
from viz.heatmap import Picture
from viz.html import join, swatch, table, tag
from viz.numbers import number, percent
from viz.view import HeadView

TITLES = ("with the bug", "right version", "bug − right")
BROKEN, HELD = "#D55E00", "#009E73"
FEATURES = {  # what a measured feature of a heatmap is called, and how its number is written
    "later": ("the share of weight that goes to later tokens is", percent),
    "padding": ("the share of weight that goes to padding is", percent),
    "sum": ("the smallest sum of a row is", "{:.2f}".format),
    "itself": ("the weight that a token gives itself is on average", "{:.2f}".format),
    "largest": ("the largest weight of a row is on average", "{:.2f}".format),
}


class Apart(Protocol):
    """Where one heatmap differs from another: a feature, or else a cell (query, key), and both heatmaps' numbers."""

    @property
    def feature(self) -> str: ...
    @property
    def cell(self) -> tuple[int, int]: ...
    @property
    def one(self) -> float: ...
    @property
    def other(self) -> float: ...


@dataclass(frozen=True)
class Finding:
    """What a law measured: the violation (NaN: nothing could be measured), whether that breaks it, and in what.

    error: what PyTorch said where it computed nothing.
    """

    amount: float
    broken: bool
    of: str  # what the amount is a number of: "weight", "output", "scores" …
    error: str = ""


@dataclass(frozen=True)
class LawRow:
    """A law in words, its findings with the bug and without, and what it needs where it can say nothing here."""

    words: str
    wrong: Finding
    right: Finding
    needs: str
    telling: bool  # the law that tells this bug best


def law_table(rows: list[LawRow]) -> Markup:
    """The telling law first, then the other broken ones, then those that hold."""
    ordered = sorted(rows, key=lambda row: (not row.telling, not row.wrong.broken))
    head = (tag("th", words) for words in ("law", "with the bug", "right version"))
    return table([head, *(_cells(row) for row in ordered)], "numbers laws")


def amount_text(finding: Finding) -> str:
    """What a person reads of a finding: "broken: 7.97", "held: 0", "crashes: mat1 and mat2 …", "–"."""
    if math.isnan(finding.amount):
        return "–"
    if finding.error:
        return f"crashes: {finding.error}"
    if math.isinf(finding.amount):
        return "broken: NaN"
    return f"{'broken' if finding.broken else 'held'}: {number(finding.amount)}"


def bug_figure(wrong: HeadView, right: HeadView, *, dark: bool, nan: bool) -> Picture:
    """With the bug, right, and the difference. nan: rows with nothing to look at hold NaN with the bug, and not 0."""
    figure = comparison_figure(wrong, right, dark=dark, titles=TITLES)
    for note in figure.layout.annotations if nan else ():
        if note.xref == "x":
            note.text = "NaN"
    return figure


def _cells(row: LawRow) -> list[Markup]:
    bold = "font-weight:600" if row.telling else "font-weight:400"
    of = tag("span", f"({row.wrong.of})", style="opacity:.75;font-weight:400")
    words = tag("td", join([row.words, " ", of]), style=f"white-space:normal;{bold}")
    return [words, *(_cell(finding, row) for finding in (row.wrong, row.right))]


def _cell(finding: Finding, row: LawRow) -> Markup:
    text = amount_text(finding)
    if math.isnan(finding.amount):
        why = "nothing was computed" if finding.error else f"needs {row.needs}"
        return tag("td", text, title=why)
    said = join([swatch(BROKEN if finding.broken else HELD), tag("b", text) if finding.broken else text])
    return tag("td", said, style="white-space:normal" if finding.error else "")


def told_apart(apart: Apart, one: str, other: str) -> str:
    """In what two heatmaps differ, as a sentence: `one` and `other` name them, "with that bug", "here"."""
    if not apart.feature:
        query, key = apart.cell
        return (
            f"in row {query}, column {key} (both from 0) the weight is {apart.one:.2f} {one}, and {apart.other:.2f} "
            f"{other}."
        )
    words, write = FEATURES[apart.feature]
    return f"{words} {write(apart.one)} {one}, and {write(apart.other)} {other}."
