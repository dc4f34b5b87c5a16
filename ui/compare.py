"""The Compare page: its link, the controls of B (where B has no choice of its own, A's holds), and its figures."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from typing import Annotated, Any, Literal

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model import catalog
from model.base import Model, TokenizedText
from model.heads.view import HeadView, coarser_words, cropped
from model.masks import NATIVE, MaskSpec
from model.text import first_line, rows_of
from ui import controls, explain, link, page, run_view
from ui.circuits import patching
from ui.circuits.patching import INTO, METRICS, PATCHED  # by name: the link also has a field `patching`
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import query
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.sidebar import chat, models
from ui.widgets import bound, one_of, show_notes
from viz.head import difference_figure, head_figure, head_range
from viz.mask_styles import mask_name
from viz.numbers import next_token_table
from viz.palette import NOW, STANDARD
from viz.sentence import comparable, prediction_sentence, weights_sentence

DIFFERS = {"masks": N_("masks"), "head": N_("head"), "text": N_("text"), "model": N_("model")}
OTHER_TEXT = (
    "Peter blew his silver whistle twice, and Peter lost his silver whistle twice, "  # not shown: a model's to read
    "and Peter blew his silver"
)
ABOVE = 220  # pixels above the pictures on page load, without the titles in their margins


class CompareLink(link.View):
    """The link of the Compare page. differs: in what B differs from A. b_off: the masks that are switched for B,
    comma-separated; None: those switched for A, with the causal mask toggled. b_layer, b_head: B's own layer and head,
    where it may have them; None: A's."""

    TYPED = ("target", "b_text")
    NOT_INCLUDED = link.NO_FILES
    LEFT_OUT = ("masks", "section", "scope", "zoom")
    differs: Literal[*DIFFERS] = "masks"  # type: ignore[valid-type]
    b_layer: link.Whole | None = None
    b_head: link.Whole | None = None
    b_off: Annotated[str, link.at_most(60)] | None = None
    b_text: Annotated[str, link.at_most(4_000)] = OTHER_TEXT
    b_model: Annotated[str, link.at_most(300)] = "story"
    patching: bool = False
    patch_of: Literal[*PATCHED] = "heads"  # type: ignore[valid-type]
    patch_into: Literal[*INTO] = "b"  # type: ignore[valid-type]
    patch_metric: Literal[*METRICS] = "difference"  # type: ignore[valid-type]
    patch_answer: Annotated[str, link.at_most(40)] = ""  # "": the likeliest token of each run
    patch_instead: Annotated[str, link.at_most(40)] = ""
    patches: Annotated[str, link.at_most(600)] = ""  # "h3.2,a4.0,p1.17": a head, a layer, a position in a layer


def choose_model() -> Model:
    """Let the user choose B's model: one of those offered, a Hub id or a folder.

    Raises what catalog.load raises. If the model has to be downloaded first, asks the user and ends the page.
    """
    settings = models.settings()
    offered = list(catalog.offered(settings))
    name = st.session_state.b_model
    if not settings.models and name not in offered:
        offered.append(name)
    state = st.session_state
    state.b_chosen = name if name in offered else offered[0]
    take = lambda: state.update(b_model=state.b_chosen or "story")  # noqa: E731
    st.selectbox(say("B's model"), offered, key="b_chosen", accept_new_options=not settings.models, on_change=take)
    if settings.models and name not in (*offered, CompareLink.model_fields["b_model"].default):
        st.warning(models.not_offered(name))
    return models.get(state.b_chosen or offered[0])


def choose_head(b: Model, attention: str, layer: int, head: int) -> tuple[int, int]:
    """Let the user choose B's layer and head, numbered as the run counts them. layer, head: A's, which B follows until
    its own are chosen; if only the head may differ, B starts with the next head."""
    state = st.session_state
    if state.differs not in ("head", "model"):
        return layer, head
    counts = run_view.shape(b, attention)
    following, found = (layer, head), []
    if state.differs == "head" and counts[1] > 1:
        following = layer, head + 1 if head + 1 < counts[1] else head - 1
    layer_number = b.describe().layer_number
    names = [str(layer_number(attention, number)) for number in range(counts[0])], list(map(str, range(counts[1])))
    labels = say("B's layer"), say("B's head")
    for name, label, count, follows, shown in zip(("b_layer", "b_head"), labels, counts, following, names, strict=True):
        own = min(follows if state[name] is None else state[name], count - 1)
        found.append(st.selectbox(label, range(count), **bound(name, own), format_func=shown.__getitem__, width=110))
    return found[0], found[1]


def default_switched_masks(model: Model, spec: MaskSpec) -> str:
    """Return the masks switched for B by default: those switched in spec, A's masks, with the causal mask toggled."""
    names = controls.switches(model)
    return ",".join(one for one in names if (getattr(spec, one) != getattr(model.standard, one)) != (one == "causal"))


