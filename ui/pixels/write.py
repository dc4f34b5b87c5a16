"""Write new digits and have them recognised; finish what the reader has begun."""

import numpy as np
import streamlit as st

from model.pixels.digit_writing import Draw
from model.pixels.real_digits import TITLES
from ui.guard import guarded
from ui.pixels import choices, pictures
from viz.numbers import chance, percent
from viz.pixels.gallery import Card, gallery
from viz.pixels.numbers import class_table
from viz.pixels.pictures import SIDE

WAYS = 5  # completions shown side by side


def show_sample(classes: tuple[int, ...], draw: Draw) -> None:
    """The written digits, each with the recogniser's verdict."""
    levels = write_with_progress(classes, draw)
    if levels is None:
        return
    reader = pictures.the_recogniser()
    read, named = reader.read(levels), np.array(classes)
    right = int((read == named).sum())
    data = pictures.the_digits()
    st.html(
        f'<p class="sentence">{right} of {len(classes)} written digits ({percent(right / len(classes))}) are '
        f"recognised as their class by a {TITLES[reader.kind]} that was trained on {len(data.train.classes):,} real "
        f"digits and no written one. Of {len(data.test.classes)} real digits that it never saw it names "
        f"{percent(reader.accuracy)} right.</p>"
    )
    cards = [
        Card(picture, f"{told}, read as {found}", bool(told == found))
        for picture, told, found in zip(levels, classes, read, strict=True)
    ]
    st.html(gallery(cards))
    st.caption("Framed in green: recognised as its class. Dashed orange: taken for another.")


def write_with_progress(classes: tuple[int, ...], draw: Draw) -> np.ndarray | None:
    """The digits; None where the reader has stopped the writing of just these."""
    name = repr((classes, draw))  # of these settings, to remember what was stopped
    place = st.empty()
    if st.session_state.get("pixels_stopped") == name:
        place.button("Stopped. Write them after all", on_click=_stop, args=("",), icon=":material/play_arrow:")
        return None
    with place.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Writing {len(classes)} digits, pixel by pixel …")
        st.button("Stop", on_click=_stop, args=(name,), icon=":material/stop:")

    levels = pictures.written(classes, draw)  # where Streamlit leaves this run if the reader has asked for another
    place.empty()
    return levels


def _stop(name: str) -> None:
    st.session_state.pixels_stopped = name


def choose_start() -> int:
    """What the drawing begins with, and how many of its rows are given."""
    digit, nth = choices.choose_digit(pictures.count_of)
    st.button("Take this real digit", on_click=lambda: pictures.replace_drawing(pictures.real_digit(digit, nth)),
              icon=":material/content_copy:", width="stretch")  # fmt: skip
    st.slider("Rows given", 0, SIDE, key="pixels_rows", help="The model reads these rows and writes the others.")
    return st.session_state.pixels_rows


def show_finish(rows: int, draw: Draw) -> None:
    """The drawing, the class, and several ways to go on."""
    given = pictures.drawing()[: rows * SIDE]
    chances = pictures.class_chances(given)
    likeliest = int(chances.argmax())
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        told = choices.choose_class("Class told to the model", "pixels_finish_class", likeliest, "the likeliest")
        with guarded("Writing …"):
            made = pictures.written((told,) * WAYS, draw, given)
        read = pictures.the_recogniser().read(made)
        st.html(f'<p class="sentence">{_finish_words(rows, told, read, chances)}</p>')
        st.html(
            gallery([_card(one, told, int(found), len(given)) for one, found in zip(made, read, strict=True)], WAYS)
        )
        st.caption("Above the line: given. Framed in green: recognised as its class; dashed orange: taken for another.")
        st.html(class_table(chances, told))
    with left:
        pictures.show_canvas(f"class {told}", len(given))


def _card(levels: np.ndarray, told: int, read: int, given: int) -> Card:
    return Card(levels, f"read as {read}", read == told, given)


def _finish_words(rows: int, told: int, read: np.ndarray, chances: np.ndarray) -> str:
    if rows == SIDE:
        sure = chance(float(chances[told]))
        return f"All rows are given: nothing is left to write. The model finds class {told} {sure} likely."
    right = int((read == told).sum())
    seen = f"From the {rows} rows above the line" if rows else "From the class token alone"
    return (
        f"{seen} the model wrote the rest {len(read)} times; {right} of them are recognised as a {told}. "
        f"By what is drawn it finds class {told} {chance(float(chances[told]))} likely."
    )
