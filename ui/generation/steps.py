"""The part of the Generation page that plays: the text, the candidates for a token, the head that grows by a row."""

import math
from contextlib import nullcontext

import numpy as np
import streamlit as st

from model.base import Model
from model.sampling import MOST_WRITTEN, Choice, Continuation, Sampling
from ui import explain, models, page
from ui.generation import writing as generation
from ui.generation.run import advance, choice_of, look_at
from ui.generation.writing import NEXT, SECONDS, Writing, take
from ui.guard import TROUBLE
from ui.markdown import escaped
from ui.run_view import RunView
from viz.generation.writing import MARK, Chance, Scene, Token, chance_html, chances_head, sentence, text_html
from viz.head import head_figure, head_range
from viz.mask_lab.reach import mark_row
from viz.numbers import TOP
from viz.view import HeadView, cropped

MOST_ROWS = 64  # of the heatmap
STYLE = f"""
<style>
  .writing-box {{ display: flex; flex-direction: column-reverse; max-height: 11rem; overflow-y: auto; }}
  p.writing {{ font-size: 1.05rem; line-height: 1.7; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }}
  p.writing .prompt {{ opacity: .7; }}
  p.writing .written {{ border-bottom: 2px solid rgba(74,144,194,.7); }}
  p.writing .by-hand {{ border-bottom: 2px solid #C0504D; }}
  p.writing .newest {{ outline: 2px solid {MARK}; outline-offset: 1px; border-radius: 2px; }}
  .chance {{ display: flex; align-items: center; gap: .5rem; font-size: .875rem; font-variant-numeric: tabular-nums; }}
  .chance .share {{ width: 4.6rem; text-align: right; white-space: nowrap; flex: none; }}
  .chance .bars {{ flex: 1; display: flex; flex-direction: column; gap: 2px; min-width: 2rem; }}
  .chance .bar {{ height: .4rem; border-radius: 2px; min-width: 1px; }}
  .chance.gone .bar:last-child {{ visibility: hidden; }}
  .chance.gone {{ opacity: .65; }}
  .chance.drawn {{ font-weight: 600; }}
  .chance.head b {{ width: 8.6rem; flex: none; }}
  .st-key-candidates button {{ min-height: 1.75rem; height: 1.75rem; padding: 0 .4rem; }}
  .st-key-candidates button p {{ font-family: monospace; overflow: hidden; text-overflow: ellipsis; }}
  .st-key-candidates [data-testid="stVerticalBlock"], .st-key-candidates {{ gap: .25rem; }}
</style>
"""


def show(model: Model, sampling: Sampling, cache: bool, layer: int, head: int) -> None:
    """The part that plays: it runs by itself while playing, and adds a token each time."""
    playing = st.session_state.writing.playing
    # by its name: what is kept for the next run of this part shall not hold a model that leaves the memory of models
    st.fragment(_play_part, run_every=SECONDS if playing else None)(model.key, sampling, cache, layer, head)


def _play_part(model_key: str, sampling: Sampling, cache: bool, layer: int, head: int) -> None:
    model = models.get(st.session_state.kept_model)
    if model.key != model_key:  # loaded anew meanwhile: the whole page has to be drawn with it
        st.rerun()
    waiting = nullcontext() if st.session_state.writing.playing else st.spinner("Running …", show_time=True)
    try:
        with waiting:
            writing = advance(model, sampling, cache)
            now = look_at(model, writing.path, cache)
    except TROUBLE as error:
        generation.halt()
        st.error(f"{escaped(str(error))}.")
        return
    place = _choice_at(writing)
    choice = choice_of(now, writing.path, sampling, place)
    view = now.head(layer, head)
    row = len(writing.path.prompt) + (len(writing.path.written) if place is None else place) - 1
    _say(model, writing, sampling, choice, place, view, row, f"L{layer} H{head}")
    st.html(STYLE + text_html(_tokens(model, now, writing), row if place is None else row + 1))
    left, right = st.columns([1, 1.55], gap="medium")
    with left:
        _candidates(model, writing, choice, place)
    with right:
        _heatmap(view, row, f"L{layer} H{head}")
    if writing.playing and not writing.path.room(model.context):
        st.rerun()


def _choice_at(writing: Writing) -> int | None:
    """The written token whose candidates are looked at; None for the next one."""
    at = st.session_state.get("choice_at", NEXT)
    return None if writing.playing or not 0 <= at < len(writing.path.written) else at


def _tokens(model: Model, now: RunView, writing: Writing) -> list[Token]:
    """The text, with the model's probability of each written token where it was written; not while it plays."""
    path = writing.path
    chances = [math.nan] * len(path.written)
    if path.written and not writing.playing:  # all logits of a long text take longer than a step
        chances = np.exp(-now.trace.losses(0)[len(path.prompt) :].numpy()).tolist()
    prompt = [Token(model.label(token)) for token in path.prompt]
    pairs = zip(path.written, chances, path.by_hand, strict=True)
    return prompt + [Token(model.label(token), chance, by_hand) for token, chance, by_hand in pairs]


