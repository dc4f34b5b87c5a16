"""The section of the Mask Lab with a head small enough for paper: its numbers edited, every stage, a worksheet."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from i18n import ENGLISH, language, say, spoken
from model.mask_lab.fills import KEYS, MOST, QUERIES, TOKENS, VALUES, ByHand, by_hand
from ui import results
from ui.guard import guarded
from ui.widgets.choices import later
from viz.mask_lab.by_hand import stages_html

GIVEN = {"q": QUERIES, "k": KEYS, "v": VALUES}


def show() -> None:
    """Tables to edit, what the core makes of them, and both worksheets."""
    about = say("A head with four tokens of two numbers each, small enough to compute on paper. Change a number, and "
                "every stage updates.")  # fmt: skip
    st.html(f'<p class="key">{about}</p>')
    masked = st.toggle(say("Causal mask"), key="hand_causal")
    columns = st.columns(len(GIVEN), gap="medium")
    given = tuple(_edited(name, column) for name, column in zip(GIVEN, columns, strict=True))
    with guarded():
        found = results.ask(by_hand, *given, masked=masked)
    st.html(stages_html(found, TOKENS))
    labels = {"hand_sheet": say("Worksheet"), "hand_answers": say("Worksheet with answers")}
    printed = printed_in()
    with spoken(printed):
        files = {name: later(partial(sheet, found, given, answers=name == "hand_answers")) for name in labels}
    with st.container(horizontal=True):
        for name, label in labels.items():
            st.download_button(label, files[name], f"{name}.pdf", "application/pdf", key=name, icon=":material/print:",
                               on_click="ignore")  # fmt: skip
    if printed != language():
        st.caption(say("The worksheets are in English: no font with Chinese characters is installed on this server."))


def printed_in() -> str:
    """The worksheets' language: the reader's, where a font that is installed has its letters; else English."""
    if language() == ENGLISH:
        return ENGLISH
    from viz.export.fonts import language_of  # matplotlib takes a second, and is asked for seldom

    return language_of("pdf")


def sheet(found: ByHand, given: tuple[np.ndarray, ...], *, answers: bool) -> bytes:
    """The PDF."""
    from viz.mask_lab.worksheet import worksheet

    title, task = say("Attention by hand"), _task(masked=not found.allowed.all())
    return worksheet(found, given, TOKENS, title=title, task=task, answers=answers)


def _task(*, masked: bool) -> str:
    mask = (
        say("The causal mask is on: write −∞ into each cell of stage 3 that it blocks, and e^−∞ = 0 in stage 4.")
        if masked
        else say("No mask is on: stage 3 equals stage 2.")
    )
    return say("Four tokens, two numbers each. Rows are queries, columns are keys.\n{mask} Fill in stages 1 to 6, to "
               "two decimal places.", mask=mask)  # fmt: skip


def _edited(name: str, place: st.delta_generator.DeltaGenerator) -> np.ndarray:
    """[T,D] as the reader has it; an empty cell counts 0."""
    table = pd.DataFrame(GIVEN[name], index=list(TOKENS), columns=[f"{name}1", f"{name}2"])
    number = {column: st.column_config.NumberColumn(min_value=-MOST, max_value=MOST, step=0.5) for column in table}
    return place.data_editor(table, key=f"hand_{name}", column_config=number).fillna(0.0).to_numpy(np.float64)
