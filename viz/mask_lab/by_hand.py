"""The stages of a head that fits on paper, as HTML tables. Rows are queries, columns are keys."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import say
from viz.html import fixed, join, table, tag, td, th

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.mask_lab.fills import ByHand

BLOCKED = "−∞"
STYLE = """<style>
  .stages { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
  .stages figure { margin: 0; } .stages figcaption { font-weight: 600; margin-bottom: .2rem; }
  .stages table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  .stages :is(td, th) { padding: .25rem .6rem; border: 1px solid rgba(128,128,128,.35); text-align: right; }
  .stages th { font-weight: 600; } .stages td.blocked { background: rgba(230,159,0,.25); }
</style>"""


def rounded(value: float) -> str:
    """At most two digits after the point, as one writes by hand."""
    return fixed(value, 2).rstrip("0").rstrip(".") or "0"


def stages(found: "ByHand", tokens: Sequence[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    """(name, columns, cells) of every stage, a row a token; what the mask blocks is BLOCKED in the scores."""
    masked = np.where(found.allowed, found.scaled, np.nan)
    columns, sums = list(tokens), [[rounded(one)] for one in found.sums]
    both = [[*map(rounded, row), *total] for row, total in zip(found.exp, sums, strict=True)]
    return [
        ("1  q·k", columns, _cells(found.raw)),
        ("2  q·k / √2", columns, _cells(found.scaled)),
        (say("3  mask"), columns, [[BLOCKED if np.isnan(one) else rounded(one) for one in row] for row in masked]),
        (say("4  e^score"), [*columns, say("sum")], both),
        (say("5  weight = e^score / sum"), columns, _cells(found.weights)),
        (say("6  output = Σ weight · v"), ["1", "2"], _cells(found.output)),
    ]


def stages_html(found: "ByHand", tokens: Sequence[str]) -> Markup:
    """All stages side by side."""
    shown = [_table(name, columns, cells, tokens) for name, columns, cells in stages(found, tokens)]
    return tag("div", join([Markup(STYLE), *shown]), class_="stages")


def _table(name: str, columns: Sequence[str], cells: Sequence[Sequence[str]], tokens: Sequence[str]) -> Markup:
    rows = [
        [th(token), *(td(cell, "blocked" if cell == BLOCKED else "open") for cell in row)]
        for token, row in zip(tokens, cells, strict=True)
    ]
    return tag("figure", tag("figcaption", name) + table([[th(), *map(th, columns)], *rows], "stage"))


def _cells(numbers: np.ndarray) -> list[list[str]]:
    return [[rounded(float(one)) for one in row] for row in numbers]
