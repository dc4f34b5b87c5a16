"""The Mask Lab's head small enough for paper, with editable numbers and a worksheet; and its masking values."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from i18n import ENGLISH, N_, language, say, spoken, together
from model.mask_lab import fills
from model.mask_lab.fills import KEYS, MAX_ENTRY, QUERIES, TOKENS, VALUES, WorkedExample, by_hand, compare_on_head
from ui import page, results
from ui.guard import guarded
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import deferred
from viz.mask_lab.by_hand import empty_rows_table, fills_sentence, fills_table, order_sentence, order_table, stages_html

GIVEN = {"q": QUERIES, "k": KEYS, "v": VALUES}


def show() -> None:
    about = N_(
        "A head with four tokens of two numbers each, small enough to compute on paper. Change a number, and every "
        "stage updates."
    )
    st.html(page.note(say(about)))
    masked = st.toggle(say("Causal mask"), key="hand_causal")
    columns = st.columns(len(GIVEN), gap="medium")
    edited, state = [], st.session_state  # [T,D] as edited; an empty cell counts as 0
    for (name, numbers), slot in zip(GIVEN.items(), columns, strict=True):
        table = pd.DataFrame(numbers, index=list(TOKENS), columns=[f"{name}1", f"{name}2"])
        look = {
            one: st.column_config.NumberColumn(min_value=-MAX_ENTRY, max_value=MAX_ENTRY, step=0.5) for one in table
        }
        first, last = f"hand_{name}_first", f"hand_{name}_last"
        if f"hand_{name}" not in state:  # an editor that was not drawn has lost its edits
            state[first] = state.get(last, table)
        rows = state[last] = slot.data_editor(state[first], key=f"hand_{name}", column_config=look)
        edited.append(rows.fillna(0.0).to_numpy(np.float64))
    given = tuple(edited)
    with guarded():
        found = results.ask(by_hand, *given, masked=masked)
    st.html(stages_html(found, TOKENS))
    labels = {"hand_sheet": say("Worksheet"), "hand_answers": say("Worksheet with answers")}
    printed = ENGLISH  # or the user's language, if an installed font has its characters
    if language() != ENGLISH:
        from viz.export.fonts import language_of  # matplotlib takes a second, and is rarely needed

        printed = language_of("pdf")
    with spoken(printed):
        files = {name: deferred(partial(sheet, found, given, answers=name == "hand_answers")) for name in labels}
    with st.container(horizontal=True):
        for name, label in labels.items():
            kind, icon = "application/pdf", ":material/print:"
            st.download_button(label, files[name], f"{name}.pdf", kind, key=name, icon=icon, on_click="ignore")
    if printed != language():
        st.caption(say("The worksheets are in English: no font with Chinese characters is installed on this server."))


def sheet(found: WorkedExample, given: tuple[np.ndarray, ...], *, answers: bool) -> bytes:
    from viz.mask_lab.worksheet import worksheet

    title, task = say("Attention by hand"), say(TASK, mask=say(UNMASKED if found.allowed.all() else MASKED))
    return worksheet(found, given, TOKENS, title=title, task=task, answers=answers)


MASKED = N_("The causal mask is on: write −∞ into each cell of stage 3 that it blocks, and e^−∞ = 0 in stage 4.")
UNMASKED = N_("No mask is on: stage 3 equals stage 2.")
TASK = N_(
    "Four tokens, two numbers each. Rows are queries, columns are keys.\n{mask} Fill in stages 1 to 6, to two decimal "
    "places."
)


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


def show_fills(now: RunView, layer: int, head: int) -> None:
    """Draw every masking value in every precision on the head's scores, and masking before and after the softmax."""
    with st.spinner(say("Trying every masking value …")):
        found = now.ask(compare_on_head, layer, head)
    st.html(fills_sentence(found))
    counts = {"blocked": found.blocked, "cells": found.rows * found.keys, "rows": found.rows}
    empty = say(NO_EMPTY_ROW) if found.empty_row is None else say(EMPTY_ROW, query=found.empty_row)
    scores = say(SCORES, head=now.name(layer, head), **counts)
    about = [scores, empty, say(OTHER_COLUMNS)] if found.rows else [empty, say(NO_ROW)]
    if found.has_sink:
        about.append(say(SINK))
    st.html(f"{fills_table(found)}{page.note(together(about))}")
    st.html(f"{order_sentence(found)}{order_table(found)}")
    with st.expander(say("A fully blocked row in each attention kernel")):
        st.html(cached_figure(empty_rows_table, results.ask(fills.empty_rows)))
    with st.expander(say("Why")):
        st.markdown(say(HOW))


SCORES = N_(
    "The scores are those of {head} on this text. Rows with an allowed key: {rows:,}; {blocked:,} of their {cells:,} "
    "cells blocked."
)
NO_EMPTY_ROW = N_("No row is fully blocked, so a copy of the last one is blocked for demonstration.")
EMPTY_ROW = N_("The fully blocked row is that of query {query}, which has no allowed key under these masks.")
NO_ROW = N_("No row has an allowed key, so the other columns are empty.")
OTHER_COLUMNS = N_(
    "All other columns cover the rows with an allowed key and show the worst cell or row. Exact means the same softmax "
    "in float64. In 16 bits the scores are rounded, so weights are off with any masking value."
)
SINK = N_("This head has a sink, which takes the attention that a fully blocked row does not give to keys.")
