"""One query's row, number by number: from q·k to its weights, and the values that they sum. HTML, and a figure."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import escape

from model.heads.row_steps import RowSteps
from viz.formats import fixed, power_of_ten
from viz.html import escaped
from viz.palette import MASK_COLOURS, NOW, STANDARD
from viz.signs import shortened

MOST_KEYS = 48  # rows of the table
MOST_VALUES = 12  # keys whose values are drawn
VALUE_HEIGHT = 42  # pixels


def steps_table(row: RowSteps) -> str:
    """HTML: every key of the row, or the heaviest and the rest together; below, what they add up to."""
    shown = row.heaviest(MOST_KEYS)
    body = "".join(_key_row(row, place) for place in shown)
    left = np.setdiff1d(np.arange(len(row.raw)), shown)
    span = 4 + (row.arithmetic.softcap is not None) + 2 * (row.bias is not None)  # columns before e^
    rest = ""
    if left.size:
        blocked = int((~row.free[left]).sum())
        words = f"the other {left.size:,} keys" + (f", {blocked:,} of them blocked" if blocked else "")
        rest = _sum_row(words, span, row.exp[left].sum(), row.weights[left].sum())
    sink = row.sink_exp / row.total if row.total else 0.0
    if row.sink is not None:
        rest += _sum_row(f"the head's sink, a score of {fixed(row.sink, 4)} that no key has", span, row.sink_exp, sink)
    total = _sum_row("<b>sum</b>", span, row.total, row.weights.sum() + sink)
    return f'<table class="numbers steps">{_table_head(row)}{body}{rest}{total}</table>'


def values_figure(row: RowSteps) -> go.Figure:
    """The heaviest keys' values, pale, and what each adds, weight × value; at the bottom the sum over all keys."""
    rows = [
        (_label(place, row.keys[place], row.weights[place]), row.values[place], row.weights[place] * row.values[place])
        for place in drawn_values(row)
    ]
    rows.append(("<b>sum of all keys</b>", row.output, row.output))
    reach = max(float(np.abs([value for _, value, _ in rows]).max()), 1e-9) * 1.05
    height = VALUE_HEIGHT * len(rows) + 50
    margin = {"l": 8, "r": 8, "t": 4, "b": 46}
    figure = go.Figure(layout={"height": height, "margin": margin, "bargap": 0.15, "barmode": "overlay",
                               "showlegend": False, "hovermode": "closest"})  # fmt: skip
    for place, (label, value, added) in enumerate(rows):
        last = place == len(rows) - 1
        axis = str(place + 1) if place else ""
        if not last:
            _add_bars(figure, value, axis, STANDARD, 0.4, f"{label}<br>number %{{x}}: value %{{y:.4f}}<extra></extra>")
        what = "output" if last else "weight × value"
        _add_bars(figure, added, axis, NOW, 1.0, f"{label}<br>number %{{x}}: {what} %{{y:.4f}}<extra></extra>")
        figure.update_layout({"yaxis" + axis: _value_axis(label, reach, place, len(rows))})
    title = {"text": f"the head's {row.values.shape[1]} numbers", "font": {"size": 11}}
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
    who = f"<b>{escape(row.query)}</b> (position {row.position})"
    blocked = int((~row.free).sum())
    if blocked == len(row.raw):
        words = f"Every key of {who} is blocked: it attends to nothing, its weights are all 0 and its output is 0."
        words += " The sink takes everything." if row.sink is not None else ""
        return f'<p class="sentence">{words}</p>'
    heavy = int(row.weights.argmax())
    words = (
        f"{who} looks most at <b>{escape(row.keys[heavy])}</b> (position {heavy}), with a weight of "
        f"{row.weights[heavy]:.3f}: its score {fixed(row.score[heavy], 2)} is the largest that is left. "
    )
    wrote = (
        f"The mask wrote −∞ into {blocked:,} of {len(row.raw):,} cells" if blocked else "The mask wrote nothing here"
    )
    hidden = np.where(row.free, -np.inf, row.score)
    if blocked and hidden.max() > row.score[heavy]:
        other = int(hidden.argmax())
        wrote += (
            f"; without it <b>{escape(row.keys[other])}</b> (position {other}) would lead "
            f"with {fixed(row.score[other], 2)}"
        )
    return f'<p class="sentence">{words}{wrote}.</p>'


def _table_head(row: RowSteps) -> str:
    columns = ["q·k", f"× {row.arithmetic.scale:.6g}"]
    if row.arithmetic.softcap is not None:
        columns.append(f"capped at ±{row.arithmetic.softcap:g}")
    columns += ["bias", "score"] if row.bias is not None else []
    top = "max" if np.isneginf(row.top) else fixed(row.top, 4)
    numbers = "".join(f'<th class="number">{column}</th>' for column in columns)
    return (
        f"<tr><th>key</th>{numbers}<th>the mask wrote</th>"
        f'<th class="number">e<sup>score − {top}</sup></th><th class="number">weight</th><th></th></tr>'
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
        return "unchanged"
    swatches = [f'<span class="swatch" style="background:{MASK_COLOURS[name]}"></span>{name}' for name in names]
    return "−∞ " + " ".join(swatches)


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


def _add_bars(figure: go.Figure, values: np.ndarray, axis: str, colour: str, opacity: float, words: str) -> None:
    figure.add_bar(
        x=np.arange(len(values)),
        y=np.asarray(values, np.float32),
        yaxis="y" + axis,
        marker={"color": colour, "line": {"width": 0}},
        opacity=opacity,
        hovertemplate=words,
    )
