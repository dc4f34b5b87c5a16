"""The section of the Mask Lab that goes through one head step by step."""

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model.heads.row_steps import HeadSteps, RowSteps, head_steps
from model.heads.view import coarser_words
from ui import page
from ui.run_view import RunView
from viz.mask_lab.steps import MOST_KEYS, drawn_values, steps_figure, steps_sentence, steps_table, values_figure
from viz.numbers import percent


def show(now: RunView, layer: int, head: int, chosen: int) -> None:
    found = now.ask(head_steps, layer, head, chosen)
    row = found.row
    st.html(steps_sentence(row))
    page.chart(steps_figure(found, dark=page.is_dark()), "steps_figure", _alt(found, now.name(layer, head)))
    colours = say("Scores, values and output: blue is below 0, red above. Zoom in one panel and the others follow.")
    st.html(page.note(together(filter(None, [colours, coarser_words(found.head)]))))
    numbers, values = st.columns([1.7, 1], gap="medium")
    numbers.html("".join([steps_table(row), page.note(_about_the_table(row))]))
    with values:
        st.html(page.note(_about_the_values(row)))
        page.chart(values_figure(row), "values_figure", _values_alt(row))


def _about_the_table(row: RowSteps) -> str:
    parts = [say("The largest unblocked score is subtracted before the exponential to avoid overflow.")]
    parts.append(say("A weight is its e^… divided by the sum. Values are shown rounded but summed unrounded."))
    if row.arithmetic.softcap is not None:
        parts.append(say("This model caps its scores: {cap:g}·tanh(score / {cap:g}).", cap=row.arithmetic.softcap))
    if row.bias is not None:
        parts.append(say("This model adds its own bias to the scores, shown in the next column."))
        if np.isneginf(row.bias).any():
            parts.append(say("Where it is −∞, the model itself blocks the cell, whatever the masks allow."))
    if row.sink is not None:
        parts.append(say("The sink takes part in the sum and has no value: the keys' weights sum to less than 1."))
    if len(row.raw) > MOST_KEYS:
        most = N_("Of {count:,} keys, the {most} with the largest weights are listed.")
        parts.append(say(most, count=len(row.raw), most=MOST_KEYS))
    return together(parts)


def _about_the_values(row: RowSteps) -> str:
    drawn = drawn_values(row)
    if not drawn:
        return say("Nothing is added: the output is 0.")
    words = N_(
        "Pale: the value v of {count} of the {free:,} keys that are not blocked, those with the largest weights "
        "({share} of the weight). Red: weight × value, what it adds. Below: the sum over all keys."
    )
    share = percent(float(row.weights[drawn].sum()))
    return say(words, count=len(drawn), free=int(row.free.sum()), share=share)


def _alt(found: HeadSteps, name: str) -> str:
    queries, keys = found.raw.shape
    raw, scaled = found.raw, found.head.scaled
    scores = {"raw_least": raw.min(), "raw_most": raw.max(), "least": scaled.min(), "most": scaled.max()}
    weights = {"blocked": int(found.head.any_blocked().sum()), "weight": found.head.weights.max()}
    words = N_(
        "{head} step by step, {queries} queries by {keys} keys: q·k from {raw_least:.2f} to {raw_most:.2f}, scaled "
        "from {least:.2f} to {most:.2f}, {blocked:,} cells blocked, weights up to {weight:.3f}, the keys' values, and "
        "for each query an output of {width} numbers. Query {query} ({token}) is framed."
    )
    framed = {"width": found.values.shape[1], "query": found.row.position, "token": found.row.query}
    return say(words, head=name, queries=queries, keys=keys, **scores, **weights, **framed)


def _values_alt(row: RowSteps) -> str:
    drawn = drawn_values(row)
    heavy = say(", ").join(f"{row.keys[key]} {row.weights[key]:.3f}" for key in drawn)
    words = N_("Bars: the values of {count} keys with their weights ({weights}), and their weighted sum, the output.")
    return say(words, count=len(drawn), weights=heavy)
