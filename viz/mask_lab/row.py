"""One query's row, number by number: from q·k to its weights, and the values that they sum. HTML, and a figure."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import say, together
from model.heads.row_steps import RowSteps
from viz.html import escaped, fixed, named, power_of_ten, shortened, tag
from viz.palette import NOW, STANDARD

MOST_KEYS = 48  # rows of the table
MOST_VALUES = 12  # keys whose values are drawn
VALUE_HEIGHT = 42  # pixels
BAR = {"number": "%{x}", "value": "%{y:.4f}"}  # for plotly


def steps_table(row: RowSteps) -> str:
    """HTML: every key of the row, or the heaviest and the rest together; below, what they add up to."""
    shown = row.heaviest(MOST_KEYS)
    body = "".join(_key_row(row, place) for place in shown)
    left = np.setdiff1d(np.arange(len(row.raw)), shown)
    span = 4 + (row.arithmetic.softcap is not None) + 2 * (row.bias is not None)  # columns before e^
    rest = ""
    if left.size:
        blocked = int((~row.free[left]).sum())
        words = (
            say("the other {count:,} keys, {blocked:,} of them blocked", count=left.size, blocked=blocked)
            if blocked
            else say("the other {count:,} keys", count=left.size)
        )
        rest = _sum_row(words, span, row.exp[left].sum(), row.weights[left].sum())
    sink = row.sink_exp / row.total if row.total else 0.0
    if row.sink is not None:
        words = say("the head's sink, a score of {score} without a key", score=fixed(row.sink, 4))
        rest += _sum_row(words, span, row.sink_exp, sink)
    total = _sum_row(tag("b", say("sum")), span, row.total, row.weights.sum() + sink)
    return f'<table class="numbers steps">{_table_head(row)}{body}{rest}{total}</table>'


def values_figure(row: RowSteps) -> go.Figure:
    """The heaviest keys' values, pale, and what each adds, weight × value; at the bottom the sum over all keys."""
    rows = [
        (_label(place, row.keys[place], row.weights[place]), row.values[place], row.weights[place] * row.values[place])
        for place in drawn_values(row)
    ]
    rows.append((tag("b", say("sum of all keys")), row.output, row.output))
    reach = max(float(np.abs([value for _, value, _ in rows]).max()), 1e-9) * 1.05
    height = VALUE_HEIGHT * len(rows) + 50
    margin = {"l": 8, "r": 8, "t": 4, "b": 46}
    figure = go.Figure(layout={"height": height, "margin": margin, "bargap": 0.15, "barmode": "overlay",
                               "showlegend": False, "hovermode": "closest"})  # fmt: skip
    for place, (label, value, added) in enumerate(rows):
        last = place == len(rows) - 1
        axis = str(place + 1) if place else ""
        if not last:
            _add_bars(figure, value, axis, STANDARD, 0.4, label, say("number {number}: value {value}", **BAR))
        words = say("number {number}: output {value}") if last else say("number {number}: weight × value {value}")
        _add_bars(figure, added, axis, NOW, 1.0, label, words.format(**BAR))
        figure.update_layout({"yaxis" + axis: _value_axis(label, reach, place, len(rows))})
    title = {"text": say("the head's {count} numbers", count=row.values.shape[1]), "font": {"size": 11}}
    bottom = "y" + (str(len(rows)) if len(rows) > 1 else "")
    figure.update_xaxes(anchor=bottom, title=title, showgrid=False, zeroline=False)
    return figure


def drawn_values(row: RowSteps) -> list[int]:
    """The keys whose values are drawn: the heaviest, never a blocked one."""
    return [int(place) for place in row.heaviest(MOST_VALUES) if row.free[place]]


def _value_axis(label: str, reach: float, place: int, count: int) -> dict[str, Any]:
    """One of `count` strips below each other, its label at its 0."""
    share = 1 / count
    domain = (max(1 - (place + 0.94) * share, 0.0), 1 - (place + 0.06) * share)
    return {
        "domain": domain,
        "range": [-reach, reach],
        "tickvals": [0],
        "ticktext": [label],
        "tickfont": {"size": 11},
        "showgrid": False,
        "zeroline": True,
        "zerolinewidth": 1,
        "zerolinecolor": "rgba(128,128,128,.5)",
        "fixedrange": True,
        "automargin": True,
        "anchor": "x",
    }


