"""Work that takes long and that its user can stop: a line that says how far it is, with a button beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import say

Made = TypeVar("Made")


@contextmanager
def stoppable(name: str, again: str) -> Iterator[DeltaGenerator | None]:
    """The line, for the time of the work; None while the work of this name is stopped, under a button that is called
    `again`. Streamlit leaves the script that does the work when the button beside the line is pressed."""
    slot, stop = st.empty(), lambda stopped: st.session_state.update(stopped_work=stopped)
    if st.session_state.get("stopped_work") == name:
        slot.button(again, on_click=stop, args=("",), icon=":material/play_arrow:")
        yield None
        return
    with slot.container(horizontal=True, vertical_alignment="center"):
        line = st.empty()
        st.button(say("Stop"), on_click=stop, args=(name,), icon=":material/stop:", key="stop_work")
    try:
        yield line
    finally:
        slot.empty()


def by_layer(names: Sequence[str], measure: Callable[[int], Made], line: DeltaGenerator | None = None) -> list[Made]:
    """What measure gives of each layer, by its number; meanwhile, in the line, how far it is. names: of the layers."""
    slot, found = line or st.empty(), []
    for number, name in enumerate(names):
        slot.progress(
            number / len(names), say("{layer}: {done} of {all} layers done", layer=name, done=number, all=len(names))
        )
        found.append(measure(number))
    slot.empty()
    return found
