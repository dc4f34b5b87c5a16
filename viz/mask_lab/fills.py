"""What is written into blocked cells, and when the mask comes: what each way does to the weights. HTML tables."""

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from i18n import N_, say, say_all, say_count, together
from viz.heads.cells import weight_text
from viz.html import join, power_of_ten, table, tag
from viz.numbers import percent

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.mask_lab.fills import Damage, FillComparison, Result, RowFate

NOTICED = 1e-4  # a share of attention that the tables set in bold


def fills_table(found: "FillComparison") -> str:
    """Every value in every precision, written before the softmax; at the end this program's own way."""
    titles = (say("written into blocked cells"), say("precision"), say("stands in the cell"),
              say("a fully blocked row becomes"))  # fmt: skip
    numbers = (say("on one blocked cell, at most"), say("on a row's blocked cells, at most"),
               say("largest error of a weight"))  # fmt: skip
    head = tag("tr", join([*(tag("th", one) for one in titles), *(tag("th", one, class_="number") for one in numbers)]))
    body = "".join(_group(found, list(some)) for _, some in groupby(found.fills, key=lambda result: result.name))
    return f'<table class="numbers fills">{head}{body}{_group(found, [found.ours])}</table>'


def order_table(found: "FillComparison") -> str:
    """Mask before the softmax against multiplying by it after."""
    numbers = (say("rows sum to"), say("largest error of a weight"))
    head = tag("tr", join([tag("th", say("the mask")), tag("th", say("precision")),
                           *(tag("th", one, class_="number") for one in numbers),
                           tag("th", say("a fully blocked row becomes"))]))  # fmt: skip
    before = [result for result in found.fills if result.name == found.fills[0].name]
    groups = [before, *(list(some) for _, some in groupby(found.after, key=lambda result: result.name))]
    names = [say("before the softmax: {way}", way=say(found.fills[0].name))]
    names += [say("after it: {way}", way=say(some[0].name)) for some in groups[1:]]
    body = "".join(
        f"<tr>{_first(name, place, len(some))}<td>{result.dtype}</td>{_order_cells(result, found.keys)}</tr>"
        for name, some in zip(names, groups, strict=True)
        for place, result in enumerate(some)
    )
    return f'<table class="numbers fills">{head}{body}</table>'


def fills_sentence(found: "FillComparison") -> str:
    """What to notice about the values."""
    plain = [result for result in found.fills if result.dtype == "float32"]
    parts = []
    nans = [result.name for result in plain if result.empty and result.empty.kind == "NaN"]
    spread = [result.name for result in plain if result.empty and result.empty.kind == "uniform"]
    keys = say_count("one key", "all {count} keys", found.keys)
    places = {"nans": say_all(nans), "spread": say_all(spread), "keys": keys}
    if nans and spread:
        parts.append(say("A fully blocked row becomes NaN with {nans}, and uniform attention over {keys} with "
                         "{spread}; Unmask sets it to 0.", **places))  # fmt: skip
    elif nans:
        parts.append(say("A fully blocked row becomes NaN with {nans}; Unmask sets it to 0.", **places))
    elif spread:
        parts.append(say("A fully blocked row becomes uniform attention over {keys} with {spread}; Unmask sets it to "
                         "0.", **places))  # fmt: skip
    leaks = {result.name: result.damage.blocked_total for result in plain if result.damage}
    worst = max(leaks, key=lambda name: (leaks[name] == leaks[name], leaks[name]), default=None)  # NaN comes last
    if worst is not None and leaks[worst] > 0:
        share = percent(leaks[worst]).removeprefix("< ")
        parts.append(say("{fill} leaves at most {share} of a row's attention on cells that are blocked.",
                         fill=worst, share=share))  # fmt: skip
    elif worst is not None and leaks[worst] == 0:
        parts.append(say("On this head none of them leaves any weight on a blocked cell in float32."))
    for dtype in dict.fromkeys(result.dtype for result in found.fills):
        refused = [result.name for result in found.fills if result.dtype == dtype and result.overflow]
        if refused:
            parts.append(
                say("This head's scores do not fit {dtype}.", dtype=dtype)
                if len(refused) == len(plain)
                else say_count("{fills} does not fit {dtype}.", "{fills} do not fit {dtype}.", len(refused),
                               fills=say_all(refused), dtype=dtype)
            )  # fmt: skip
    return f'<p class="sentence">{together(parts)}</p>'


