"""One head step by step: panels of all queries that zoom together; and the numbers of one query's row, from q·k to its
weights and the weighted sum of values.
"""

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from i18n import N_, say, together
from model.heads.view import HeadSteps, HeadView, RowSteps, blocked_by_any, coarser
from viz import heatmap
from viz.charts import MARGIN, bars, symmetric_colours
from viz.heatmap import heat
from viz.html import escaped, filled, fixed, join, named, paragraph, power_of_ten, shortened, table, tag, td, th, track
from viz.palette import NOW, STANDARD

HEIGHT = 780  # pixels
COLUMNS = ((0.0, 0.26), (0.36, 0.62), (0.72, 0.98))
ROWS = ((0.56, 1.0), (0.0, 0.44))
RAW, SCALED, MASKED, WEIGHTS, VALUES, OUTPUT = PANELS = ("", "2", "3", "4", "5", "6")  # axes, in reading order
WITH_BAR = (RAW, MASKED, OUTPUT)  # among signed panels; SCALED and VALUES share the next one's colours


def steps_figure(view: HeadSteps, *, dark: bool) -> go.Figure:
    """Draw raw, scaled and masked scores, weights, values and output; axes of the same quantity zoom together."""
    head = coarser(view.head)
    layout = _layout(head) | {
        "annotations": _titles(view) + [note for axis in (MASKED, WEIGHTS) for note in heatmap.empty_notes(head, axis)],
        "shapes": heatmap.frames(head, view.row.position, RAW, SCALED, MASKED, WEIGHTS, OUTPUT),
        "images": [
            image for axis in (MASKED, WEIGHTS) for image in heatmap.hatching(head.blocked, dark=dark, axis=axis)
        ],
    }
    weights = heatmap.weights_trace(head, heatmap.colour_range(view.head.weights), WEIGHTS, **_where(WEIGHTS))
    pictures = [*_scores(view, head, dark), *heatmap.blocked_traces(head, WEIGHTS), weights, *_values(view, head, dark)]
    return heatmap.figure(pictures, layout)


def _scores(view: HeadSteps, head: HeadView, dark: bool) -> list[heatmap.Part]:
    """Return traces of raw, scaled and masked scores; the last two share a colour scale."""
    names = heatmap.axis_names(head)
    raw = largest(view.raw, head.step, head.step)
    left = largest(np.where(view.head.any_blocked(), -np.inf, view.head.scaled), head.step, head.step)
    reach = _reach_of(head.scaled)
    masked = _signed(np.where(head.any_blocked(), np.nan, left), names, MASKED, say("masked score"), reach, dark)
    return [
        _signed(raw, names, RAW, "q·k", _reach_of(raw), dark),
        _signed(head.scaled, names, SCALED, say("score"), reach, dark),
        *heatmap.blocked_traces(head, MASKED),
        masked,
    ]


def _values(view: HeadSteps, head: HeadView, dark: bool) -> list[heatmap.Part]:
    """Return traces of the keys' values and of every query's weighted sum, on one colour scale."""
    numbers = [say("number {number}", number=number) for number in range(view.values.shape[1])]
    reach = max(_reach_of(view.values), _reach_of(view.output))
    names = heatmap.axis_names(head)
    return [
        _signed(largest(z, head.step, 1), {"x": numbers, "y": rows}, axis, what, reach, dark)
        for axis, what, z, rows in (
            (VALUES, say("value"), view.values, names["x"]),
            (OUTPUT, say("output"), view.output, names["y"]),
        )
    ]


def _signed(z: np.ndarray, names: dict[str, list[str]], axis: str, what: str, reach: float, dark: bool) -> heatmap.Part:
    """Return the trace of a panel of signed numbers."""
    numbers = heat(z, names["x"], names["y"], what, f"<b>%{{y}}</b>, <b>%{{x}}</b><br>{what} %{{z:.4f}}", axis)
    bar = {"showscale": axis in WITH_BAR, "colorbar": heatmap.colour_bar("", **_where(axis))}
    return numbers | symmetric_colours(reach, dark) | bar