def choose_masks(model: Model, spec: MaskSpec) -> MaskSpec:
    """Let the user choose B's masks. spec: A's masks."""
    state = st.session_state
    off = default_switched_masks(model, spec) if state.b_off is None else state.b_off
    switched = set(off.split(","))
    standard: dict[str, bool] = {name: getattr(model.standard, name) for name in controls.switches(model)}

    def take() -> None:
        state.b_off = ",".join(name for name, on in standard.items() if state[f"b_{name}"] != on)

    for name, on in standard.items():
        state[f"b_{name}"] = on != (name in switched)
        st.toggle(say("B: {mask}", mask=mask_name(name)), key=f"b_{name}", on_change=take, width="content")
    chosen: dict[str, Any] = {name: state[f"b_{name}"] for name in standard}
    return replace(model.standard, **chosen)


def masks_for_model(spec: MaskSpec, model: Model, other: Model) -> MaskSpec:
    """Return A's masks for B's model: masks that were switched for A are as in A, all others as B was trained."""
    masks: dict[str, Any] = {name: getattr(spec, name) for name in NATIVE}
    return replace(other.standard, **{name: on for name, on in masks.items() if on != getattr(model.standard, name)})


def titles(models: tuple[Model, Model], heads: tuple[str, str]) -> list[str]:
    """Return the titles A and B, followed by the names of their models and heads where these differ."""
    differ = [tuple(map(explain.title_of, models))] if models[0] is not models[1] else []
    differ += [heads] if heads[0] != heads[1] else []
    own = [" · ".join(names[side] for names in differ) for side in (0, 1)]
    return [f"{side}: {name}" if name else side for side, name in zip("AB", own, strict=True)]


def show(text: str, reading: TokenizedText, row: int) -> None:
    """Draw the page, and its link in the sidebar; runs as a fragment. row: the index of A's text that is shown."""
    if st.session_state.get("patch_pair"):  # the button has replaced A's text, which is read outside of this fragment
        st.rerun()
    model = controls.keep()
    CompareLink.keep()
    spec = controls.open_masks(say("Compare"), model, reading.batch, row)
    sentence_slot = st.empty()
    choices = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with choices, guarded():
        other, b_reading, b_row, b_spec = _choose_b(model, text, reading, row, spec)
    if b_reading is not reading:
        notes, chats = explain.limits(other, b_reading), _chats(model)
        if chats and not other.chats:
            notes.append(say(chat.NOTE))
        if not chats and st.session_state.differs == "text" and rows_of(st.session_state.b_text, 1)[1]:
            notes.append(say("Only the first line of B's text is read."))
        show_notes([f"B: {note}" for note in notes])
    share = partial(controls.share, CompareLink, model)
    attentions = [name for name in model.attentions if name in other.attentions and name != "cross"]
    if not attentions:
        template = N_("{one} and {other} have no attention of the same kind: choose another model for B.")
        st.info(say(template, one=explain.title_of(model), other=explain.title_of(other)))
        share()
        return
    with choices:
        attention = controls.choose_attention(attentions)
        with st.container(width=190):
            layer, head = controls.choose_head(model, *run_view.shape(model, attention), attention)
        b_layer, b_head = choose_head(other, attention, layer, head)
        query_slot = st.container(width=150)
    with guarded(say("Running A and B …")):
        by = st.session_state.by
        a, _ = run_view.run_pair(model, reading.batch, spec, row, attention, by=by)
        b, _ = run_view.run_pair(other, b_reading.batch, b_spec, b_row, attention, by=by)
        views = [a.head(layer, head), b.head(b_layer, b_head)]
    with query_slot:
        position = query.choose(a)
    share()

    heads = a.name(layer, head), b.name(b_layer, b_head)
    b_position = b.real.stop - 1  # the last token, until a query of A is picked: then B's position beside it
    if query.picked() is not None:
        b_position = _matching_position(*_spans(a, b), position)
    positions = position, b_position
    views = _show_heads((a, b), views, titles((model, other), heads), heads, positions)
    controls.explain_by(say("Activation patching works on tokens, not on words or sentences."))
    sentences = _show_differences((a, b), views, positions)
    sentence_slot.html(page.sentence(together(sentences)))
    patching.show(replace(a, by="tokens"), replace(b, by="tokens"), (layer, head), a.last_token(position))


def _choose_b(
    model: Model, text: str, reading: TokenizedText, row: int, spec: MaskSpec
) -> tuple[Model, TokenizedText, int, MaskSpec]:
    """Let the user choose B's model, texts, row and masks; A's hold for all that does not differ. Raises ValueError for
    an empty text, and what loading another model raises."""
    differs = one_of(say("B differs in"), DIFFERS, "differs", width="content")
    if differs == "masks":
        return model, reading, row, choose_masks(model, spec)
    if differs == "text":
        with st.container(width=300):
            st.text_area(say("B's text"), key="b_text", height=68)
            b_text = controls.read(st.session_state.b_text)
        line = first_line(b_text)
        if not line:
            raise ValueError(say("expected a text for B, got none"))
        found = chat.tokenize(model, b_text)[0] if _chats(model) else run_view.tokenize(model, line, "left", None)
        return model, found, 0, spec
    if differs == "model":
        with st.container(width=240):
            other = choose_model()
        if _chats(model) and other.chats:
            found = chat.tokenize(other, text)[0]
        else:
            found = run_view.tokenize(other, text, st.session_state.pad, None)
        return other, found, min(row, len(found.rows) - 1), masks_for_model(spec, model, other)
    return model, reading, row, spec


