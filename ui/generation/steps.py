"""The playing part of the Generation page: the text, the candidates for a token, and the head, which grows by a row."""

import re
from functools import partial
from typing import Any

import streamlit as st

from i18n import N_, say, say_count, together
from model.base import Model
from model.heads.view import HeadView, cropped
from model.kv_cache import network_of
from model.sampling import MAX_WRITTEN, SampledToken, Sampling
from ui import explain, page
from ui.generation import writing as generation
from ui.generation.writing import NEXT, SECONDS, Writing, advance, choice_of, run_of_text, take
from ui.guard import guarded
from ui.heads.head import canvas
from ui.markdown import escaped
from ui.sidebar import models
from ui.streamlit_internals.selectors import css
from viz.figure_table import head_table
from viz.generation import Chance, Token, WritingScene, chance_html, chances_head, sentence, text_html
from viz.heads.cells import growing_packet
from viz.html import signs
from viz.numbers import TOP
from viz.palette import MARK

MAX_ROWS = 64  # maximum number of rows of the heatmap
# what changes with every token has a fixed height, so that nothing below it moves
STYLE = f"""
<style>
  .st-key-generation_scene p.sentence {{ animation: none; height: 4.6em; overflow-y: auto; }}
  .writing-box {{ display: flex; flex-direction: column-reverse; height: 5.6rem; overflow-y: auto; }}
  p.writing {{ font-size: 1.05rem; line-height: 1.7; margin: 0 0 auto; white-space: pre-wrap;
    overflow-wrap: anywhere; }}
  p.writing .prompt {{ opacity: .7; }}
  p.writing .written {{ border-bottom: 2px solid rgba(74,144,194,.7); }}
  p.writing .by-hand {{ border-bottom: 2px solid #C0504D; }}
  p.writing .newest {{ outline: 2px solid {MARK}; outline-offset: 1px; border-radius: 2px; }}
  .chance {{ display: flex; align-items: center; gap: .5rem; font-size: .875rem; font-variant-numeric: tabular-nums; }}
  .chance .share {{ width: 4.6rem; text-align: right; white-space: nowrap; flex: none; }}
  .chance .bars {{ flex: 1; display: flex; flex-direction: column; gap: 2px; }}
  .chance .bar {{ height: .4rem; border-radius: 2px; min-width: 1px; }}
  .chance.gone .bar:last-child {{ visibility: hidden; }}
  .chance.gone {{ opacity: .65; }}
  .chance.drawn {{ font-weight: 600; }}
  .st-key-candidates$vertical_block {{ display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1.6fr);
    gap: .25rem 1rem; align-items: center; }}
  .st-key-candidates > :first-child {{ grid-column: 1 / -1; }}
  .st-key-candidates > :nth-child(2) {{ grid-column: 2; grid-row: 2 / span {TOP}; align-self: start; }}
  .chances {{ display: grid; gap: .25rem; grid-auto-rows: 1.75rem; }}
  .chance.head b {{ width: calc((100% - 1rem) / 2.6 + .5rem); flex: none; }} /* over the buttons */
  .st-key-candidates button {{ min-height: 1.75rem; height: 1.75rem; padding: 0 .4rem; }}
  .st-key-candidates button p {{ font-family: monospace; overflow: hidden; text-overflow: ellipsis; }}
  .st-key-generation_notes $caption {{ height: 6em; overflow-y: auto; }}
  @container main (max-width: 830px) {{ /* else the candidates reach over the heatmap */
    .st-key-generation_scene p.sentence {{ height: 6.4em; }}
    $column:has(.st-key-candidates) {{ min-width: min(100%, 22rem); }}
  }}
  @media (max-width: 700px) {{
    .st-key-generation_scene p.sentence, .st-key-generation_notes $caption {{ height: 12em; }}
  }}
  @media (max-width: 375px) {{
    .st-key-generation_scene p.sentence, .st-key-generation_notes $caption {{ height: 15em; }}
  }}
  @container main (max-width: 620px) {{
    .st-key-generation_scene p.sentence, .st-key-generation_notes $caption {{ height: 9.5em; }}
  }}
</style>
"""

