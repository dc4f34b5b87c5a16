"""Write new digits and have them recognised; finish what the user has begun."""

import numpy as np
import streamlit as st

from i18n import N_, say, say_count, together
from model.pixels.digits import Kind
from model.pixels.view import class_name
from model.sampling import Sampling
from ui import page
from ui.guard import guarded
from ui.pixels import canvases, controls
from ui.widgets.progress import stoppable
from viz.numbers import chance, percent
from viz.pixels import SIDE, GalleryCard, class_table, gallery

WAYS = 5  # completions shown side by side
RECOGNISERS: dict[Kind, str] = {"svc": N_("a support vector classifier"), "logistic": N_("a logistic regression")}
FRAMES = N_("Framed in green: recognised as its class. Dashed orange: recognised as another class.")


def show_sample(classes: tuple[int, ...], how: Sampling) -> None:
    levels = write_with_progress(classes, how)
    if levels is None:
        return
    recogniser, data = canvases.the_recogniser(), canvases.the_digits()
    read = recogniser.read(levels)
    right, count = int((read == np.array(classes)).sum()), len(classes)
    words = say(
        "{right} of {count} written digits ({share}) are recognised as their class by {recogniser} trained on "
        "{train:,} real digits and on no written ones. Its accuracy on {test} real digits that it never saw is "
        "{accuracy}.",
        right=right, count=count, share=percent(right / count), recogniser=say(RECOGNISERS[recogniser.kind]),
        train=len(data.train.classes), test=len(data.test.classes), accuracy=percent(recogniser.accuracy),
    )  # fmt: skip
    st.html(page.sentence(words))
    cards = [
        GalleryCard(picture, say("{told}, read as {found}", told=told, found=found), bool(told == found))
        for picture, told, found in zip(levels, classes, read, strict=True)
    ]
    st.html(gallery(cards))
    st.caption(say(FRAMES))


def write_with_progress(classes: tuple[int, ...], how: Sampling) -> np.ndarray | None:
    """The digits; None where the user has stopped the writing of just these."""
    words = say_count(
        "Writing {count} digit, pixel by pixel …", "Writing {count} digits, pixel by pixel …", len(classes)
    )
    with stoppable(repr((classes, how)), say("Stopped. Write the digits again")) as line:
        if line is None:
            return None
        line.caption(words)
        return canvases.written(classes, how)


def choose_start() -> int:
    digit, nth = controls.choose_digit(canvases.count_of)
    take = lambda: canvases.replace_drawing(canvases.real_digit(digit, nth))  # noqa: E731
    st.button(say("Take this real digit"), on_click=take, icon=":material/content_copy:", width="stretch")
    about = say("The model reads these rows and writes the others.")
    return st.slider(say("Rows given"), 0, SIDE, key="pixels_rows", help=about)


def show_finish(rows: int, how: Sampling) -> None:
    given = canvases.drawing()[: rows * SIDE]
    chances = canvases.class_chances(given)
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        label, words = say("Class given to the model"), N_("the most likely, {digit}")
        told = controls.choose_class(label, "pixels_finish_class", int(chances.argmax()), words)
        with guarded(say("Writing …")):
            made = canvases.written((told,) * WAYS, how, given)
        read = canvases.the_recogniser().read(made)
        st.html(page.sentence(_finish_sentence(rows, told, read, chances)))
        cards = [
            GalleryCard(levels, say("read as {found}", found=int(found)), int(found) == told, len(given))
            for levels, found in zip(made, read, strict=True)
        ]
        st.html(gallery(cards, WAYS))
        st.caption(together([say("Above the line: given."), say(FRAMES)]))
        st.html(class_table(chances, told))
    with left:
        canvases.show_canvas(class_name(told), len(given))


def _finish_sentence(rows: int, told: int, read: np.ndarray, chances: np.ndarray) -> str:
    about = {"told": told, "sure": chance(float(chances[told])), "times": len(read), "right": int((read == told).sum())}
    if rows == SIDE:
        return say(
            "All rows are given: nothing is left to write. The model gives class {told} a probability of {sure}.",
            **about,
        )
    sure = say("Given the drawing, the model gives it a probability of {sure} to be class {told}.", **about)
    if not rows:
        alone = say(
            "From the class token alone the model wrote the rest {times} times; {right} of them are recognised as the "
            "digit {told}.",
            **about,
        )
        return together([alone, sure])
    wrote = say_count(
        "From the {count} row above the line the model wrote the rest {times} times; {right} of them are recognised as "
        "the digit {told}.",
        "From the {count} rows above the line the model wrote the rest {times} times; {right} of them are recognised "
        "as the digit {told}.",
        rows,
        **about,
    )
    return together([wrote, sure])
