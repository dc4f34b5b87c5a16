"""What the Pixels page keeps and shows: its choices, its model, its pictures.

Every choice is in st.session_state.pixels_kept under its name; all but the drawing are in the URL too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from model.pixels import digits
from model.pixels.digit_writing import Draw, Progress, write
from model.pixels.digits import DigitsModel
from model.pixels.real_digits import RealDigits, real_digits
from model.pixels.recogniser import Recogniser, recogniser
from ui import results
from viz.components import source
from viz.pixels.pictures import LEVELS, PICTURE_HTML, PIXELS, drawing_packet

PARTS = {"look": "Look inside", "write": "Write new digits", "finish": "Finish a drawing"}
SOURCES = {"real": "a real digit", "written": "a digit the model writes", "drawn": "my drawing"}
LOOKERS = {"itself": "the pixel, once it stands", "writer": "the step that writes it"}
OWN = -1  # a class that is not chosen: the picture's own, all ten, the likeliest
COUNTS = (10, 20, 50, 100)
DEFAULTS: dict[str, Any] = {
    "part": "look", "source": "real", "digit": 3, "nth": 1, "told": OWN, "pixel": 36, "layer": 1, "head": 3,
    "looker": "itself", "causal": True, "scope": "model", "wanted": OWN, "count": 20, "seed": 0,
    "temperature": Draw.temperature, "top_p": Draw.top_p, "rows": 4, "finish_class": OWN,
}  # fmt: skip
MOST = {"digit": 9, "told": 9, "pixel": PIXELS - 1, "wanted": 9, "rows": 8, "finish_class": 9, "seed": 9999,
        "layer": 99, "head": 99, "nth": 99}  # fmt: skip
WORDS = {"part": PARTS, "source": SOURCES, "looker": LOOKERS, "scope": ("model", "layer"), "count": COUNTS}

_component = st.components.v2.component(
    "unmask_pixels", html=PICTURE_HTML, css=source("pixels.css"), js=source("pixels.js")
)


def get(name: str) -> Any:
    """A choice."""
    return st.session_state.pixels_kept[name]


def put(**choices: Any) -> None:
    """Make these choices, before their widgets are drawn or from a callback."""
    st.session_state.pixels_kept |= choices
    st.session_state.update({"pixels_" + name: value for name, value in choices.items() if name in DEFAULTS})


def bound(name: str, **others: Any) -> dict[str, Any]:
    """What ties a widget to a choice; a change of it makes the others too."""

    def taken() -> None:
        put(**{name: st.session_state["pixels_" + name]}, **others)

    return {"key": "pixels_" + name, "on_change": taken}


def seed() -> None:
    """Put every choice where its widget will find it: once a session from the URL, then as it was left.

    Streamlit forgets the value of a widget that is not drawn, on another page or in another part of this one, so what
    counts is a copy.
    """
    if "pixels_kept" not in st.session_state:
        asked = {name: _sensible(name, st.query_params.get(name)) for name in DEFAULTS}
        known = {name: value for name, value in asked.items() if value is not None}
        st.session_state.pixels_kept = DEFAULTS | {"drawing": None, "epoch": 0, "number": 0} | known
    put(**st.session_state.pixels_kept)


def keep_in_url() -> None:
    """What differs from the defaults; the drawing stays out."""
    changed = {name: get(name) for name in DEFAULTS if get(name) != DEFAULTS[name]}
    st.query_params.from_dict({name: str(value) for name, value in changed.items() if value is not None})


def _sensible(name: str, value: str | None) -> Any:
    """A value from the URL as the choice takes it; None for one that makes no sense."""
    if value is None:
        return None
    if name == "causal":
        return {"True": True, "False": False}.get(value)
    if name in WORDS:
        return next((word for word in WORDS[name] if str(word) == value), None)
    try:
        number = float(value)
    except ValueError:
        return None
    if name == "temperature":
        return number if 0 <= number <= 2 else None
    if name == "top_p":
        return number if 0.05 <= number <= 1 else None
    return int(number) if 0 <= number <= MOST[name] else None


def choose_part() -> str:
    """What the page is for now."""
    st.segmented_control(
        "Part",
        list(PARTS),
        format_func=PARTS.__getitem__,
        **bound("part"),
        required=True,
        label_visibility="collapsed",
        width="content",
    )
    return get("part")


@st.cache_resource(max_entries=1, show_spinner="Loading the digits model …")
def the_model() -> DigitsModel:
    return digits.load()


@st.cache_resource(max_entries=1, show_spinner="Reading the real digits …")
def the_digits() -> RealDigits:
    return real_digits()


@st.cache_resource(max_entries=1, show_spinner="Training the recogniser on real digits …")
def the_recogniser() -> Recogniser:
    return recogniser()


@dataclass(frozen=True, eq=False)
class Written:
    """Digits that the model wrote: levels uint8 [N,64]."""

    levels: np.ndarray

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return self.levels.nbytes


def written(
    classes: tuple[int, ...], draw: Draw, given: np.ndarray | None = None, progress: Progress | None = None
) -> np.ndarray:
    """Digits of these classes, [N,64]; remembered. given: levels [P] that each of them begins with."""
    model = the_model()
    start = None if given is None else np.repeat(given[None], len(classes), axis=0)
    key = ("digits", model.key, classes, draw, None if given is None else given.tobytes())
    return results.shared().get(key, lambda: Written(write(model, classes, draw, start, progress))).levels


def is_written(classes: tuple[int, ...], draw: Draw) -> str:
    """A name of these settings, to remember what was stopped."""
    return repr((classes, draw))


def real_digit(digit: int, nth: int) -> np.ndarray:
    """The nth (from 1) test digit of a class, levels [64]; the last where there are not so many."""
    test = the_digits().test
    some = test.levels[test.classes == digit]
    return some[min(max(nth, 1), len(some)) - 1]


def drawing() -> np.ndarray:
    """What the reader has drawn, levels [64]; a real digit at first."""
    if get("drawing") is None:
        put(drawing=real_digit(get("digit"), get("nth")).tolist())
    return np.array(get("drawing"), np.uint8)


def replace_drawing(levels: np.ndarray) -> None:
    """Another drawing in place of the reader's."""
    put(drawing=levels.tolist(), epoch=get("epoch") + 1, number=0)


def show(packet: dict[str, Any], key: str, picked: Any = None) -> None:
    """A picture to look at; picked(number) is called before the next rerun when one of its parts is."""

    def taken() -> None:
        pick = st.session_state[key].get("pick")
        if picked and isinstance(pick, int | float):
            picked(int(pick))

    _component(data=packet, key=key, on_pick_change=taken, on_drawn_change=lambda: None)


def show_canvas(class_name: str, given: int, key: str = "pixels_canvas") -> None:
    """The reader's drawing, to draw on."""

    def drawn() -> None:
        sent = st.session_state[key].get("drawn")
        if not isinstance(sent, dict) or sent.get("epoch") != get("epoch"):
            return  # of a drawing that the page has replaced since
        levels, number = sent.get("levels"), sent.get("number")
        if not isinstance(levels, list) or len(levels) != PIXELS or not isinstance(number, int | float):
            return  # nothing that our own canvas sends
        if all(isinstance(one, int | float) and one in range(LEVELS) for one in levels):
            put(drawing=[int(one) for one in levels], number=int(number))

    packet = drawing_packet(drawing(), class_name, given, get("epoch"), get("number"))
    _component(data=packet, key=key, on_drawn_change=drawn, on_pick_change=lambda: None)