_growing = canvas("heatmap")


def show(model: Model, sampling: Sampling, cache: bool, layer: int, head: int) -> None:
    """Draw the playing part: while playing, it reruns by itself, and adds a token each time."""
    playing = st.session_state.writing.playing
    st.html(css(STYLE))
    st.session_state.page_has_advanced = True
    # the model is passed by name, so that the fragment does not keep an unloaded one in memory
    st.fragment(_play_part, run_every=SECONDS if playing else None)(model.key, sampling, cache, layer, head)


def _play_part(model_key: str, sampling: Sampling, cache: bool, layer: int, head: int) -> None:
    model = models.get(st.session_state.kept_model)
    if model.key != model_key:  # it was reloaded meanwhile: redraw the whole page
        st.rerun()
    with guarded(on_trouble=generation.halt):
        if not st.session_state.pop("page_has_advanced", False):  # at most one token per run, of page or fragment
            advance(model, sampling, cache)
        writing: Writing = st.session_state.writing
        now = run_of_text(model, writing.path, cache)
        at = st.session_state.get("choice_at", NEXT)
        index = None if writing.playing or not 0 <= at < len(writing.path.written) else at
        choice = choice_of(now, writing.path, sampling, index)
        view = now.head(layer, head)
    row = len(writing.path.prompt) + (len(writing.path.written) if index is None else index) - 1
    name = now.name(layer, head)
    _say(model, writing)
    key = int(view.weights[row].argmax())
    scene = WritingScene(
        name=name,
        heads=model.num_layers * model.num_heads,
        query=(row, view.queries[row]),
        key=(key, view.keys[key]),
        weight=float(view.weights[row, key]),
        index=index,
        chosen=_chance(model, choice, choice.token),
        left=choice.left,
        vocabulary=len(choice.before),
        sampling=sampling,
    )
    written = zip(writing.path.written, writing.chances, writing.path.by_hand, strict=True)
    tokens = [Token(model.label(token)) for token in writing.path.prompt]
    tokens += [Token(model.label(token), chance, by_hand) for token, chance, by_hand in written]
    with st.container(key="generation_scene"):
        text = text_html(tokens, row if index is None else row + 1)
        st.html(f"{page.sentence(sentence(scene))}{text}")
    left, right = st.columns([1, 1.7], gap="medium")
    with left:
        how_to_choose = _candidates(model, writing, choice, index)
    with right:
        how_to_read = _heatmap(view, row, name, now.number(layer), head)
    with st.container(key="generation_notes"):
        st.caption(together([how_to_read, how_to_choose]))
    if writing.playing and not writing.path.room(model.context):
        st.rerun()


FULL = N_("The context is full: {model} reads at most {context:,} tokens here.")
# for Unmask's own Transformers, whose positions are learned: relative positions would not change
DROPPING = N_(
    "Dropping the oldest token would make room, but all others would change position, and all keys and values would "
    "have to be recomputed."
)


def _say(model: Model, writing: Writing) -> None:
    path, context = writing.path, model.context
    lengths = say_count(
        "**{count} prompt token + {written} generated**, {tokens:,} of at most {context:,}; this page generates up to "
        "{room:,} more.",
        "**{count} prompt tokens + {written} generated**, {tokens:,} of at most {context:,}; this page generates up to "
        "{room:,} more.",
        len(path.prompt), written=len(path.written), tokens=len(path.ids), context=context, room=path.room(context),
    )  # fmt: skip
    st.markdown(lengths)
    if len(path.ids) >= context:
        todo = say("Go back, or start over.") if path.written else say("Shorten the text on the left.")
        full = say(FULL, model=explain.title_of(model), context=context)
        dropping = [say(DROPPING)] if network_of(model) is not None else []
        st.warning(together([full, *dropping, todo]))
    elif not path.room(context):
        note = say("{count} tokens are generated, the maximum on this page.", count=MAX_WRITTEN)
        st.warning(together([note, say("Go back, or start over.")]))


