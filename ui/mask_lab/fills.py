"""The section of the Mask Lab about the value that blocks."""

import streamlit as st

from i18n import N_, say, together
from model.mask_lab.fills import FillComparison, OnAHead, on_a_head
from ui.run_view import RunView
from viz.mask_lab.fills import fills_sentence, fills_table, order_sentence, order_table

HOW = N_("""
A weight is e^score divided by the sum of its row. With **−∞** the weight of a blocked cell is e^−∞ = 0 exactly, and a
fully blocked row is 0 / 0 = NaN, which in the next layer reaches every token that attends to it. A **finite** value
works as well as long as e^(value − largest score) rounds to 0, which in float32 it does below about −104; −10 is not
low enough. But in a fully blocked row all cells are equal, so softmax gives every key 1 / K, including later tokens
and padding. **float16** ends at 65,504: larger numbers cannot be represented. Unmask writes −∞ and sets fully blocked
rows to 0: they attend to nothing and add nothing.

**Multiplying after the softmax** leaves the blocked scores in the denominator. What a token must not see still decides
how much of its attention is left; dividing by the new sum repairs that, until the sum itself rounds to 0.
""")


def show(now: RunView, layer: int, head: int) -> None:
    """Every value in every precision, on the head's own scores; and the mask before the softmax against after it."""
    with st.spinner(say("Trying every masking value …")):
        measured: OnAHead = now.ask(on_a_head, layer, head)
        found = measured.comparison
    st.html(fills_sentence(found))
    st.html(fills_table(found) + f'<p class="key">{_about(measured, now.name(layer, head))}</p>')
    st.html(order_sentence(found) + order_table(found))
    with st.expander(say("Why")):
        st.markdown(say(HOW))


def _about(measured: OnAHead, name: str) -> str:
    found = measured.comparison
    parts = [_scores(found, name)]
    parts.append(
        say("No row is fully blocked, so a copy of the last one is blocked for demonstration.")
        if found.empty_row is None
        else say("The fully blocked row is that of query {query}, which has no allowed key under these masks.",
                 query=found.empty_row)
    )  # fmt: skip
    parts.append(
        say("All other columns cover the rows with an allowed key and show the worst cell or row. Exact means the "
            "same softmax in float64. In 16 bits the scores are rounded, so weights are off with any masking value.")
    )  # fmt: skip
    if measured.has_sink:
        parts.append(
            say("This head has a sink, which takes the attention that a fully blocked row does not give to keys.")
        )
    return together(parts)


def _scores(found: FillComparison, name: str) -> str:
    if not found.rows:
        return say("The scores are those of {head} on this text; none of its rows has an allowed key.", head=name)
    if not found.blocked:
        return say("The scores are those of {head} on this text; no cell of it is blocked.", head=name)
    return say("The scores are those of {head} on this text; {blocked:,} of {cells:,} cells are blocked.",
               head=name, blocked=found.blocked, cells=found.rows * found.keys)  # fmt: skip
