"""What is written into blocked cells, and when the mask comes: what each way does to the weights. HTML tables."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from i18n import N_, say, say_all, say_count, together
from viz.heads.cells import weight_text
from viz.html import join, power_of_ten, say_one, table, tag, td, th
from viz.numbers import percent

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.mask_lab.fills import Damage, FillComparison, Result, RowFate

NOTICED = 1e-4  # a share of attention that the tables set in bold
EMPTY_ROWS = {  # whether some fills make them NaN, and some uniform
    (True, True): N_("A fully blocked row becomes NaN with {nans}, and uniform attention over {keys} with {spread}; "
                     "Unmask sets it to 0."),
    (True, False): N_("A fully blocked row becomes NaN with {nans}; Unmask sets it to 0."),
    (False, True): N_("A fully blocked row becomes uniform attention over {keys} with {spread}; Unmask sets it to 0."),
}  # fmt: skip
MULTIPLIED = N_(
    "Multiplying by the mask after the softmax, a row keeps only {share} of its attention: the blocked cells had taken "
    "their share already."
)
RENORMALISED = {  # which rows are 0 / 0
    "some": N_("Renormalised to sum to 1, {nans:,} of {rows:,} rows are 0 / 0: nothing was left."),
    "empty": N_("Renormalised to sum to 1, the weights are off by at most {most}, but a row without a single allowed "
                "key is 0 / 0."),
    "all": N_("Renormalised to sum to 1, the weights are off by at most {most}."),
}  # fmt: skip
FATES = {  # of a row that is blocked as a whole
    "NaN": "<b>NaN</b>",
    "zero": N_("0 everywhere"),
    "uniform": N_("<b>uniform</b>: {weight} on each of {keys:,} keys"),
    "sum": N_("<b>weights that sum to {total:.4f}</b>"),
}


def fills_table(found: "FillComparison") -> Markup:
    """Every value in every precision, written before the softmax; at the end this program's own way."""
    head = [
        th(say("written into blocked cells")),
        th(say("precision")),
        th(say("value in the cell")),
        th(say("a fully blocked row becomes")),
        th(say("on one blocked cell, at most"), "number"),
        th(say("on a row's blocked cells, at most"), "number"),
        th(say("largest error of a weight"), "number"),
    ]
    rows = [row for name, some in _by_name(found.fills) for row in _group(say(name), some, found.keys, _fill_cells)]
    own = join((tag("b", "Unmask"), f": {say(found.ours.name)}"))
    return table([head, *rows, *_group(own, [found.ours], found.keys, _fill_cells)], "numbers fills")  # not shown


def order_table(found: "FillComparison") -> Markup:
    """Mask before the softmax against multiplying by it after."""
    head = [
        th(say("the mask")),
        th(say("precision")),
        th(say("rows sum to"), "number"),
        th(say("largest error of a weight"), "number"),
        th(say("a fully blocked row becomes")),
    ]
    name, before = _by_name(found.fills)[0]
    rows = _group(say("before the softmax: {way}", way=say(name)), before, found.keys, _order_cells)
    for name, some in _by_name(found.after):
        rows += _group(say("after it: {way}", way=say(name)), some, found.keys, _order_cells)
    return table([head, *rows], "numbers fills")  # not shown


def fills_sentence(found: "FillComparison") -> str:
    """What to notice about the values."""
    plain = [result for result in found.fills if result.dtype == "float32"]
    parts = []
    nans = [result.name for result in plain if result.empty and result.empty.kind == "NaN"]
    spread = [result.name for result in plain if result.empty and result.empty.kind == "uniform"]
    keys = say_count("one key", "all {count} keys", found.keys)
    places = {"nans": say_all(nans), "spread": say_all(spread), "keys": keys}
    if nans or spread:
        parts.append(say_one(EMPTY_ROWS, (bool(nans), bool(spread)), **places))
    leaks = {result.name: result.damage.blocked_total for result in plain if result.damage}
    worst = max(leaks, key=lambda name: (leaks[name] == leaks[name], leaks[name]), default=None)  # NaN comes last
    if worst is not None and leaks[worst] > 0:
        share = percent(leaks[worst]).removeprefix("< ")
        leak = N_("{fill} leaves at most {share} of a row's attention on cells that are blocked.")
        parts.append(say(leak, fill=worst, share=share))
    elif worst is not None and leaks[worst] == 0:
        parts.append(say("On this head none of them leaves any weight on a blocked cell in float32."))
    for dtype in dict.fromkeys(result.dtype for result in found.fills):
        refused = [result.name for result in found.fills if result.dtype == dtype and result.overflow]
        if len(refused) == len(plain):
            parts.append(say("This head's scores do not fit {dtype}.", dtype=dtype))
        elif refused:
            about = {"fills": say_all(refused), "dtype": dtype}
            some = say_count("{fills} does not fit {dtype}.", "{fills} do not fit {dtype}.", len(refused), **about)
            parts.append(some)
    return f'<p class="sentence">{together(parts)}</p>'


