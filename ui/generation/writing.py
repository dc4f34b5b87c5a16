"""What the Generation page needs of streamlit: the text in the making, its buttons, and how tokens are drawn.

A reader's text is plain data in st.session_state.writing.
"""

import time
from dataclasses import dataclass, replace

import streamlit as st

from model import kv_cache
from model.base import Model
from model.sampling import MOST_WRITTEN, Continuation, Sampling
from model.text import rows_of
from ui import choices, explain

SECONDS = 0.4  # from token to token while it plays
LEFT_ALONE = 30  # seconds without a token after which a text that played is found paused: its page was left
NEXT = -1  # the choice that is looked at: the token that comes next
FIRST = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1, "cache": True}
MOST_SEED = 999_999
MOST_K = 100_000
NO_DECODER = (
    "This page is about decoders, which go on with a text. {} is an {}; {} Choose a decoder on the left: the story "
    "model is always there."
)
NO_GENERATION = {
    "encoder": "it reads a whole text at once and predicts no next token.",
    "encoder-decoder": "it writes from a source text, which the Cross-attention page shows.",
}


@dataclass(frozen=True)
class Writing:
    """One reader's text. model: the key of the model that writes it. due: steps asked for, not yet taken.

    last: when the newest token was written, in seconds of time.monotonic.
    """

    model: str
    path: Continuation
    playing: bool = False
    due: int = 0
    last: float = 0.0


def guard(model: Model) -> None:
    """Say why, and stop, for a model that does not go on with a text."""
    if model.kind != "decoder":
        st.info(NO_DECODER.format(explain.title_of(model), model.kind, NO_GENERATION[model.kind]))
        st.stop()
    if not model.predicts:
        st.info(f"{explain.NO_PREDICTIONS['decoder']} Choose another model on the left to see one write.")
        st.stop()


def begin(model: Model, text: str) -> list[str]:
    """Begin the text anew where model or prompt are others than before. Returns what is to be said of the prompt.

    Raises ValueError for a prompt without a token.
    """
    lines, more = rows_of(text, 1)
    batch = model.encode(lines[:1])
    notes = []
    if more:
        left = "line is" if more == 1 else "lines are"
        notes.append(f"The model goes on with the first line; {more:,} more {left} left out here.")
    prompt = tuple(batch.ids[0].tolist())
    if batch.cut[0]:
        notes.append(
            f"The prompt fills the context, {model.context:,} tokens; its last {len(batch.cut[0]):,} characters are "
            "cut. There is no room to write: shorten it."
        )
    writing = st.session_state.get("writing")
    if writing is None or (writing.model, writing.path.prompt) != (model.key, prompt):
        writing = Writing(model.key, Continuation(prompt))
        st.session_state.choice_at = NEXT
        st.session_state.pop("grown", None)
    left_alone = writing.last > 0 and time.monotonic() - writing.last > LEFT_ALONE
    if writing.playing and (left_alone or not writing.path.room(model.context)):
        writing = replace(writing, playing=False)
    st.session_state.writing = writing
    return notes


def seed() -> None:
    """Put the page's own choices where their widgets find them: as they were when it was left, or from the URL."""
    choices.restore("kept_generation", lambda: {name: _known(name, st.query_params.get(name)) for name in FIRST})
    choices.restore("kept_sections", lambda: {"generation_section": "cache", "old_rows_causal": False})


