"""The section of the Mask Lab with a head small enough for paper: its numbers edited, every stage, a worksheet."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from model.mask_lab.by_hand import KEYS, MOST, QUERIES, TOKENS, VALUES, ByHand, by_hand
from ui import results
from ui.guard import guarded
from ui.lessons.choices import interface
from viz.mask_lab.by_hand import stages_html

GIVEN = {"q": QUERIES, "k": KEYS, "v": VALUES}


def show() -> None:
    """Tables to edit, what the core makes of them, and both worksheets."""
    st.html(f'<p class="key">{interface("hand")}</p>')
    masked = st.toggle(interface("hand_causal"), value=True, key="hand_causal")
    columns = st.columns(len(GIVEN), gap="medium")
    given = tuple(_edited(name, column) for name, column in zip(GIVEN, columns, strict=True))
    with guarded():
        found = results.ask(by_hand, *given, masked=masked)
    st.html(stages_html(found, TOKENS))
    with st.container(horizontal=True):
        for name, answers in (("hand_sheet", False), ("hand_answers", True)):
            st.download_button(interface(name), _file(found, given, answers=answers), f"{name}.pdf", "application/pdf",
                               key=name, icon=":material/print:", on_click="ignore")  # fmt: skip


def _edited(name: str, place: st.delta_generator.DeltaGenerator) -> np.ndarray:
    """[T,D] as the reader has it; an empty cell counts 0."""
    table = pd.DataFrame(GIVEN[name], index=list(TOKENS), columns=[f"{name}1", f"{name}2"])
    number = {column: st.column_config.NumberColumn(min_value=-MOST, max_value=MOST, step=0.5) for column in table}
    return place.data_editor(table, key=f"hand_{name}", column_config=number).fillna(0.0).to_numpy(np.float64)


def _file(found: ByHand, given: tuple[np.ndarray, ...], *, answers: bool) -> Callable[[], bytes]:
    def make() -> bytes:
        from viz.mask_lab.worksheet import worksheet  # matplotlib takes a second, and is asked for seldom

        mask = interface("hand_free" if found.allowed.all() else "hand_masked")
        title, task = interface("hand_title"), interface("hand_task", mask=mask)
        return worksheet(found, given, TOKENS, title=title, task=task, answers=answers)

    return make