def _candidates(model: Model, writing: Writing, choice: SampledToken, index: int | None) -> str:
    """Draw the ten likeliest tokens and the sampled one, each a button that chooses it. Returns how to read them."""
    path = writing.path
    choices = [NEXT, *reversed(range(len(path.written)))]
    if st.session_state.get("choice_at", NEXT) not in choices or writing.playing:
        st.session_state.choice_at = NEXT
    about = say("The next token, or one already generated: choosing another cuts the text there.")

    def title(at: int) -> str:
        if at == NEXT or at >= len(path.written):
            return say("the token that comes next")
        return f"{len(path.prompt) + at}: {model.label(path.written[at])}"

    free = not writing.playing and len(choices) > 1
    st.selectbox(say("Candidates for"), choices, key="choice_at", disabled=not free, format_func=title, help=about)
    tokens = choice.before.topk(min(TOP, len(choice.before))).indices.tolist()
    which = say_count("The most likely token", "The {count} most likely tokens", len(tokens))
    if choice.token not in tokens:
        tokens[-1] = choice.token
        which = say("The {count} most likely tokens and the chosen one", count=len(tokens) - 1)
    shown = [_chance(model, choice, token) for token in tokens]
    at = len(path.written) if index is None else index
    free = not writing.playing and (index is not None or path.room(model.context) > 0)
    with st.container(key="candidates"):
        bars = "".join(chance_html(one, drawn=one.token == choice.token) for one in shown)
        number = len(path.prompt) + at
        st.html(chances_head(say("next token") if index is None else say("token {number}", number=number)))
        st.html(f'<div class="chances">{bars}</div>')  # beside the buttons, each as tall as one
        for rank, one in enumerate(shown):
            look: Any = {"type": "primary" if one.token == choice.token else "secondary", "width": "stretch"}
            press = partial(take, at, one.token, one.before)
            label = re.sub(r"^(\d+)([.)])", r"\1\\\2", escaped(one.label)) or "␀"  # not a list in Markdown
            # by rank, so that the button keeps the keyboard focus when another token is listed there
            st.button(label, key=f"candidate_{rank}", disabled=not free, on_click=press, **look)
    filled = say("the sampled token") if index is None else say("the token in the text")
    if writing.playing:
        click = say("pause to choose another")
    else:
        click = say("click another to continue with it instead") if free else say("there is no room for another token")
    seen = escaped(signs(one.label for one in shown))
    return say("{which}; filled: {filled}; {click}. {signs}", which=which, filled=filled, click=click, signs=seen)


HEATMAP = N_(
    "{name} is layer {layer}, head {head}. The heatmap shows positions {begin} to {last} of {length} and frames the "
    "row at the position whose next token is listed; every step adds a row at the bottom."
)


def _heatmap(view: HeadView, row: int, name: str, layer: int, head: int) -> str:
    """Draw the head on the last tokens, with the chosen row framed. Returns how to read it."""
    length = len(view.queries)
    begin = max(min(length - MAX_ROWS, row + 1 - MAX_ROWS // 2), 0)
    last = begin, min(begin + MAX_ROWS, length)
    shown = cropped(view, last, last)
    packet = growing_packet(shown, name=name, query=row, alt=explain.head_alt(name, shown, False))
    _growing(data=packet, key="head_figure", tables=lambda: [head_table(shown, name)])
    part = {"begin": begin, "last": begin + len(shown.queries) - 1, "length": length}
    text = say(HEATMAP, name=name, layer=layer, head=head, **part)
    return together([text, *([say("Hatched: blocked by a mask.")] if shown.any_blocked().any() else [])])


def _chance(model: Model, choice: SampledToken, token: int) -> Chance:
    return Chance(token, model.label(token), float(choice.before[token]), float(choice.after[token]))