def _say(
    model: Model, writing: Writing, sampling: Sampling, choice: Choice, place: int | None, view: HeadView,
    row: int, name: str,
) -> None:  # fmt: skip
    path = writing.path
    key = int(view.weights[row].argmax())
    room, written = path.room(model.context), len(path.written)
    st.markdown(
        f"**{len(path.prompt)} tokens of prompt + {written} written**, {len(path.ids):,} of a context of "
        f"{model.context:,}; room for {room:,} more here."
    )
    scene = Scene(
        name=name, query=(row, view.queries[row]), key=(key, view.keys[key]), weight=float(view.weights[row, key]),
        place=place, chosen=_chance(model, choice, choice.token),
        by_hand=place is not None and path.by_hand[place], left=choice.left, vocabulary=len(choice.before),
        temperature=sampling.temperature, seed=sampling.seed,
    )  # fmt: skip
    st.html(f'<p class="sentence" style="animation:none">{sentence(scene)}</p>')  # it changes too often for that
    if len(path.ids) >= model.context:
        st.warning(
            f"The context is full: {explain.title_of(model)} reads at most {model.context:,} tokens here. Dropping the "
            "oldest would make room, but every other would move to another position, and all keys and values would "
            "have to be computed anew. Go back, or start over."
        )
    elif not room:
        st.warning(f"{MOST_WRITTEN} tokens are written, the most of one text on this page. Go back, or start over.")


def _candidates(model: Model, writing: Writing, choice: Choice, place: int | None) -> None:
    """The ten likeliest, each a button that takes its path."""
    path = writing.path
    places = [NEXT, *reversed(range(len(path.written)))]
    if st.session_state.get("choice_at", NEXT) not in places or writing.playing:
        st.session_state.choice_at = NEXT
    st.selectbox(
        "Candidates for",
        places,
        key="choice_at",
        disabled=writing.playing or len(places) == 1,
        format_func=lambda at: _title(model, path, at),
        help="The token that comes next, or one that is written: take another, and the text is cut there.",
    )
    shown = choice.before.sort(descending=True, stable=True).indices[:TOP].tolist()
    which = f"The {len(shown)} likeliest"
    if choice.token not in shown:
        shown = [*shown[:-1], choice.token]
        which = f"The {len(shown) - 1} likeliest and one more"
    free = not writing.playing and (place is not None or path.room(model.context) > 0)
    with st.container(key="candidates"):
        st.html(chances_head("next token" if place is None else f"token {len(path.prompt) + place}"))
        for rank, token in enumerate(shown):
            button, share = st.columns([1, 1.6], vertical_alignment="center", gap="small")
            one, drawn = _chance(model, choice, token), token == choice.token
            with button:
                st.button(_button_label(one.label), key=f"candidate_{rank}", width="stretch", disabled=not free,
                          type="primary" if drawn else "secondary", on_click=take,
                          args=(len(path.written) if place is None else place, token))  # fmt: skip
            share.html(chance_html(one, drawn=drawn))
    filled = "the one drawn" if place is None else "the one in the text; the filters are those set now"
    st.caption(
        f"{which}; filled: {filled}. Click another to take that path instead."
        if free
        else "Pause to take another path."
        if writing.playing
        else "There is no room for another token."
    )


def _heatmap(view: HeadView, row: int, name: str) -> None:
    """The head on the last tokens, the row that is looked at framed."""
    length = len(view.queries)
    begin = max(min(length - MOST_ROWS, row + 1 - MOST_ROWS // 2), 0)
    shown = cropped(view, begin, min(begin + MOST_ROWS, length))
    figure = head_figure(shown, dark=page.is_dark())
    mark_row(figure, row - begin, ("",))
    figure.update_layout(height=520, margin_t=28)
    st.plotly_chart(figure, key="head_figure", config=page.CHART, alt=explain.head_alt(name, shown, False))
    st.html(explain.key([shown], head_range(shown)))
    what = "the newest row" if row == length - 1 else f"row {row}"
    part = f", positions {begin} to {begin + len(shown.queries) - 1} of {length}" if len(shown.queries) < length else ""
    st.caption(f"Framed: {what}, the one the candidates come from{part}. Every step adds a row at the bottom.")


def _chance(model: Model, choice: Choice, token: int) -> Chance:
    return Chance(token, model.label(token), float(choice.before[token]), float(choice.after[token]))


def _title(model: Model, path: Continuation, at: int) -> str:
    if at == NEXT or at >= len(path.written):
        return "the token that comes next"
    return f"{len(path.prompt) + at}: {model.label(path.written[at])}"


def _button_label(label: str) -> str:
    """The label as it is: no markdown, no numbered list."""
    text = escaped(label)
    digits = len(text) - len(text.lstrip("0123456789"))
    return f"{text[:digits]}\\{text[digits:]}" if digits and text[digits : digits + 1] in (".", ")") else text or "␀"
