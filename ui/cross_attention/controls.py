"""The Cross-attention page's model, its controls and its link, and the texts of its batch."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import streamlit as st
from pydantic import ConfigDict

from i18n import N_, say
from model.base import Model, TokenizedText
from model.cross_attention.dates import DatesModel
from model.text import rows_of
from ui import controls, run_view
from ui.link import TextLink, Whole, at_most
from ui.widgets import bound

FIRST = "3 Mar 2021"
LONGER = (  # the lines that can stand beside the user's, each about five characters longer
    "17 May 2014",
    "Wed, 7 May 2014",
    "Wednesday 7 May 2014",
    "Thursday, 17 January 2008",
    "the twenty-first of June, 1987",  # not shown in other languages
    "Saturday, the 14th of September, 1963",  # not shown in other languages
    "Wednesday, the fourteenth of August, 1963",  # not shown in other languages
    "Wednesday, the twenty-third of September, 1998",  # not shown in other languages
    "Wednesday, the twenty-third day of September, 1998",  # not shown in other languages
    "Wednesday, the twenty-third day of September, in the year 1998",  # not shown in other languages
)
MORE = 5  # characters of padding, or words, that the user's line gets at first: few enough to be looked at one by one
EXAMPLES = {
    N_("In a sentence, with the time"): "I was born on 14 February 1968, at 5:40 pm.",  # not shown in other languages
    N_("Two readings: day or month first?"): "3/4/97",
    N_("Month first, because the day cannot come first"): "12/25/2020",
    N_("In capitals, with spaces and a typo"): "  29   FEBUARY   2024 ",
    N_("A day that does not exist"): "31 February 2021",
    N_("Not a date"): "a dozen red apples",  # not shown in other languages
}
MEAN: Literal["mean"] = "mean"
PARTS = ("cross", "encoder", "decoder")
SHOWN = {"now": N_("these masks"), "standard": N_("standard masks"), "change": N_("change")}
Head = Whole | Literal["mean"]


class CrossLink(TextLink):
    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("cross_"))
    cross_causal: bool = True
    cross_padding: bool = True
    cross_step: Whole = 6
    cross_shown: Literal[*SHOWN] = "now"  # type: ignore[valid-type]
    cross_row: Whole = 1
    cross_layer: Whole = 0
    encoder_layer: Whole = 0
    decoder_layer: Whole = 1
    cross_head: Head = MEAN
    encoder_head: Head = MEAN
    decoder_head: Head = MEAN


class DatesLink(CrossLink):
    """This page's link, with the model that ships: its text is a date, apart from the text of other pages."""

    TEXT: ClassVar[str] = "date_text"
    FIRST_TEXT: ClassVar[str] = FIRST
    date_text: Annotated[str | None, at_most(100_000)] = None
    cross_beside: Literal[*LONGER] | None = None  # type: ignore[valid-type]


def share(model: Model, text: str) -> None:
    if not isinstance(model, DatesModel):
        controls.share(CrossLink, model)
        return
    usual = {"cross_beside": None} if st.session_state.cross_beside == _long_enough(text) else {}
    controls.share(DatesLink, model, text=None, target="", **usual)


NO_SOURCE = N_(
    "{model} has no source to attend to, so this page shows the built-in dates model. Choose an encoder-decoder "
    "from the Hub (T5, BART, Marian) under *Another model…* to get the same views."
)


@dataclass(frozen=True)
class SourceTexts:
    """The rows of the batch, of which the last `ours` are the page's own, and what was left out."""

    reading: TokenizedText
    ours: int

    @property
    def own_rows(self) -> list[str]:
        return self.reading.rows[: len(self.reading.rows) - self.ours]


def choose_beside(model: Model, text: str) -> str | None:
    """The line of ours beside the user's only one, so that there is padding; None where there are several."""
    rows, left_out = rows_of(text, 1)
    if left_out:
        return None
    if not isinstance(model, DatesModel):
        return f"{rows[0]} {' '.join(rows[0].split()[:MORE])}"
    if st.session_state.cross_beside is None:
        st.session_state.cross_beside = _long_enough(text)
    about = say("The shorter of the two lines is padded to the length of the longer one.")
    look: Any = {"format_func": lambda line: say("{line} (length: {count})", line=line, count=len(line)), "help": about}
    return st.selectbox(say("Second line of the batch (added)"), LONGER, key="cross_beside", **look)


def read(model: Model, text: str, targets: list[str] | None, beside: str | None) -> SourceTexts:
    """The rows as the model reads them, the last one ours where there is one. Raises what reading raises."""
    if beside is None:
        return SourceTexts(run_view.tokenize(model, text, "right", targets), 0)
    rows, _ = rows_of(text, 1)
    both = targets and [targets[0], targets[0]]
    return SourceTexts(run_view.tokenize(model, f"{rows[0]}\n{beside}", "right", both), 1)


def choose_head(model: Model, part: str) -> tuple[int, int | None]:
    """The layer, and the head or None for the mean of all, of one of the attentions."""
    layers, heads = run_view.shape(model, part)
    layer_key, head_key = f"{part}_layer", f"{part}_head"
    _within(layer_key, 0, layers - 1)
    offered = [MEAN, *range(heads)]
    if st.session_state[head_key] not in offered:
        st.session_state[head_key] = MEAN
    name = lambda head: say("mean of heads") if head == MEAN else str(head)  # noqa: E731
    with st.container(horizontal=True, wrap=False):
        st.selectbox(say("Layer"), range(layers), key=layer_key)
        st.selectbox(say("Head"), offered, key=head_key, format_func=name)
    return chosen_head(part)


def chosen_head(part: str) -> tuple[int, int | None]:
    head = st.session_state[f"{part}_head"]
    return st.session_state[f"{part}_layer"], None if head == MEAN else head


def choose_step(outputs: list[str]) -> int:
    _within("cross_step", 0, len(outputs) - 1)
    if len(outputs) > 1:
        look = bound("cross_step", st.session_state.cross_step)
        look["help"] = say("Each step writes one token and attends to the source to do so.")
        written = lambda step: f"{step + 1}: {outputs[step]}"  # noqa: E731
        st.select_slider(say("Decoding step"), range(len(outputs)), format_func=written, **look)
    return st.session_state.cross_step


def _long_enough(text: str) -> str:
    """The first line of ours that gives the user's first one enough padding, or the longest."""
    rows, _ = rows_of(text, 1)
    return next((line for line in LONGER if rows and len(line) >= len(rows[0]) + MORE), LONGER[-1])


def _within(key: str, least: int, most: int) -> None:
    st.session_state[key] = min(max(st.session_state[key], least), most)
