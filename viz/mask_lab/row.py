"""One query's row, number by number: from q·k to its weights, and the values that they sum. HTML, and a figure."""

import numpy as np
from markupsafe import Markup

from i18n import N_, say, together
from model.heads.row_steps import RowSteps
from viz.charts import MARGIN, bars
from viz.heatmap import CachedFigure, Part, figure
from viz.html import escaped, filled, fixed, join, named, paragraph, power_of_ten, shortened, table, tag, td, th, track
from viz.palette import NOW, STANDARD

ALL_BLOCKED = N_("Every key of {query} is blocked: it attends to nothing, its weights are all 0 and its output is 0.")
LOOKS = N_(
    "{query} attends most to {key}, with a weight of {weight:.3f}: its score {score} is the largest unblocked one."
)
MOST_KEYS = 48  # rows of the table
MOST_VALUES = 12  # keys whose values are drawn
VALUE_HEIGHT = 42  # pixels
BAR = {"number": "%{x}", "value": "%{y:.4f}"}  # for plotly


def steps_table(row: RowSteps) -> Markup:
    """Every key of the row, or the heaviest and the rest together; below, what they add up to."""
    shown = row.heaviest(MOST_KEYS)
    rows = [_table_head(row), *(_key_row(row, place) for place in shown)]
    left = np.setdiff1d(np.arange(len(row.raw)), shown)
    span = 4 + (row.arithmetic.softcap is not None) + 2 * (row.bias is not None)  # columns before e^
    if left.size:
        blocked = int((~row.free[left]).sum())
        words = say("the other {count:,} keys, {blocked:,} of them blocked", count=left.size, blocked=blocked)
        rows.append(_sum_row(words, span, row.exp[left].sum(), row.weights[left].sum()))
    sink = row.sink_exp / row.total if row.total else 0.0
    if row.sink is not None:
        words = say("the head's sink, a score of {score} without a key", score=fixed(row.sink, 4))
        rows.append(_sum_row(words, span, row.sink_exp, sink))
    rows.append(_sum_row(tag("b", say("sum")), span, row.total, row.weights.sum() + sink))
    return table(rows, "numbers steps")  # not shown


def values_figure(row: RowSteps) -> CachedFigure:
    """The heaviest keys' values, pale, and what each adds, weight × value; at the bottom the sum over all keys."""
    places = drawn_values(row)
    labels = [_label(place, row.keys[place], row.weights[place]) for place in places]
    labels.append(tag("b", say("sum of all keys")))
    values = [row.values[place] for place in places]
    added = [*(row.weights[place] * row.values[place] for place in places), row.output]
    count = len(labels)
    reach = max(float(np.abs([*values, row.output]).max()), 1e-9) * 1.05
    names = [str(place + 1) if place else "" for place in range(count)]  # of axes
    traces: list[Part] = []
    for place, (axis, label) in enumerate(zip(names, labels, strict=True)):
        words = say("number {number}: output {value}", **BAR)
        if place < count - 1:
            traces.append(
                _bars(values[place], axis, STANDARD, 0.4, label, say("number {number}: value {value}", **BAR))
            )
            words = say("number {number}: weight × value {value}", **BAR)
        traces.append(_bars(added[place], axis, NOW, 1.0, label, words))
    title = {"text": say("the head's {count} numbers", count=row.values.shape[1]), "font": {"size": 11}}
    layout = {f"yaxis{axis}": _value_axis(labels[place], reach, place, count) for place, axis in enumerate(names)}
    layout["xaxis"] = {"anchor": "y" + names[-1], "title": title, "showgrid": False, "zeroline": False}
    look = {"height": VALUE_HEIGHT * count + 50, "margin": MARGIN | {"t": 4, "b": 46}, "showlegend": False}
    return figure(traces, layout | look | {"bargap": 0.15, "barmode": "overlay"})


def drawn_values(row: RowSteps) -> list[int]:
    """The keys whose values are drawn: the heaviest, never a blocked one."""
    return [int(place) for place in row.heaviest(MOST_VALUES) if row.free[place]]