def choose_sampling(model: Model) -> tuple[Sampling, bool]:
    """How a token is drawn, and whether the cache is on; off for a model that has none here."""
    state = st.session_state
    temperature, top_k, top_p, number, cache = st.columns([1.2, 0.8, 1.2, 0.8, 1], vertical_alignment="bottom")
    temperature.slider(
        "Temperature",
        0.0,
        2.0,
        step=0.05,
        key="temperature",
        help="Scores are divided by it: below 1 the likely get likelier. 0 takes the likeliest.",
    )
    top_k.number_input("Top-k", 0, MOST_K, step=1, key="top_k",
                       help="Only so many likeliest tokens are left. 0: all. After the temperature.")  # fmt: skip
    top_p.slider(
        "Top-p",
        0.05,
        1.0,
        step=0.01,
        key="top_p",
        help="Only the fewest likeliest tokens that hold this share are left. 1: all. After top-k.",
    )
    number.number_input(
        "Seed",
        0,
        MOST_SEED,
        step=1,
        key="seed",
        help="Each position draws by the seed and its place alone: the same steps, the same text.",
    )
    ours = kv_cache.network_of(model) is not None
    if ours:
        cache.toggle(
            "Key-value cache",
            key="cache",
            help="On: a step computes the newest row alone, against the keys and values of the rows before. "
            "Off: a step computes every row again.",
        )
    state.kept_generation = {name: state.get(name, value) for name, value in state.kept_generation.items()}
    sampling = Sampling(float(state.temperature), int(state.top_k), float(state.top_p), int(state.seed))
    return sampling, ours and state.cache


def halt() -> None:
    """Write no further by itself."""
    if "writing" in st.session_state:
        st.session_state.writing = replace(st.session_state.writing, playing=False, due=0)


def buttons(model: Model, writing: Writing) -> None:
    """Step, play or pause, back, start over."""
    room, some = writing.path.room(model.context), bool(writing.path.written)
    full = "The context is full." if len(writing.path.ids) >= model.context else f"{MOST_WRITTEN} tokens are written."
    with st.container(horizontal=True, gap="small"):
        st.button("Step", icon=":material/skip_next:", key="step", on_click=_step, type="primary",
                  disabled=not room or writing.playing, help=None if room else full)  # fmt: skip
        # one button under both names: who plays by the keyboard keeps it under their fingers
        st.button("Pause" if writing.playing else "Play", key="play", on_click=_play, args=(not writing.playing,),
                  icon=":material/pause:" if writing.playing else ":material/play_arrow:",
                  disabled=not room and not writing.playing, help=None if room else full)  # fmt: skip
        st.button("Back", icon=":material/undo:", key="back", on_click=_back, disabled=not some or writing.playing)
        st.button("Start over", icon=":material/restart_alt:", key="start_over", on_click=_start_over,
                  disabled=not some and not writing.playing)  # fmt: skip


def share(name: str, model: Model) -> None:
    """Keep the URL true to the page: what differs from the defaults, and the text only where the link brought it."""
    state = st.session_state
    wanted = {
        "model": None if name in ("", "story") else name,
        "text": state.text if state.text == state.linked_text else None,
        "layer": str(state.layer),
        "head": str(state.head),
    }
    for choice, first in FIRST.items():
        value = state.kept_generation[choice]
        wanted[choice] = None if value == first else str(value).lower() if isinstance(value, bool) else f"{value:g}"
    for parameter, value in wanted.items():
        if value is None:
            st.query_params.pop(parameter, None)
        elif st.query_params.get(parameter) != value:
            st.query_params[parameter] = value


def _known(name: str, value: str | None) -> float | int | bool:
    """A choice from the URL, or its first value where that makes no sense."""
    first = FIRST[name]
    if value is None:
        return first
    if name == "cache":
        return value != "false"
    most = {"temperature": 2.0, "top_k": MOST_K, "top_p": 1.0, "seed": MOST_SEED}[name]
    least = 0.05 if name == "top_p" else 0
    try:
        found = float(value[:20])
    except ValueError:
        return first
    if not least <= found <= most:  # never so for NaN
        return first
    return round(found, 2) if isinstance(first, float) else int(found)


def _step() -> None:
    _change(due=1)


def _play(on: bool) -> None:
    _change(playing=on, last=0.0 if on else st.session_state.writing.last)


def _back() -> None:
    _change(path=st.session_state.writing.path.back())


def _start_over() -> None:
    _change(path=st.session_state.writing.path.cut(0), playing=False)


def take(place: int, token: int) -> None:
    """Go on with another token as the written token number `place`."""
    _change(path=st.session_state.writing.path.instead(place, token))


def _change(**what: object) -> None:
    st.session_state.writing = replace(st.session_state.writing, **what)
    st.session_state.choice_at = NEXT
