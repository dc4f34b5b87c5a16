"""Write new digits and have them recognised; finish what the reader has begun."""

import numpy as np
import streamlit as st

from model.pixels.digit_writing import Draw, class_chances
from model.pixels.recogniser import TITLES
from ui.pixels import pictures
from viz.numbers import percent
from viz.pixels.gallery import Card, gallery
from viz.pixels.numbers import class_table
from viz.pixels.pictures import SIDE

WAYS = 5  # completions shown side by side


def choose_draw() -> Draw:
    """How pixels are drawn."""
    st.slider(
        "Temperature",
        0.0,
        2.0,
        step=0.05,
        **pictures.bound("temperature"),
        help="Logits are divided by it before a level is drawn: 0 always takes the likeliest, 1 is as learned.",
    )
    st.slider(
        "Top-p",
        0.05,
        1.0,
        step=0.05,
        **pictures.bound("top_p"),
        help="Only the likeliest levels that together reach this probability are drawn from; 1 takes all.",
    )
    st.number_input("Seed", 0, 9999, **pictures.bound("seed"), help="The same seed and settings write the same digits.")
    return Draw(pictures.get("temperature"), pictures.get("top_p"), int(pictures.get("seed")))


def choose_sample() -> tuple[int, ...]:
    """The classes to write: one of them, or 0 to 9 again and again."""
    st.selectbox("Class", [pictures.OWN, *range(10)], **pictures.bound("wanted"),
                 format_func=lambda one: "all ten" if one == pictures.OWN else str(one))  # fmt: skip
    st.segmented_control("How many", pictures.COUNTS, **pictures.bound("count"), required=True)
    wanted, count = pictures.get("wanted"), pictures.get("count")
    return tuple(range(10)) * (count // 10) if wanted == pictures.OWN else (wanted,) * count


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
    name = pictures.is_written(classes, draw)
    place = st.empty()
    if st.session_state.get("pixels_stopped") == name:
        place.button("Stopped. Write them after all", on_click=_stop, args=("",), icon=":material/play_arrow:")
        return None
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Writing …")
        st.button("Stop", on_click=_stop, args=(name,), icon=":material/stop:")

    def show(done: int, of: int) -> None:
        bar.progress(done / of, f"Writing {len(classes)} digits: pixel {done + 1} of {of}")

    levels = pictures.written(classes, draw, progress=show)
    place.empty()
    return levels


def _stop(name: str) -> None:
    st.session_state.pixels_stopped = name


def choose_start() -> int:
    """What the drawing begins with, and how many of its rows are given."""
    first, second = st.columns(2)
    first.selectbox("Digit", range(10), **pictures.bound("digit"))
    test = pictures.the_digits().test
    count = int((test.classes == pictures.get("digit")).sum())
    pictures.put(nth=min(max(pictures.get("nth"), 1), count))
    second.selectbox(
        "Which", range(1, count + 1), **pictures.bound("nth"), help="Test digits: the model never saw them."
    )
    st.button("Take this real digit", on_click=_take_real, icon=":material/content_copy:", width="stretch")
    st.slider("Rows given", 0, SIDE, **pictures.bound("rows"), help="The model reads these rows and writes the others.")
    return pictures.get("rows")


def _take_real() -> None:
    pictures.replace_drawing(pictures.real_digit(pictures.get("digit"), pictures.get("nth")))


def show_finish(rows: int, draw: Draw) -> None:
    """The drawing, the class, and several ways to go on."""
    given = pictures.drawing()[: rows * SIDE]
    chances = class_chances(pictures.the_model(), given)
    likeliest = int(chances.argmax())
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        st.selectbox(
            "Class told to the model",
            [pictures.OWN, *range(10)],
            **pictures.bound("finish_class"),
            format_func=lambda one: f"the likeliest, {likeliest}" if one == pictures.OWN else str(one),
        )
        told = likeliest if pictures.get("finish_class") == pictures.OWN else pictures.get("finish_class")
        with st.spinner("Writing …", show_time=True):
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
        sure = percent(float(chances[told]))
        return f"All rows are given: nothing is left to write. The model finds class {told} {sure} likely."
    right = int((read == told).sum())
    seen = f"From the {rows} rows above the line" if rows else "From the class token alone"
    return (
        f"{seen} the model wrote the rest {len(read)} times; {right} of them are recognised as a {told}. "
        f"By what is drawn it finds class {told} {percent(float(chances[told]))} likely."
    )