def _chats(a: Model) -> bool:
    """Whether texts are read as messages with roles."""
    return a.chats and st.session_state.chat


def _spans(view: RunView, other: RunView) -> tuple[slice, slice]:
    """Return the positions to compare in both views: all of a text that they share, else those that are not padding."""
    if view.run.batch is other.run.batch and view.row == other.row:
        return slice(0, len(view.tokens)), slice(0, len(other.tokens))
    return view.real, other.real


def _matching_position(span: slice, other: slice, position: int) -> int:
    """Return the position in the other span at the same offset as this position in its own span, or the nearest."""
    return min(max(other.start + position - span.start, other.start), other.stop - 1)


def _pick_of_b(a: RunView, b: RunView) -> head_picture.OnPick:
    """Return the callback for a click on a row of B: it chooses the matching query of A."""
    spans = _spans(b, a)  # only slices: the callback outlives this run and must not keep a view in memory
    return lambda row, _: head_picture.choose_query(_matching_position(*spans, row), None)


def _show_heads(
    sides: tuple[RunView, RunView],
    views: Sequence[HeadView],
    titles: Sequence[str],
    heads: tuple[str, str],
    positions: tuple[int, int],
) -> list[HeadView]:
    """Draw A's head beside B's, on one colour scale. Returns the views shown: padding is left out if both mask it."""
    masked = all(side.masks.padding for side in sides)
    parts = [(side.real.start, side.real.stop) if masked else (0, len(side.tokens)) for side in sides]
    shown = [cropped(view, part, part) for view, part in zip(views, parts, strict=True)]
    framed = positions if query.picked() is not None else (None, None)
    columns = st.columns(2, gap="small")
    for column, key, title, name, view, at in zip(columns, "ab", titles, heads, shown, framed, strict=True):
        with column:
            with st.container(key=f"above_{key}"):
                st.markdown(f"#### {title}")
            figure = cached_figure(head_figure, view, zmax=head_range(*shown), dark=page.is_dark(), query=at)
            alt = explain.head_alt(title if name in title else f"{title}, {name}", view, changed=False)
            hears: Any = {"moves": query.moves(sides[0], parts[0])} if key == "a" else {"on_pick": _pick_of_b(*sides)}
            head_picture.show(figure, alt, room="one", key=f"head_{key}", above=ABOVE, **hears)
            if coarser_words(view):
                st.caption(say(coarser_words(view)))
    return shown


def _real_rows(sides: tuple[RunView, RunView], views: Sequence[HeadView]) -> tuple[bool, ...] | None:
    """Return whether each row [Q] of both views has a query that is not padding; None if their lengths differ."""
    if not comparable(*views):
        return None
    real = np.ones(len(views[0].weights), bool)
    for side, view in zip(sides, views, strict=True):
        begins = np.arange(0, len(real) * view.step, view.step)
        real &= np.logical_or.reduceat(side.keep(keys=False)[view.first :], begins)
    return tuple(real.tolist())


def _show_differences(
    sides: tuple[RunView, RunView], views: Sequence[HeadView], positions: tuple[int, int]
) -> list[str]:
    """Draw B's weights minus A's, and the predicted next tokens of both. Returns sentences about them."""
    left, right = st.columns(2, gap="small")
    sentences = [cached_figure(weights_sentence, views[0], views[1], _real_rows(sides, views))]
    with left:
        if comparable(*views):
            st.markdown("#### B − A")
            figure = cached_figure(difference_figure, views[1], views[0], dark=page.is_dark())
            alt = say("B minus A. {sentence}", sentence=unescape(sentences[0]))
            head_picture.show(figure, alt, room="one", key="head_difference", on_pick=_pick_of_b(*sides))
    with right, guarded(say("Predicting …")):
        found = [side.predictions(query.predicting(side, at)) for side, at in zip(sides, positions, strict=True)]
        if found[0] is not None and found[1] is not None:
            st.markdown("#### " + say("The next token"))
            lists = [predicted.candidates for predicted in found if predicted is not None]
            st.html(cached_figure(next_token_table, *lists, changed=True, names=("A", "B"), colours=(STANDARD, NOW)))
            if sides[0].run.attention != "encoder":
                both = zip(sides, positions, strict=True)
                one, other = (f"“{escaped(side.tokens[at])}” ({at})" for side, at in both)
                st.caption(say("After {one} in A, after {other} in B.", one=one, other=other))
            sentences.append(prediction_sentence(*lists))
    return sentences
