"""What is written into blocked cells, and when the mask comes: what each way does to the weights. HTML tables."""

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import escape

from viz.formats import power_of_ten
from viz.numbers import percent

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.mask_lab.fills import Comparison, Result, RowFate

NOTICED = 1e-4  # a share of attention that the tables set in bold


def fills_table(found: "Comparison") -> str:
    """Every value in every precision, written before the softmax; at the end this program's own way."""
    head = (
        "<tr><th>written into blocked cells</th><th>precision</th><th>stands in the cell</th>"
        "<th>a fully blocked row becomes</th>"
        '<th class="number">on one blocked cell, at most</th><th class="number">on a row\'s blocked cells, at most</th>'
        '<th class="number">off the exact weights by</th></tr>'
    )
    body = "".join(_group(found, list(some)) for _, some in groupby(found.fills, key=lambda result: result.name))
    return f'<table class="numbers fills">{head}{body}{_group(found, [found.ours])}</table>'


def order_table(found: "Comparison") -> str:
    """Mask before the softmax against multiplying by it after."""
    head = (
        '<tr><th>the mask</th><th>precision</th><th class="number">rows sum to</th>'
        '<th class="number">off the exact weights by</th><th>a fully blocked row becomes</th></tr>'
    )
    before = [result for result in found.fills if result.name == found.fills[0].name]
    groups = [before, *(list(some) for _, some in groupby(found.after, key=lambda result: result.name))]
    names = [f"before the softmax: {found.fills[0].name}", *(f"after it: {some[0].name}" for some in groups[1:])]
    body = "".join(
        f"<tr>{_first(name, place, len(some))}<td>{result.dtype}</td>{_order_cells(result, found.keys)}</tr>"
        for name, some in zip(names, groups, strict=True)
        for place, result in enumerate(some)
    )
    return f'<table class="numbers fills">{head}{body}</table>'


def fills_sentence(found: "Comparison") -> str:
    """What to notice about the values."""
    plain = [result for result in found.fills if result.dtype == "float32"]
    parts = []
    nans = [result.name for result in plain if result.empty and result.empty.kind == "NaN"]
    spread = [result.name for result in plain if result.empty and result.empty.kind == "uniform"]
    if nans or spread:
        fates = [f"NaN with {_list(nans)}"] if nans else []
        fates += [f"attention spread evenly over all {found.keys:,} keys with {_list(spread)}"] if spread else []
        parts.append(f"A row whose every key is blocked becomes {', and '.join(fates)}; Unmask sets it to 0.")
    leaks = {result.name: result.damage.blocked_total for result in plain if result.damage}
    worst = max(leaks, key=lambda name: (leaks[name] == leaks[name], leaks[name]), default=None)  # NaN comes last
    if worst is not None and leaks[worst] > 0:
        share = percent(leaks[worst]).removeprefix("< ")
        parts.append(f"{worst} leaves at most {share} of a row's attention on cells that are blocked.")
    elif worst is not None and leaks[worst] == 0:
        parts.append("On this head none of them leaves any weight on a blocked cell in float32.")
    for dtype in dict.fromkeys(result.dtype for result in found.fills):
        refused = [result.name for result in found.fills if result.dtype == dtype and result.overflow]
        if refused:
            all_of_them = len(refused) == len(plain)
            parts.append(f"This head's scores do not fit {dtype}." if all_of_them else f"{_list(refused)} "
                         f"{'do' if len(refused) > 1 else 'does'} not fit {dtype}.")  # fmt: skip
    return f'<p class="sentence">{" ".join(parts)}</p>'


def order_sentence(found: "Comparison") -> str:
    """What to notice about the order."""
    lost, again = found.after[0], next(result for result in found.after if result.name != found.after[0].name)
    if lost.damage is None or again.damage is None or found.blocked == 0 or found.rows == 0:
        return ""
    words = (
        f"Multiplying by the mask after the softmax, a row keeps only {escape(percent(lost.damage.least_total))} of "
        "its attention: the blocked cells had taken their share already. "
    )
    if again.damage.nans:
        words += f"Made to sum to 1 again, {again.damage.nans:,} of {found.rows:,} rows are 0 / 0: nothing was left."
    else:
        words += (
            f"Made to sum to 1 again, the weights are off by {_small(again.damage.difference)} at the most"
            f"{_empty_again(again)}."
        )
    return f'<p class="sentence">{words}</p>'


def _empty_again(result: "Result") -> str:
    nan = result.empty is not None and result.empty.kind == "NaN"
    return ", but a row without a single allowed key is 0 / 0" if nan else ""


def _group(found: "Comparison", some: list["Result"]) -> str:
    own = some[0] is found.ours
    name = f"<b>Unmask</b>: {some[0].name}" if own else some[0].name
    return "".join(
        f"<tr>{_first(name, place, len(some))}<td>{result.dtype}</td>{_fill_cells(result, found.keys)}</tr>"
        for place, result in enumerate(some)
    )


def _first(name: str, place: int, rows: int) -> str:
    return f'<td rowspan="{rows}">{name}</td>' if place == 0 else ""


def _fill_cells(result: "Result", keys: int) -> str:
    if result.damage is None or result.empty is None:
        return f'<td colspan="5"><b>does not fit</b>: {escape(result.overflow or "")}</td>'
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
        return f'<td colspan="3"><b>does not fit</b>: {escape(result.overflow or "")}</td>'
    damage = result.damage
    sums = f"{damage.least_total:.4f} to {damage.most_total:.4f}" if damage.least_total == damage.least_total else "–"
    sums = f"<b>{sums}</b>" if damage.least_total < 0.98 else sums
    return (
        f'<td class="number">{sums}</td><td class="number">{_small(damage.difference)}{_broken(damage.nans)}</td>'
        f"<td>{_fate(result.empty, keys)}</td>"
    )


def _broken(rows: int) -> str:
    return f", <b>{rows:,} rows NaN</b>" if rows else ""


def _fate(row: "RowFate", keys: int) -> str:
    if row.kind == "NaN":
        return "<b>NaN</b>"
    if row.kind == "zero":
        return "0 everywhere"
    if row.kind == "uniform":
        return f"<b>uniform</b>: {row.largest:.4f} on each of {keys:,} keys"
    return f"<b>weights that sum to {row.total:.4f}</b>"


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


def _list(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