def order_sentence(found: "FillComparison") -> str:
    """What to notice about the order."""
    lost, again = found.after[0], next(result for result in found.after if result.name != found.after[0].name)
    if lost.damage is None or again.damage is None or found.blocked == 0 or found.rows == 0:
        return ""
    first = say("Multiplying by the mask after the softmax, a row keeps only {share} of its attention: the blocked "
                "cells had taken their share already.", share=escape(percent(lost.damage.least_total)))  # fmt: skip
    return f'<p class="sentence">{first} {_made_whole(again, again.damage, found.rows)}</p>'


def _made_whole(again: "Result", damage: "Damage", rows: int) -> str:
    """What rows are that were multiplied and made to sum to 1."""
    if damage.nans:
        return say("Renormalised to sum to 1, {nans:,} of {rows:,} rows are 0 / 0: nothing was left.",
                   nans=damage.nans, rows=rows)  # fmt: skip
    off = _small(damage.difference)
    if again.empty is not None and again.empty.kind == "NaN":
        return say("Renormalised to sum to 1, the weights are off by at most {most}, but a row without a single "
                   "allowed key is 0 / 0.", most=off)  # fmt: skip
    return say("Renormalised to sum to 1, the weights are off by at most {most}.", most=off)


def _group(found: "FillComparison", some: list["Result"]) -> str:
    own = some[0] is found.ours
    name = f"<b>Unmask</b>: {say(some[0].name)}" if own else say(some[0].name)
    return "".join(
        f"<tr>{_first(name, place, len(some))}<td>{result.dtype}</td>{_fill_cells(result, found.keys)}</tr>"
        for place, result in enumerate(some)
    )


def _first(name: str, place: int, rows: int) -> str:
    return f'<td rowspan="{rows}">{name}</td>' if place == 0 else ""


def _fill_cells(result: "Result", keys: int) -> str:
    if result.damage is None or result.empty is None:
        return _does_not_fit(result, 5)
    damage = result.damage
    shares = "".join(
        f'<td class="number">{_leak(share)}</td>' for share in (damage.blocked_largest, damage.blocked_total)
    )
    return (
        f"<td>{_value(result.value)}</td><td>{_fate(result.empty, keys)}</td>{shares}"
        f'<td class="number">{_small(damage.difference)}{_broken(damage.nans)}</td>'
    )


def _order_cells(result: "Result", keys: int) -> str:
    if result.damage is None or result.empty is None:
        return _does_not_fit(result, 3)
    damage = result.damage
    least, most = damage.least_total, damage.most_total
    sums = say("{least:.4f} to {most:.4f}", least=least, most=most) if least == least else "–"
    sums = f"<b>{sums}</b>" if damage.least_total < 0.98 else sums
    return (
        f'<td class="number">{sums}</td><td class="number">{_small(damage.difference)}{_broken(damage.nans)}</td>'
        f"<td>{_fate(result.empty, keys)}</td>"
    )


def _does_not_fit(result: "Result", columns: int) -> Markup:
    words = Markup(say("<b>does not fit</b>: {problem}")).format(problem=result.overflow or "")
    return tag("td", words, colspan=columns)


def _broken(rows: int) -> str:
    return say(", <b>{rows:,} rows NaN</b>", rows=rows) if rows else ""


def _fate(row: "RowFate", keys: int) -> str:
    if row.kind == "NaN":
        return "<b>NaN</b>"
    if row.kind == "zero":
        return say("0 everywhere")
    if row.kind == "uniform":
        return say("<b>uniform</b>: {weight} on each of {keys:,} keys", weight=weight_text(row.largest), keys=keys)
    return say("<b>weights that sum to {total:.4f}</b>", total=row.total)


def _leak(share: float) -> str:
    said = escape(percent(share))
    return f"<b>{said}</b>" if share >= NOTICED else said


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