def _value_axis(label: str, reach: float, place: int, count: int) -> Part:
    share = 1 / count
    domain = [max(1 - (place + 0.94) * share, 0.0), 1 - (place + 0.06) * share]
    ticks = {"tickvals": [0], "ticktext": [label], "tickfont": {"size": 11}, "automargin": True, "showgrid": False}
    zero = {"zeroline": True, "zerolinewidth": 1, "zerolinecolor": "rgba(128,128,128,.5)"}
    return ticks | zero | {"domain": domain, "range": [-reach, reach], "fixedrange": True, "anchor": "x"}


def steps_sentence(row: RowSteps) -> Markup:
    """What to notice in the row."""
    who = _name(row.query, row.position)
    if not row.free.any():
        words = [say(ALL_BLOCKED, query=who)]
        words += [say("The sink takes everything.")] if row.sink is not None else []
        return paragraph(Markup(together(words)))
    heavy, other = int(row.weights.argmax()), int(np.where(row.free, -np.inf, row.score).argmax())
    numbers = {"weight": row.weights[heavy], "score": fixed(row.score[heavy], 2)}
    words = [say(LOOKS, query=who, key=_name(row.keys[heavy], heavy), **numbers)]
    words.append(say("The mask wrote −∞ into {count:,} of {total:,} cells.", count=int((~row.free).sum()),
                     total=len(row.raw)))  # fmt: skip
    if not row.free[other] and row.score[other] > row.score[heavy]:
        leads = N_("Without it {key} would have the largest score, {score}.")
        words.append(say(leads, key=_name(row.keys[other], other), score=fixed(row.score[other], 2)))
    return paragraph(Markup(together(words)))


def _name(token: str, position: int) -> Markup:
    return filled(say("<b>{token}</b> (position {position})"), token=token, position=position)


def _table_head(row: RowSteps) -> list[Markup]:
    columns = ["q·k", f"× {row.arithmetic.scale:.6g}"]
    if row.arithmetic.softcap is not None:
        columns.append(say("capped at ±{cap:g}", cap=row.arithmetic.softcap))
    columns += [say("bias"), say("score")] if row.bias is not None else []
    top = "max" if np.isneginf(row.top) else fixed(row.top, 4)
    power = join(("e", tag("sup", say("score") + f" − {top}")))
    numbers = [th(column, "number") for column in columns]
    return [th(say("key")), *numbers, th(say("the mask wrote")), th(power, "number"), th(say("weight"), "number"), th()]


def _key_row(row: RowSteps, place: int) -> list[Markup]:
    numbers = [fixed(row.raw[place], 3), fixed(row.scaled[place], 4)]
    if row.arithmetic.softcap is not None:
        numbers.append(fixed(row.capped[place], 4))
    if row.bias is not None:
        numbers += [fixed(row.bias[place], 4), fixed(row.score[place], 4)]
    names = [named(name) for name, mask in row.blocked.items() if mask[place]]
    wrote = join(("−∞", *names), " ") if names else say("unchanged")
    cells = [td(f"{place}: {row.keys[place]}", "token"), *(td(number, "number") for number in numbers), td(wrote)]
    cells += [td(_share(row.exp[place]), "number"), td(_share(row.weights[place]), "number")]
    return [*cells, track(float(row.weights[place]), NOW) if row.free[place] else td("", "track")]


def _sum_row(words: str, span: int, exp: float, weight: float) -> list[Markup]:
    return [td(words, colspan=span), td(_share(float(exp)), "number"), td(_share(float(weight)), "number"), td()]


def _share(value: float) -> str:
    """Six digits; "0" only for exactly 0; what six digits would show as 0 as a power of ten."""
    return f"{value:.6f}" if value >= 5e-7 else power_of_ten(value) if value else "0"


def _label(place: int, key: str, weight: float) -> str:
    share = f"{weight:.3f}" if weight >= 0.0005 else "&lt; 0.001"
    return f"{place}: {escaped(shortened(key, 12))} · {share}"


def _bars(values: np.ndarray, axis: str, colour: str, opacity: float, label: str, words: str) -> Part:
    drawn = bars(np.arange(len(values)), values, label, f"{label}<br>{words}", colour)
    return drawn | {"yaxis": "y" + axis, "opacity": opacity}
