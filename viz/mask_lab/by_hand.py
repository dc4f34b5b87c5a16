"""A head small enough for pen and paper, by stages; and how weights depend on the value written into blocked cells,
and on masking before or after the softmax. HTML tables; rows are queries, columns are keys.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_count, together, translated
from viz.heads.cells import weight_text
from viz.html import headings, join, paragraph, rounded, table, tag, td, th
from viz.numbers import number, percent

if TYPE_CHECKING:  # this module imports torch, which pictures do without
    from model.mask_lab.fills import EmptyRowResult, FillComparison, Result, WeightDeviation, WorkedExample


BLOCKED = "−∞"
STYLE = """<style>
  .stages { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
  .stages figure { margin: 0; } .stages figcaption { font-weight: 600; margin-bottom: .2rem; }
  .stages table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  .stages :is(td, th) { padding: .25rem .6rem; border: 1px solid rgba(128,128,128,.35); text-align: right; }
  .stages th { font-weight: 600; } .stages td.blocked { background: rgba(230,159,0,.25); }
</style>"""


def stages(found: "WorkedExample", tokens: Sequence[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return (name, columns, cells) of every stage, with a row for each token; blocked scores are BLOCKED."""
    masked = np.where(found.allowed, found.scaled, -np.inf)
    columns, sums = list(tokens), [[rounded(one)] for one in found.sums]
    both = [[*map(rounded, row), *total] for row, total in zip(found.exp, sums, strict=True)]
    return [
        ("1  q·k", columns, _cells(found.raw)),
        ("2  q·k / √2", columns, _cells(found.scaled)),
        (say("3  mask"), columns, _cells(masked)),
        (say("4  e^score"), [*columns, say("sum")], both),
        (say("5  weight = e^score / sum"), columns, _cells(found.weights)),
        (say("6  output = Σ weight · v"), ["1", "2"], _cells(found.output)),
    ]


def stages_html(found: "WorkedExample", tokens: Sequence[str]) -> Markup:
    """Return all stages side by side, as HTML."""
    parts = [Markup(STYLE)]
    for name, columns, cells in stages(found, tokens):
        rows = [[th(), *map(th, columns)]]
        for token, row in zip(tokens, cells, strict=True):
            rows.append([th(token), *(td(cell, "blocked" if cell == BLOCKED else "open") for cell in row)])
        parts.append(tag("figure", tag("figcaption", name) + table(rows, "stage")))
    return tag("div", join(parts), class_="stages")


def _cells(numbers: np.ndarray) -> list[list[str]]:
    return [[rounded(float(one)) for one in row] for row in numbers]


NOTICED = 1e-4  # shares of attention on blocked cells from this size on are bold in the tables
FULLY_BLOCKED, LARGEST_ERROR = N_("a fully blocked row becomes"), N_("largest error of a weight")
EMPTY_ROWS = N_(
    "A fully blocked row becomes NaN with: {nans}; uniform attention over all {keys} keys with: {spread}. Unmask sets "
    "it to 0."
)
MIN_TAKEN = 1e-3  # the smallest share taken by blocked cells that a sentence reports
MULTIPLIED = N_(
    "If you multiply by the mask after the softmax, a row keeps only {share} of its attention: the blocked cells "
    "have already taken their share."
)
BESIDE_A_SINK = N_(
    "Masked before the softmax, a row keeps {least} to {most} of its attention beside its sink; multiplied by the mask "
    "after it, {less} to {more}: the blocked cells have taken a share too."
)
RENORMALISED = N_(
    "Renormalized to sum to 1, the weights are off by at most {most}; a row where nothing is left is 0 / 0 "
    "({nans:,} of {rows:,} rows here)."
)
WHOLE = 0.98  # a smaller sum is not a rounded 1
OF_THE_ROW = N_("{fill} ({share} in all)")
EMPTY_ROW_TEXTS = {  # kind of EmptyRowResult -> what a fully blocked row becomes
    "NaN": "<b>NaN</b>",
    "zero": N_("0 everywhere"),
    "uniform": N_("<b>uniform</b>: {weight} on every key ({keys:,})"),
    "part": N_("<b>uniform</b>: {share} on every key ({keys:,}), {sum} in all"),  # the rest goes to the head's sink
    "sum": N_("<b>weights that sum to {total:.4f}</b>"),
}


def fills_table(found: "FillComparison") -> Markup:
    """Return a table of values written before the softmax, in each precision; the last row is Unmask's own method."""
    words = (N_("written into blocked cells"), N_("precision"), N_("value in the cell"), FULLY_BLOCKED)
    numbers = (N_("on one blocked cell, at most"), N_("on a row's blocked cells, at most"), LARGEST_ERROR)
    rows = [row for name, some in _by_name(found.fills) for row in _rows(say(name), some, found.keys, 5, _fill_cells)]
    own = join((tag("b", "Unmask"), f": {say(found.ours.name)}"))
    rows += _rows(own, [found.ours], found.keys, 5, _fill_cells)
    return table([headings(map(say, words), map(say, numbers)), *rows], "numbers fills")  # not shown


def order_table(found: "FillComparison") -> Markup:
    """Return a table that compares masking before the softmax with multiplying by the mask after it."""
    titles = headings((say("the mask"), say("precision")), (say("rows sum to"), say(LARGEST_ERROR)))
    head = [*titles, th(say(FULLY_BLOCKED))]
    name, before = _by_name(found.fills)[0]
    rows = _rows(say("before the softmax: {way}", way=say(name)), before, found.keys, 3, _order_cells)
    for name, some in _by_name(found.after):
        rows += _rows(say("after it: {way}", way=say(name)), some, found.keys, 3, _order_cells)
    return table([head, *rows], "numbers fills")  # not shown


def fills_sentence(found: "FillComparison") -> Markup:
    """Say what to notice about the values written into blocked cells."""
    plain = [result for result in found.fills if result.dtype == "float32"]
    nans, spread = (
        listed(
            _fill_with_share(result.name, result.empty)
            for result in plain
            if result.empty and result.empty.kind == kind
        )
        for kind in ("NaN", "uniform")
    )
    parts = []
    if nans or spread:
        parts.append(say(EMPTY_ROWS, nans=nans or say("none"), spread=spread or say("none"), keys=found.keys))
    leaks = {result.name: result.damage.blocked_total for result in plain if result.damage}
    worst = max(leaks, key=lambda name: (leaks[name] == leaks[name], leaks[name]), default=None)  # NaN never wins
    if worst is not None and leaks[worst] == leaks[worst]:
        leak = N_("Largest share of a row's attention on blocked cells in float32: {share}, with {fill}.")
        parts.append(say(leak, fill=worst, share=percent(leaks[worst])))
    for dtype in dict.fromkeys(result.dtype for result in found.fills):
        refused = listed(result.name for result in found.fills if result.dtype == dtype and result.overflow)
        parts += [say("What does not fit {dtype}: {fills}.", fills=refused, dtype=dtype)] if refused else []
    return paragraph(together(parts))


def _fill_with_share(name: str, empty: "EmptyRowResult") -> str:
    """Return a fill's name and, if a sink takes a share of the fully blocked row, the share left for its keys."""
    return say(OF_THE_ROW, fill=name, share=percent(empty.total)) if empty.total < WHOLE else name


def order_sentence(found: "FillComparison") -> Markup:
    """Say what to notice about the order of mask and softmax."""
    lost, again = found.after[0], next(result for result in found.after if result.name != found.after[0].name)
    before, after = found.ours.damage, lost.damage
    if before is None or after is None or again.damage is None or found.blocked == 0 or found.rows == 0:
        return Markup()
    whole = say(RENORMALISED, nans=again.damage.nans, rows=found.rows, most=_small(again.damage.difference))
    if max(before.least_total - after.least_total, before.most_total - after.most_total) < MIN_TAKEN:
        return paragraph(whole)
    left = dict(zip(("less", "more"), map(percent, (after.least_total, after.most_total)), strict=True))
    sentence = say(MULTIPLIED, share=left["less"])
    if found.has_sink:
        right = map(percent, (before.least_total, before.most_total))
        sentence = say(BESIDE_A_SINK, **left, **dict(zip(("least", "most"), right, strict=True)))
    return paragraph(together([sentence, whole]))


def _by_name(results: Iterable["Result"]) -> list[tuple[str, list["Result"]]]:
    return [(name, list(some)) for name, some in groupby(results, key=lambda result: result.name)]


def _rows(
    name: str, some: list["Result"], keys: int, columns: int, cells: Callable[..., list[Markup]]
) -> list[list[Markup]]:
    """Return the rows of results that share `name`. cells: a function that makes the `columns` cells after the
    precision."""
    rows: list[list[Markup]] = []
    for one in some:
        begin = [*([] if rows else [td(name, rowspan=len(some))]), td(one.dtype)]
        damage, empty = one.damage, one.empty
        if damage is None or empty is None:
            words = say("<b>does not fit</b>: {problem}", problem=escape(translated(one.overflow)))
            rows.append([*begin, td(Markup(words), colspan=columns)])
            continue
        kind = "part" if empty.kind == "uniform" and empty.total < WHOLE else empty.kind
        values = {"weight": weight_text(empty.largest), "keys": keys, "total": empty.total}
        values |= {"share": escape(percent(empty.largest)), "sum": escape(percent(empty.total))}
        fate = td(Markup(say(EMPTY_ROW_TEXTS.get(kind, EMPTY_ROW_TEXTS["sum"]), **values)))
        nans = say_count(", <b>{count} row NaN</b>", ", <b>{count} rows NaN</b>", damage.nans)
        error = td(_small(damage.difference) + (Markup(nans) if damage.nans else ""), "number")
        rows.append([*begin, *cells(one.value, damage, fate, error)])
    return rows


def _fill_cells(value: float | None, damage: "WeightDeviation", fate: Markup, error: Markup) -> list[Markup]:
    shares = (damage.blocked_largest, damage.blocked_total)
    leaks = [td(tag("b", percent(share)) if share >= NOTICED else percent(share), "number") for share in shares]
    return [td(_value(value)), fate, *leaks, error]


def _order_cells(_: float | None, damage: "WeightDeviation", fate: Markup, error: Markup) -> list[Markup]:
    least, most = damage.least_total, damage.most_total
    sums = say("{least:.4f} to {most:.4f}", least=least, most=most) if least == least else "–"
    return [td(tag("b", sums) if least < WHOLE else sums, "number"), error, fate]


def _value(value: float | None) -> str:
    """Write a value of blocked cells: "−3.4e38", "−∞", "−10"; "–" for none."""
    if value is None:
        return "–"
    if value == float("-inf"):
        return "−∞"
    digits, _, power = f"{value:.3g}".partition("e+")
    return (f"{value:.0f}" if abs(value) < 1e6 else f"{digits}e{int(power)}").replace("-", "−")


def _small(value: float) -> str:
    return "–" if value != value else number(value)


def empty_rows_table(found: Mapping[str, Mapping[str, str]]) -> Markup:
    """Return a table of the output of a query without an allowed key, by kernel and dtype."""
    dtypes = [*next(iter(found.values()))]
    rows = [[td(say(kernel)), *(td(say(outcomes[one]) or "–") for one in dtypes)] for kernel, outcomes in found.items()]
    return table([headings(map(say, (N_("kernel"), *dtypes))), *rows])