def steps_sentence(row: RowSteps) -> str:
    """HTML: what to notice in the row."""
    who = _name(row.query, row.position)
    blocked = int((~row.free).sum())
    if blocked == len(row.raw):
        words = [say("Every key of {query} is blocked: it attends to nothing, its weights are all 0 and its output is "
                     "0.", query=who)]  # fmt: skip
        words += [say("The sink takes everything.")] if row.sink is not None else []
        return f'<p class="sentence">{together(words)}</p>'
    heavy = int(row.weights.argmax())
    looks = say("{query} attends most to {key}, with a weight of {weight:.3f}: its score {score} is the largest "
                "unblocked one.", query=who, key=_name(row.keys[heavy], heavy), weight=row.weights[heavy],
                score=fixed(row.score[heavy], 2))  # fmt: skip
    return f'<p class="sentence">{looks} {_wrote_in_all(row, heavy, blocked)}</p>'


def _wrote_in_all(row: RowSteps, heavy: int, blocked: int) -> str:
    """What the mask did to the row, and who would lead without it. HTML."""
    if not blocked:
        return say("The mask blocks nothing here.")
    cells = {"count": blocked, "total": len(row.raw)}
    hidden = np.where(row.free, -np.inf, row.score)
    if hidden.max() <= row.score[heavy]:
        return say("The mask wrote −∞ into {count:,} of {total:,} cells.", **cells)
    other = int(hidden.argmax())
    return say("The mask wrote −∞ into {count:,} of {total:,} cells; without it {key} would lead with {score}.",
               **cells, key=_name(row.keys[other], other), score=fixed(row.score[other], 2))  # fmt: skip


def _name(token: str, position: int) -> Markup:
    return Markup(say("<b>{token}</b> (position {position})")).format(token=token, position=position)


def _table_head(row: RowSteps) -> str:
    columns = ["q·k", f"× {row.arithmetic.scale:.6g}"]
    if row.arithmetic.softcap is not None:
        columns.append(say("capped at ±{cap:g}", cap=row.arithmetic.softcap))
    columns += [say("bias"), say("score")] if row.bias is not None else []
    top = "max" if np.isneginf(row.top) else fixed(row.top, 4)
    numbers = "".join(f'<th class="number">{column}</th>' for column in columns)
    key, wrote, score, weight = say("key"), say("the mask wrote"), say("score"), say("weight")
    return (
        f"<tr><th>{key}</th>{numbers}<th>{wrote}</th>"
        f'<th class="number">e<sup>{score} − {top}</sup></th><th class="number">{weight}</th><th></th></tr>'
    )


def _key_row(row: RowSteps, place: int) -> str:
    numbers = [fixed(row.raw[place], 3), fixed(row.scaled[place], 4)]
    if row.arithmetic.softcap is not None:
        numbers.append(fixed(row.capped[place], 4))
    if row.bias is not None:
        numbers += [fixed(row.bias[place], 4), fixed(row.score[place], 4)]
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    bar = f'<div class="bar" style="width:{100 * row.weights[place]:.1f}%;background:{NOW}"></div>'
    return (
        f'<tr><td class="token">{place}: {escape(row.keys[place])}</td>{cells}<td>{_wrote(row, place)}</td>'
        f'<td class="number">{_share(row.exp[place])}</td><td class="number">{_share(row.weights[place])}</td>'
        f'<td class="track">{bar if row.free[place] else ""}</td></tr>'
    )


def _wrote(row: RowSteps, place: int) -> str:
    names = [name for name, mask in row.blocked.items() if mask[place]]
    if not names:
        return say("unchanged")
    return "−∞ " + " ".join(map(named, names))


def _sum_row(words: str, span: int, exp: float, weight: float) -> str:
    return (
        f'<tr><td colspan="{span}">{words}</td><td class="number">{_share(float(exp))}</td>'
        f'<td class="number">{_share(float(weight))}</td><td></td></tr>'
    )


def _share(value: float) -> str:
    """Six digits; "0" only for exactly 0; what six digits would show as 0 as a power of ten."""
    if value == 0:
        return "0"
    if value >= 5e-7:
        return f"{value:.6f}"
    return power_of_ten(value)


def _label(place: int, key: str, weight: float) -> str:
    share = f"{weight:.3f}" if weight >= 0.0005 else "&lt; 0.001"
    return f"{place}: {escaped(shortened(key, 12))} · {share}"


def _add_bars(
    figure: go.Figure, values: np.ndarray, axis: str, colour: str, opacity: float, label: str, words: str
) -> None:
    figure.add_bar(
        x=np.arange(len(values)),
        y=np.asarray(values, np.float32),
        yaxis="y" + axis,
        marker={"color": colour, "line": {"width": 0}},
        opacity=opacity,
        hovertemplate=f"{label}<br>{words}<extra></extra>",
    )
