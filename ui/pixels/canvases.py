"""The Pixels page's model, its digits, and the canvases that show them."""

from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import streamlit as st

from i18n import say
from model.pixels import digits
from model.pixels.digits import DigitsModel, RealDigits, Recogniser, real_digits, recogniser, write
from model.sampling import Sampling
from serving.job import ModelRef
from ui import results
from ui.heads.head import canvas
from ui.sidebar import models
from ui.widgets.key import component_value, whole, wholes
from viz.pixels import LEVELS, PIXELS, drawing_packet

_component = canvas("pixels")


def the_model() -> DigitsModel:
    return cast(DigitsModel, models.loaded().own("digits"))


def the_digits() -> RealDigits:
    with nullcontext() if real_digits.cache_info().currsize else st.spinner(say("Reading the real digits …")):
        return real_digits()


def the_recogniser() -> Recogniser:
    known = recogniser.cache_info().currsize
    with nullcontext() if known else st.spinner(say("Training the recogniser on real digits …")):
        return recogniser()


def written(classes: tuple[int, ...], how: Sampling, given: np.ndarray | None = None) -> np.ndarray:
    """Digits of these classes, [N,64]; remembered. given: levels [P] that each of them begins with."""
    start = None if given is None else np.repeat(given[None], len(classes), axis=0)
    return results.ask(write, ModelRef.of(the_model()), classes, how, start)


def class_chances(given: np.ndarray) -> np.ndarray:
    """The probability of each class given a drawing: levels [P] -> [10]."""
    return results.ask(digits.class_chances, ModelRef.of(the_model()), given)


def count_of(digit: int) -> int:
    return int((the_digits().test.classes == digit).sum())


def real_digit(digit: int, nth: int) -> np.ndarray:
    """The nth (from 1) test digit of a class, levels [64]; the last where there are not so many."""
    test = the_digits().test
    some = test.levels[test.classes == digit]
    return some[min(max(nth, 1), len(some)) - 1]


def drawing() -> np.ndarray:
    """What the user has drawn, levels [64]; a real digit at first."""
    state = st.session_state
    if state.pixels_drawing is None:
        state.pixels_drawing = real_digit(state.pixels_digit, state.pixels_nth).tolist()
    return np.array(state.pixels_drawing, np.uint8)


def replace_drawing(levels: np.ndarray) -> None:
    state = st.session_state
    state.update(pixels_drawing=levels.tolist(), pixels_epoch=state.pixels_epoch + 1, pixels_number=0)


def show(packet: bytes, key: str, picked: Any = None) -> None:
    """A picture to look at; picked(number) is called before the next rerun when one of its parts is."""

    def taken() -> None:
        pick = whole(component_value(key).get("pick"))
        if picked and pick is not None:
            picked(pick)

    _component(data=packet, key=key, on_pick_change=taken, on_drawn_change=lambda: None)


def show_canvas(class_name: str, given: int, key: str = "pixels_canvas") -> None:
    def drawn() -> None:
        sent = component_value(key).get("drawn")
        if not isinstance(sent, dict) or sent.get("epoch") != st.session_state.pixels_epoch:
            return  # of a drawing that the page has replaced since
        levels, number = wholes(sent.get("levels"), PIXELS), whole(sent.get("number"))
        if levels is not None and max(levels) < LEVELS and number is not None:  # else nothing that our canvas sends
            st.session_state.update(pixels_drawing=levels, pixels_number=number)

    state = st.session_state
    packet = drawing_packet(drawing(), class_name, given, state.pixels_epoch, state.pixels_number)
    _component(data=packet, key=key, on_drawn_change=drawn, on_pick_change=lambda: None)
