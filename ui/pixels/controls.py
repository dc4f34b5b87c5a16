"""The Pixels page's controls and its link."""

from typing import Annotated, Any, Literal

import streamlit as st
from pydantic import BeforeValidator, ConfigDict, Field

from i18n import N_, say
from model.pixels.digits import PIXELS, SAMPLING, SIDE
from model.sampling import Sampling
from ui import link
from ui.widgets.choices import bound, select

PARTS = {"look": N_("Look inside"), "write": N_("Write new digits"), "finish": N_("Finish a drawing")}
SOURCES = {"real": N_("a real digit"), "written": N_("a digit the model writes"), "drawn": N_("my drawing")}
LOOKERS = {"itself": N_("the pixel, once written"), "writer": N_("the step that writes it")}
OWN = -1  # a class that is not chosen: the picture's own, all ten, the likeliest
COUNTS = (10, 20, 50, 100)
Digit = Annotated[int, Field(ge=0, le=9)]
MaybeDigit = Annotated[int, Field(ge=OWN, le=9)]


class PixelsLink(link.Link):
    """This page's link; the user's drawing is not in it. pixel: from 0, row by row. nth: from 1."""

    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("pixels_"))
    pixels_part: Literal[*PARTS] = "look"  # type: ignore[valid-type]
    pixels_source: Literal[*SOURCES] = "real"  # type: ignore[valid-type]
    pixels_digit: Digit = 3
    pixels_nth: Annotated[int, Field(ge=1, le=99)] = 1
    pixels_told: MaybeDigit = OWN
    pixels_pixel: Annotated[int, Field(ge=0, lt=PIXELS)] = 36
    pixels_layer: link.Whole = 1
    pixels_head: link.Whole = 3
    pixels_looker: Literal[*LOOKERS] = "itself"  # type: ignore[valid-type]
    pixels_causal: bool = True
    pixels_scope: Literal["model", "layer"] = "model"
    pixels_wanted: MaybeDigit = OWN
    pixels_count: Annotated[Literal[*COUNTS], BeforeValidator(int)] = 20  # type: ignore[valid-type]
    pixels_seed: Annotated[int, Field(ge=0, le=9999)] = 0
    pixels_temperature: Annotated[float, Field(ge=0, le=2)] = SAMPLING.temperature
    pixels_top_p: Annotated[float, Field(ge=0.05, le=1)] = SAMPLING.top_p
    pixels_rows: Annotated[int, Field(ge=0, le=SIDE)] = 4
    pixels_finish_class: MaybeDigit = OWN

    @classmethod
    def first(cls) -> dict[str, Any]:
        """The drawing too, which pixels.js and the page write in turns."""
        none = {"pixels_drawing": None, "pixels_epoch": 0, "pixels_number": 0}
        return super().first() | {name: st.session_state.get(name, value) for name, value in none.items()}


def choose_digit(count_of: Any) -> tuple[int, int]:
    """A class, and which of its real digits, from 1. count_of(class): how many there are; None: a seed instead."""
    with st.container(horizontal=True, wrap=False):
        tell_its_own = lambda: st.session_state.update(pixels_told=OWN)  # noqa: E731
        digit = st.selectbox(say("Digit"), range(10), key="pixels_digit", on_change=tell_its_own)
        if count_of is None:
            return digit, int(st.number_input(say("Seed"), 0, 9999, key="pixels_seed"))
        count, unseen = count_of(digit), say("Test digits: the model never saw them.")
        st.session_state.pixels_nth = min(st.session_state.pixels_nth, count)
        return digit, st.selectbox(say("Which"), range(1, count + 1), key="pixels_nth", help=unseen)


def choose_head(layers: int, heads: int) -> tuple[int, int]:
    state = st.session_state
    state.pixels_layer, state.pixels_head = min(state.pixels_layer, layers - 1), min(state.pixels_head, heads - 1)
    with st.container(horizontal=True, wrap=False):
        st.selectbox(say("Layer"), range(layers), **bound("pixels_layer", state.pixels_layer))
        st.selectbox(say("Head"), range(heads), **bound("pixels_head", state.pixels_head))
    about = say("A pixel is predicted at the step before it: the query is then the previous pixel, or the class token.")
    select(say("Query"), LOOKERS, "pixels_looker", help=about)
    return state.pixels_layer, state.pixels_head


def choose_sampling() -> Sampling:
    divided = say(
        "Logits are divided by the temperature before a level is sampled: 0 always takes the most likely, 1 leaves "
        "them unchanged."
    )
    temperature = st.slider(say("Temperature"), 0.0, 2.0, step=0.05, key="pixels_temperature", help=divided)
    nucleus = say("Samples only from the most likely levels whose probabilities reach this sum; 1 keeps all.")
    top_p = st.slider(say("Top-p"), 0.05, 1.0, step=0.05, key="pixels_top_p", help=nucleus)
    same = say("The same seed and settings generate the same digits.")
    seed = int(st.number_input(say("Seed"), 0, 9999, key="pixels_seed", help=same))
    return Sampling(temperature, top_p=top_p, seed=seed)


def choose_sample() -> tuple[int, ...]:
    """The classes to write: one of them, or 0 to 9 again and again."""
    wanted = choose_class(say("Class"), "pixels_wanted", OWN, N_("all ten"))
    st.segmented_control(say("How many"), COUNTS, key="pixels_count", required=True)
    count = st.session_state.pixels_count
    return tuple(range(10)) * (count // 10) if wanted == OWN else (wanted,) * count


def choose_class(label: str, key: str, own: int, words: str, help_text: str | None = None) -> int:
    """A class, or `own`. words: what that is, "{digit}" standing for it, marked by N_."""
    name = lambda one: say(words, digit=own) if one == OWN else str(one)  # noqa: E731
    chosen = st.selectbox(label, [OWN, *range(10)], key=key, format_func=name, help=help_text)
    return own if chosen == OWN else chosen