def _layout(head: HeadView) -> heatmap.Part:
    """Return the layout of two rows of three panels; axes of queries, keys and a value's D numbers zoom together."""
    layout: heatmap.Part = {"height": HEIGHT, "margin": {"l": 8, "r": 8, "t": 64, "b": 8}}
    for axis in PANELS:
        layout |= heatmap.axes(head, axis, tokens=False)
        layout[f"xaxis{axis}"]["domain"], layout[f"yaxis{axis}"]["domain"] = _domain(axis)
    for axis, keys in ((SCALED, ""), (MASKED, ""), (WEIGHTS, ""), (OUTPUT, VALUES)):
        layout[f"xaxis{axis}"]["matches"] = "x" + keys
        layout[f"yaxis{axis}"]["matches"] = "y"
    labels = {"showticklabels": True, "tickfont": {"size": 9}, "automargin": True}
    for name, text in (
        ("yaxis", heatmap.QUERY_TITLE),
        (f"yaxis{WEIGHTS}", heatmap.QUERY_TITLE),
        (f"xaxis{WEIGHTS}", heatmap.KEY_TITLE),
    ):
        turned = {"tickangle": -90} if name.startswith("x") else {}
        layout[name] |= labels | turned | {"title": {"text": say(text), "font": {"size": 11}}}
    for axis in (VALUES, OUTPUT):
        layout[f"xaxis{axis}"]["title"] = {"text": say("the head's numbers"), "font": {"size": 11}}
    return layout


def _titles(view: HeadSteps) -> list[heatmap.Part]:
    titles = (
        (say("1 raw"), "q·k"),
        (say("2 scaled"), view.row.arithmetic.formula()),
        (say("3 masked"), say("−∞ where blocked")),
        (say("4 weights"), f"softmax: {view.row.arithmetic.softmax()}"),
        (say("the keys' values"), say("v, a row for each key")),
        (say("5 output"), say("Σ weight × v")),
    )
    corners = [(columns[0], rows[1] + 0.005) for columns, rows in map(_domain, PANELS)]
    return [
        heatmap.title(f"<b>{name}</b><br>{formula}", *corner)
        for corner, (name, formula) in zip(corners, titles, strict=True)
    ]


