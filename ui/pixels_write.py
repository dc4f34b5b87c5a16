"""Write new digits and have them recognised; finish what the reader has begun."""

import numpy as np
import streamlit as st

from model.digit_writing import Draw, class_chances
from model.recogniser import TITLES
from ui import pixels
from viz.numbers import percent
from viz.pixels import SIDE
from viz.pixels_gallery import Card, gallery
from viz.pixels_numbers import class_table

WAYS = 5  # completions shown side by side


def choose_draw() -> Draw:
    """How pixels are drawn."""
    st.slider(
        "Temperature",
        0.0,
        2.0,
        step=0.05,
        **pixels.bound("temperature"),
        help="Logits are divided by it before a level is drawn: 0 always takes the likeliest, 1 is as learned.",
    )
    st.slider(
        "Top-p",
        0.05,
        1.0,
        step=0.05,
        **pixels.bound("top_p"),
        help="Only the likeliest levels that together reach this probability are drawn from; 1 takes all.",
    )
    st.number_input("Seed", 0, 9999, **pixels.bound("seed"), help="The same seed and settings write the same digits.")
    return Draw(pixels.get("temperature"), pixels.get("top_p"), int(pixels.get("seed")))


def choose_sample() -> tuple[int, ...]:
    """The classes to write: one of them, or 0 to 9 again and again."""
    st.selectbox("Class", [pixels.OWN, *range(10)], **pixels.bound("wanted"),
                 format_func=lambda one: "all ten" if one == pixels.OWN else str(one))  # fmt: skip
    st.segmented_control("How many", pixels.COUNTS, **pixels.bound("count"), required=True)
    wanted, count = pixels.get("wanted"), pixels.get("count")
    return tuple(range(10)) * (count // 10) if wanted == pixels.OWN else (wanted,) * count


def show_sample(classes: tuple[int, ...], draw: Draw) -> None:
    """The written digits, each with the recogniser's verdict."""
    levels = write_with_progress(classes, draw)
    if levels is None:
        return
    reader = pixels.the_recogniser()
    read, named = reader.read(levels), np.array(classes)
    right = int((read == named).sum())
    data = pixels.the_digits()
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
    name = pixels.is_written(classes, draw)
    place = st.empty()
    if st.session_state.get("pixels_stopped") == name:
        place.button("Stopped. Write them after all", on_click=_stop, args=("",), icon=":material/play_arrow:")
        return None
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Writing …")
        st.button("Stop", on_click=_stop, args=(name,), icon=":material/stop:")

    def show(done: int, of: int) -> None:
        bar.progress(done / of, f"Writing {len(classes)} digits: pixel {done + 1} of {of}")

    levels = pixels.written(classes, draw, progress=show)
    place.empty()
    return levels


def _stop(name: str) -> None:
    st.session_state.pixels_stopped = name


def choose_start() -> int:
    """What the drawing begins with, and how many of its rows are given."""
    first, second = st.columns(2)
    first.selectbox("Digit", range(10), **pixels.bound("digit"))
    test = pixels.the_digits().test
    count = int((test.classes == pixels.get("digit")).sum())
    pixels.put(nth=min(max(pixels.get("nth"), 1), count))
    second.selectbox("Which", range(1, count + 1), **pixels.bound("nth"), help="Test digits: the model never saw them.")
    st.button("Take this real digit", on_click=_take_real, icon=":material/content_copy:", width="stretch")
    st.slider("Rows given", 0, SIDE, **pixels.bound("rows"), help="The model reads these rows and writes the others.")
    return pixels.get("rows")


def _take_real() -> None:
    pixels.replace_drawing(pixels.real_digit(pixels.get("digit"), pixels.get("nth")))


def show_finish(rows: int, draw: Draw) -> None:
    """The drawing, the class, and several ways to go on."""
    given = pixels.drawing()[: rows * SIDE]
    chances = class_chances(pixels.the_model(), given)
    likeliest = int(chances.argmax())
    left, right = st.columns([1.1, 1.6], gap="large")
    with right:
        st.selectbox(
            "Class told to the model",
            [pixels.OWN, *range(10)],
            **pixels.bound("finish_class"),
            format_func=lambda one: f"the likeliest, {likeliest}" if one == pixels.OWN else str(one),
        )
        told = likeliest if pixels.get("finish_class") == pixels.OWN else pixels.get("finish_class")
        with st.spinner("Writing …", show_time=True):
            made = pixels.written((told,) * WAYS, draw, given)
        read = pixels.the_recogniser().read(made)
        st.html(f'<p class="sentence">{_finish_words(rows, told, read, chances)}</p>')
        st.html(
            gallery([_card(one, told, int(found), len(given)) for one, found in zip(made, read, strict=True)], WAYS)
        )
        st.caption("Above the line: given. Framed in green: recognised as its class; dashed orange: taken for another.")
        st.html(class_table(chances, told))
    with left:
        pixels.show_canvas(f"class {told}", len(given))


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
