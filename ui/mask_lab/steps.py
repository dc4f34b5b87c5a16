"""The section of the Mask Lab that goes through one head step by step."""

import numpy as np
import streamlit as st

from model.heads.head_steps import head_steps
from model.heads.row_steps import RowSteps
from ui import page
from ui.run_view import RunView
from viz.mask_lab.row import MOST_KEYS, drawn_values, steps_sentence, steps_table, values_figure
from viz.mask_lab.steps import MOST_CELLS, StepsView, steps_figure
from viz.numbers import percent


def show(now: RunView, layer: int, head: int, chosen: int) -> None:
    """Five steps for all queries, and all numbers of the one that the reader picks."""
    view, row = _views(now, layer, head, chosen)
    st.html(steps_sentence(row))
    alt = _alt(view, row, now.name(layer, head))
    st.plotly_chart(steps_figure(view, dark=page.is_dark()), key="steps_figure", config=page.CHART, alt=alt)
    st.html(f'<p class="key">{_key(view)}</p>')
    numbers, values = st.columns([1.7, 1], gap="medium")
    numbers.html(steps_table(row) + f'<p class="key">{_about_the_table(row)}</p>')
    with values:
        st.html(f'<p class="key">{_about_the_values(row)}</p>')
        st.plotly_chart(values_figure(row), key="values_figure", config=page.CHART, alt=_values_alt(row))


def _views(now: RunView, layer: int, head: int, chosen: int) -> tuple[StepsView, RowSteps]:
    """The whole head, and the chosen query's row."""
    found = now.ask(head_steps, layer, head, chosen)
    view = now.drawn(found.head)
    return StepsView(view, found.raw, found.values, found.output, found.row.arithmetic, chosen), found.row


def _key(view: StepsView) -> str:
    parts = ["Scores, values and output: blue is below 0, red above. Zoom in one panel and the others follow."]
    longest = max(view.raw.shape)
    if longest > MOST_CELLS:
        step = -(-longest // MOST_CELLS)
        parts.append(f"{longest:,} tokens are too many for a screen: each cell is the largest of {step} × {step}.")
    return " ".join(parts)


def _about_the_table(row: RowSteps) -> str:
    parts = ["The largest score that is left is taken off before the exponential, so that nothing overflows."]
    parts.append("A weight is its e^… divided by the sum. Shown rounded, summed unrounded.")
    if row.arithmetic.softcap is not None:
        cap = f"{row.arithmetic.softcap:g}"
        parts.append(f"This model caps its scores: {cap}·tanh(score / {cap}).")
    if row.bias is not None:
        parts.append("This model adds a bias of its own to the scores: the column beside them has it.")
        if np.isneginf(row.bias).any():
            parts.append("Where it is −∞ the model chose not to look, whatever the masks allow.")
    if row.sink is not None:
        parts.append("The sink takes part in the sum and has no value: the keys' weights sum to less than 1.")
    if len(row.raw) > MOST_KEYS:
        parts.append(f"Of {len(row.raw):,} keys the {MOST_KEYS} heaviest are listed.")
    return " ".join(parts)


def _about_the_values(row: RowSteps) -> str:
    drawn = drawn_values(row)
    if not drawn:
        return "Nothing is added: the output is 0."
    free = int(row.free.sum())
    which = "every key that is not blocked"
    if len(drawn) < free:
        share = percent(float(row.weights[drawn].sum()))
        which = f"the {len(drawn)} heaviest of {free:,} keys that are not blocked ({share} of the weight)"
    return f"Pale: the value v of {which}. Red: weight × value, what it adds. Below: the sum over all keys."


def _alt(view: StepsView, row: RowSteps, name: str) -> str:
    queries, keys = view.raw.shape
    raw, scaled = (f"from {scores.min():.2f} to {scores.max():.2f}" for scores in (view.raw, view.head.scaled))
    return (
        f"{name} step by step, {queries} queries by {keys} keys: q·k {raw}, scaled {scaled}, "
        f"{int(view.head.any_blocked().sum()):,} cells blocked, weights up to {view.head.weights.max():.3f}, the keys' "
        f"values, and for each query an output of {view.values.shape[1]} numbers. "
        f"Query {row.position} ({row.query}) is framed."
    )


def _values_alt(row: RowSteps) -> str:
    drawn = drawn_values(row)
    heavy = ", ".join(f"{row.keys[place]} {row.weights[place]:.3f}" for place in drawn)
    return f"Bars: the values of {len(drawn)} keys with their weights ({heavy}), and their weighted sum, the output."
