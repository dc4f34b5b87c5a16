"""Write new digits and have them recognised; finish what the reader has begun."""

import numpy as np
import streamlit as st

from i18n import N_, say, say_count, together
from model.pixels.digits import Draw, Kind
from model.pixels.view import class_name
from ui.guard import guarded
from ui.pixels import choices, pictures
from viz.numbers import chance, percent
from viz.pixels.numbers import class_table
from viz.pixels.pictures import SIDE, GalleryCard, gallery

WAYS = 5  # completions shown side by side
RECOGNISERS: dict[Kind, str] = {"svc": N_("a support vector classifier"), "logistic": N_("a logistic regression")}
FRAMES = N_("Framed in green: recognised as its class. Dashed orange: recognised as another class.")


def show_sample(classes: tuple[int, ...], draw: Draw) -> None:
    """The written digits, each with the recogniser's verdict."""
    levels = write_with_progress(classes, draw)
    if levels is None:
        return
    reader = pictures.the_recogniser()
    read, named = reader.read(levels), np.array(classes)
    right = int((read == named).sum())
    data = pictures.the_digits()
    words = say(
        "{right} of {count} written digits ({share}) are recognised as their class by {recogniser} trained on "
        "{train:,} real digits and on no written ones. Its accuracy on {test} real digits that it never saw is "
        "{accuracy}.",
        right=right, count=len(classes), share=percent(right / len(classes)), recogniser=say(RECOGNISERS[reader.kind]),
        train=len(data.train.classes), test=len(data.test.classes), accuracy=percent(reader.accuracy),
    )  # fmt: skip
    st.html(f'<p class="sentence">{words}</p>')
    cards = [
        GalleryCard(picture, say("{told}, read as {found}", told=told, found=found), bool(told == found))
        for picture, told, found in zip(levels, classes, read, strict=True)
    ]
    st.html(gallery(cards))
    st.caption(say(FRAMES))


def write_with_progress(classes: tuple[int, ...], draw: Draw) -> np.ndarray | None:
    """The digits; None where the reader has stopped the writing of just these."""
    name = repr((classes, draw))  # of these settings, to remember what was stopped
    slot = st.empty()
    if st.session_state.get("pixels_stopped") == name:
        slot.button(say("Stopped. Write the digits again"), on_click=_stop, args=("",), icon=":material/play_arrow:")
        return None
    with slot.container(horizontal=True, vertical_alignment="center"):
        st.caption(say_count("Writing {count} digit, pixel by pixel …", "Writing {count} digits, pixel by pixel …",
                             len(classes)))  # fmt: skip
        st.button(say("Stop"), on_click=_stop, args=(name,), icon=":material/stop:")

    levels = pictures.written(classes, draw)  # where Streamlit leaves this run if the reader has asked for another
    slot.empty()
    return levels


def _stop(name: str) -> None:
    st.session_state.pixels_stopped = name


def choose_start() -> int:
    """What the drawing begins with, and how many of its rows are given."""
    digit, nth = choices.choose_digit(pictures.count_of)
    st.button(say("Take this real digit"), on_click=lambda: pictures.replace_drawing(pictures.real_digit(digit, nth)),
              icon=":material/content_copy:", width="stretch")  # fmt: skip
    st.slider(say("Rows given"), 0, SIDE, key="pixels_rows",
              help=say("The model reads these rows and writes the others."))  # fmt: skip
    return st.session_state.pixels_rows


def show_finish(rows: int, draw: Draw) -> None:
    """The drawing, the class, and several ways to go on."""
    given = pictures.drawing()[: rows * SIDE]
    chances = pictures.class_chances(given)
    likeliest = int(chances.argmax())
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        told = choices.choose_class(say("Class given to the model"), "pixels_finish_class", likeliest,
                                    N_("the most likely, {digit}"))  # fmt: skip
        with guarded(say("Writing …")):
            made = pictures.written((told,) * WAYS, draw, given)
        read = pictures.the_recogniser().read(made)
        st.html(f'<p class="sentence">{_finish_words(rows, told, read, chances)}</p>')
        st.html(
            gallery([_card(one, told, int(found), len(given)) for one, found in zip(made, read, strict=True)], WAYS)
        )
        st.caption(
            say(
                "Above the line: given. Framed in green: recognised as its class; dashed orange: recognised as "
                "another class."
            )
        )
        st.html(class_table(chances, told))
    with left:
        pictures.show_canvas(class_name(told), len(given))


def _card(levels: np.ndarray, told: int, read: int, given: int) -> GalleryCard:
    return GalleryCard(levels, say("read as {found}", found=read), read == told, given)


def _finish_words(rows: int, told: int, read: np.ndarray, chances: np.ndarray) -> str:
    about = {
        "told": told,
        "sure": chance(float(chances[told])),
        "times": len(read),
        "right": int((read == told).sum()),
    }
    if rows == SIDE:
        return say(
            "All rows are given: nothing is left to write. The model gives class {told} a probability of {sure}.",
            **about,
        )
    wrote = (
        say_count(
            "From the {count} row above the line the model wrote the rest {times} times; {right} of them are "
            "recognised as the digit {told}.",
            "From the {count} rows above the line the model wrote the rest {times} times; {right} of them are "
            "recognised as the digit {told}.",
            rows, **about,
        )
        if rows
        else say(
            "From the class token alone the model wrote the rest {times} times; {right} of them are recognised as the "
            "digit {told}.", **about,
        )
    )  # fmt: skip
    return together(
        [wrote, say("Given the drawing, the model gives it a probability of {sure} to be class {told}.", **about)]
    )