def order_sentence(found: "FillComparison") -> str:
    """What to notice about the order."""
    lost, again = found.after[0], next(result for result in found.after if result.name != found.after[0].name)
    if lost.damage is None or again.damage is None or found.blocked == 0 or found.rows == 0:
        return ""
    share = escape(percent(lost.damage.least_total))
    return f'<p class="sentence">{say(MULTIPLIED, share=share)} {_made_whole(again, again.damage, found.rows)}</p>'


def _made_whole(again: "Result", damage: "Damage", rows: int) -> str:
    """What rows are that were multiplied and made to sum to 1."""
    empty = again.empty is not None and again.empty.kind == "NaN"
    kind = "some" if damage.nans else "empty" if empty else "all"
    return say_one(RENORMALISED, kind, nans=damage.nans, rows=rows, most=_small(damage.difference))


def _by_name(results: Iterable["Result"]) -> list[tuple[str, list["Result"]]]:
    return [(name, list(some)) for name, some in groupby(results, key=lambda result: result.name)]


def _group(name: str, some: list["Result"], keys: int, cells: Callable[..., list[Markup]]) -> list[list[Markup]]:
    """Rows of results that share the name in their first column."""
    first = [[td(name, rowspan=len(some))], *[[] for _ in some[1:]]]
    return [[*begin, td(one.dtype), *cells(one, keys)] for begin, one in zip(first, some, strict=True)]


def _fill_cells(result: "Result", keys: int) -> list[Markup]:
    damage = result.damage
    if damage is None or result.empty is None:
        return _does_not_fit(result, 5)
    shares = (damage.blocked_largest, damage.blocked_total)
    leaks = [td(tag("b", percent(share)) if share >= NOTICED else percent(share), "number") for share in shares]
    return [td(_value(result.value)), td(_fate(result.empty, keys)), *leaks, _error(damage)]


def _order_cells(result: "Result", keys: int) -> list[Markup]:
    damage = result.damage
    if damage is None or result.empty is None:
        return _does_not_fit(result, 3)
    least, most = damage.least_total, damage.most_total
    sums = say("{least:.4f} to {most:.4f}", least=least, most=most) if least == least else "–"
    return [td(tag("b", sums) if least < 0.98 else sums, "number"), _error(damage), td(_fate(result.empty, keys))]


def _does_not_fit(result: "Result", columns: int) -> list[Markup]:
    words = say("<b>does not fit</b>: {problem}", problem=escape(result.overflow or ""))
    return [td(Markup(words), colspan=columns)]


def _error(damage: "Damage") -> Markup:
    broken = Markup(say(", <b>{rows:,} rows NaN</b>", rows=damage.nans)) if damage.nans else ""
    return td(_small(damage.difference) + broken, "number")


def _fate(row: "RowFate", keys: int) -> Markup:
    places = {"weight": weight_text(row.largest), "keys": keys, "total": row.total}
    return Markup(say(FATES.get(row.kind, FATES["sum"]), **places))


def _value(value: float | None) -> str:
    """ "−3.4e38", "−∞", "−10"."""
    if value is None:
        return "–"
    if value == float("-inf"):
        return "−∞"
    digits, _, power = f"{value:.3g}".partition("e+")
    return (f"{value:.0f}" if abs(value) < 1e6 else f"{digits}e{int(power)}").replace("-", "−")


def _small(number: float) -> str:
    """Two digits: "0", "0.021", "8 × 10⁻⁸"; "–" for NaN."""
    if number != number:
        return "–"
    if number == 0 or number >= 1e-4:
        return f"{number:.2g}"
    return power_of_ten(number, 1)


def empty_rows_table(found: Mapping[str, Mapping[str, str]]) -> Markup:
    """What a query without an allowed key gets, by kernel and dtype."""
    dtypes = [*next(iter(found.values()))]
    rows = [[tag("th", say(name)) for name in (N_("kernel"), *dtypes)]]
    for kernel, outcomes in found.items():
        cells = [tag("td", say(outcomes[dtype]) or "–") for dtype in dtypes]
        rows.append([tag("td", say(kernel)), *cells])
    return table(rows, "numbers")