def _domain(axis: str) -> tuple[tuple[float, float], tuple[float, float]]:
    number = PANELS.index(axis)
    return COLUMNS[number % 3], ROWS[number // 3]


def _where(axis: str) -> heatmap.Part:
    """Return the position and the style of a panel's colour bar."""
    columns, (low, high) = _domain(axis)
    where = {"x": columns[1] + 0.003, "xanchor": "left", "y": high, "yanchor": "top", "len": high - low, "ypad": 0}
    return where | {"title": "", "tickfont": {"size": 9}, "nticks": 6, "xpad": 2}


def largest(values: np.ndarray, down: int, across: int) -> np.ndarray:
    """Reduce [R,C] to the largest value of each patch of down × across."""
    rows, columns = (range(0, size, step) for size, step in zip(values.shape, (down, across), strict=True))
    return np.maximum.reduceat(np.maximum.reduceat(values, rows, 0), columns, 1)


def _reach_of(values: np.ndarray) -> float:
    """Return the largest finite absolute value, for a colour range around 0."""
    return max(float(np.abs(values[np.isfinite(values)]).max(initial=0.0)), 1e-6)


ALL_BLOCKED = N_("Every key of {query} is blocked: it attends to nothing, its weights are all 0 and its output is 0.")
LOOKS = N_(
    "{query} attends most to {key}, with a weight of {weight:.3f}: its score {score} is the largest unblocked one."
)
MAX_KEYS = 48  # rows of the table
MAX_VALUES = 12  # keys whose values are drawn
VALUE_HEIGHT = 42  # pixels
BAR = {"number": "%{x}", "value": "%{y:.4f}"}  # plotly's placeholders in a tooltip


def steps_table(row: RowSteps) -> Markup:
    """Return a table of the row's keys, or of those with the largest weights and the rest together; below, the sums."""
    shown = row.heaviest(MAX_KEYS)
    rows = [_table_head(row), *(_key_row(row, key) for key in shown)]
    left = np.setdiff1d(np.arange(len(row.raw)), shown)
    span = 4 + (row.arithmetic.softcap is not None) + 2 * (row.bias is not None)  # columns before e^
    if left.size:
        blocked = int((~row.free[left]).sum())
        words = say("all other keys ({count:,}; blocked: {blocked:,})", count=left.size, blocked=blocked)
        rows.append(_sum_row(words, span, row.exp[left].sum(), row.weights[left].sum()))
    sink = row.sink_exp / row.total if row.total else 0.0
    if row.sink is not None:
        words = say("the head's sink, a score of {score} without a key", score=fixed(row.sink, 4))
        rows.append(_sum_row(words, span, row.sink_exp, sink))
    rows.append(_sum_row(tag("b", say("sum")), span, row.total, row.weights.sum() + sink))
    return table(rows, "numbers steps")  # not shown


def values_figure(row: RowSteps) -> heatmap.CachedFigure:
    """Draw the values (pale) and weight × value of the keys with the largest weights; below, the sum over all keys."""
    keys = drawn_values(row)
    labels = [_label(key, row.keys[key], row.weights[key]) for key in keys]
    labels.append(tag("b", say("sum of all keys")))
    values = [row.values[key] for key in keys]
    added = [*(row.weights[key] * row.values[key] for key in keys), row.output]
    count = len(labels)
    reach = max(float(np.abs([*values, row.output]).max()), 1e-9) * 1.05
    axes = [str(number + 1) if number else "" for number in range(count)]
    traces: list[heatmap.Part] = []
    for number, (axis, label) in enumerate(zip(axes, labels, strict=True)):
        words, name = say("number {number}: output {value}", **BAR), label
        if number < count - 1:
            words, name = say("number {number}: value {value}", **BAR), say("{key}: value", key=label)
            traces.append(_bars(values[number], axis, STANDARD, 0.4, name, f"{label}<br>{words}"))
            words, name = say("number {number}: weight × value {value}", **BAR), say("{key}: weight × value", key=label)
        traces.append(_bars(added[number], axis, NOW, 1.0, name, f"{label}<br>{words}"))
    title = {"text": say("the head's {count} numbers", count=row.values.shape[1]), "font": {"size": 11}}
    layout: heatmap.Part = {"xaxis": {"anchor": "y" + axes[-1], "title": title, "showgrid": False, "zeroline": False}}
    plain = {"tickvals": [0], "tickfont": {"size": 11}, "automargin": True, "showgrid": False, "anchor": "x"}
    plain |= {"zeroline": True, "zerolinewidth": 1, "zerolinecolor": "rgba(128,128,128,.5)"}
    plain |= {"range": [-reach, reach], "fixedrange": True}
    for number, (axis, label) in enumerate(zip(axes, labels, strict=True)):
        domain = [max(1 - (number + 0.94) / count, 0.0), 1 - (number + 0.06) / count]
        layout[f"yaxis{axis}"] = plain | {"ticktext": [label], "domain": domain}
    look = {"height": VALUE_HEIGHT * count + 50, "margin": MARGIN | {"t": 4, "b": 46}, "showlegend": False}
    return heatmap.figure(traces, layout | look | {"bargap": 0.15, "barmode": "overlay"})


def drawn_values(row: RowSteps) -> list[int]:
    """Return the keys whose values are drawn: those with the largest weights, without blocked ones."""
    return [int(key) for key in row.heaviest(MAX_VALUES) if row.free[key]]


def steps_sentence(row: RowSteps) -> Markup:
    """Say which key has the largest weight, and what the mask blocked in the row."""
    who = _name(row.query, row.position)
    if not row.free.any():
        words = [say(ALL_BLOCKED, query=who)]
        words += [say("The sink takes everything.")] if row.sink is not None else []
        return paragraph(Markup(together(words)))
    heavy, other = int(row.weights.argmax()), int(np.where(row.free, -np.inf, row.score).argmax())
    numbers = {"weight": row.weights[heavy], "score": fixed(row.score[heavy], 2)}
    words = [say(LOOKS, query=who, key=_name(row.keys[heavy], heavy), **numbers)]
    wrote = int(blocked_by_any(row.blocked, row.raw.shape).sum())
    words.append(say("The mask wrote −∞ into {count:,} of {total:,} cells.", count=wrote, total=len(row.raw)))
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


def _key_row(row: RowSteps, key: int) -> list[Markup]:
    numbers = [fixed(row.raw[key], 3), fixed(row.scaled[key], 4)]
    if row.arithmetic.softcap is not None:
        numbers.append(fixed(row.capped[key], 4))
    if row.bias is not None:
        numbers += [fixed(row.bias[key], 4), fixed(row.score[key], 4)]
    names = [named(name) for name, mask in row.blocked.items() if mask[key]]
    wrote = join(("−∞", *names), " ") if names else say("unchanged")
    cells = [td(f"{key}: {row.keys[key]}", "token"), *(td(number, "number") for number in numbers), td(wrote)]
    cells += [td(_share(row.exp[key]), "number"), td(_share(row.weights[key]), "number")]
    return [*cells, track(float(row.weights[key]), NOW) if row.free[key] else td("", "track")]


def _sum_row(words: str, span: int, exp: float, weight: float) -> list[Markup]:
    return [td(words, colspan=span), td(_share(float(exp)), "number"), td(_share(float(weight)), "number"), td()]


def _share(value: float) -> str:
    """Write a share with six digits, or as a power of ten if these would be zeros, and as "0" only if exactly 0."""
    return f"{value:.6f}" if value >= 5e-7 else power_of_ten(value) if value else "0"


def _label(key: int, token: str, weight: float) -> str:
    share = f"{weight:.3f}" if weight >= 0.0005 else "&lt; 0.001"
    return f"{key}: {escaped(shortened(token, 12))} · {share}"


def _bars(values: np.ndarray, axis: str, colour: str, opacity: float, name: str, words: str) -> heatmap.Part:
    drawn = bars(np.arange(len(values)), values, name, words, colour)
    return drawn | {"yaxis": "y" + axis, "opacity": opacity}
