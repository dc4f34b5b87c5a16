"""The Head atlas below its scatter plot: the plot for print, examples of the chosen head, the table of all heads, and
heads found by distance, or by tokens that the user marks in a sentence."""

from typing import Any

import numpy as np
import streamlit as st
from torch import Tensor

from i18n import N_, say, say_count, together
from model.atlas.result import EVERY_MEASURE, MEASURES, NAMES, Atlas
from model.atlas.table import as_parquet, examples_table, heads_table, measures_table, weight_there
from model.base import Model
from model.heads import measures
from model.masks import MaskSpec
from model.text import first_line
from ui import controls, explain, run_view
from ui.guard import guarded
from ui.head_atlas import controls as atlas_controls
from ui.markdown import escaped
from ui.results import cached_figure
from ui.sidebar.positions import POSITIONS
from ui.widgets import bound, download
from viz.export.words import version
from viz.heads.atlas import called, deciles_html, ranked_table

TEXTS = {
    "sample": N_("the sample included with Unmask"),
    "text": N_("those in the page's text box"),
    "file": N_("a file"),
    "random": N_("random tokens repeated twice"),
}


def offer(atlas: Atlas, model: Model, masks: MaskSpec, texts: str, x: str, y: str, chosen: tuple[int, int]) -> None:
    """Offer the scatter plot as files, in a popover; they are made on request. texts: a key of TEXTS."""
    slot = st.popover(say("Picture for print"), icon=":material/image:", key="atlas_picture", on_change="rerun")
    if not slot.open:
        return
    from ui.export import printed  # matplotlib takes a second, and nothing else here needs it
    from viz.export import words
    from viz.export.paper import atlas_picture

    name = explain.plain_title(model)
    on, lifted = controls.masks_on_and_lifted(model, masks)

    def caption() -> str:
        what = say_count(
            "The attention heads of {model}, {heads} in all, measured over {count} text of {tokens:,} tokens.",
            "The attention heads of {model}, {heads} in all, measured over {count} texts, {tokens:,} tokens together.",
            atlas.texts,
            **{"heads": atlas.layers * atlas.heads, "model": name, "tokens": atlas.read},
        )
        which = say("Texts: {which}.", which=say(TEXTS[texts]))
        held = say("Masks: {masks}.", masks=words.masks_sentence(on, lifted))
        return together([what, which, held, *words.atlas_caption(atlas, x, y), f"Unmask {version()}."])

    of = atlas, x, y, chosen
    found = printed.PrintedPicture(atlas_picture, of, lambda: say("{model} · all heads", model=name), caption, [])
    with slot, guarded(say("Drawing …")):
        printed.note_missing_fonts(found)
        printed.offer(found, "head_atlas")


SHOWN_EACH = 3  # examples shown for each tenth
HEAD_COLUMNS = {"layer": N_("Layer"), "head": N_("Head"), "called": N_("Pattern")}


def examples(atlas: Atlas, layer: int, head: int) -> None:
    with st.container(width=260):
        # by default, the measure that the head is named after
        by = st.session_state.atlas_by or next(iter(atlas.named(layer, head)), "peak")
        look: Any = {"format_func": atlas_controls.title, "help": atlas_controls.words(by)}
        by = st.selectbox(say("By"), list(MEASURES), **bound("atlas_by", by), **look)
    deciles = atlas.deciles(by, layer, head, SHOWN_EACH)
    if not deciles:
        st.info(say("No sampled query of these texts has a value for {measure}.", measure=say(MEASURES[by].title)))
        return
    sampled = sum(decile.queries for decile in deciles)
    template = N_(
        "{which}, split into deciles; at most {each} random examples of each. Framed: the query. Coloured: the keys "
        "with the largest weights, at most 5; point at one for its weight."
    )
    queries = int(atlas.counts[NAMES.index(by), layer])
    some = N_("A random sample of {sampled:,} of {queries:,} queries")
    which = N_("All queries ({queries:,})") if sampled == queries else some
    st.caption(say(template, which=say(which, sampled=sampled, queries=queries), each=SHOWN_EACH))
    st.html(cached_figure(deciles_html, deciles, by))
    with_text = [one for decile in deciles for one in decile.examples if one.text]
    if not with_text:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):

        def numbered(number: int) -> str:
            example = with_text[number]
            begin = max(example.query - 5, 0)
            before = "".join(example.pieces[begin : example.query + 1]).replace("·", " ")
            return f"{number + 1}. {'… ' * (begin > 0)}{before}"

        label = say("See one on Explore, with all weights")
        options = [numbered(number) for number in range(len(with_text))]
        chosen = st.selectbox(label, options, key="atlas_example")
        if st.button(say("Open"), icon=":material/grid_view:", key="atlas_open"):
            one = with_text[options.index(chosen)]
            own = dict.fromkeys((*POSITIONS, "positions_of"))
            own |= {"text": one.text, "chat": False, "row": 1, "query": one.query, "by": "tokens"}
            st.session_state.kept |= own  # a newly opened page takes its choices from here
            st.switch_page("app.py")


def table(atlas: Atlas, model: Model, about: dict[str, object]) -> None:
    frame = measures_table(atlas)
    columns = {
        name: st.column_config.NumberColumn(say(one.title), help=atlas_controls.words(name), format="%.3f")
        for name, one in EVERY_MEASURE.items()
    }
    columns |= {name: st.column_config.Column(say(title)) for name, title in HEAD_COLUMNS.items()}
    columns["called"]["width"] = "medium"  # else as wide as the names of the first heads
    shown = frame.assign(called=[called(atlas, head) for head in np.ndindex(atlas.layers, atlas.heads)])
    look: Any = {"hide_index": True, "column_config": columns, "height": 420, "selection_mode": "single-row"}

    def take_row() -> None:
        if rows := st.session_state.atlas_table.selection.rows:
            st.session_state.layer, st.session_state.head = divmod(rows[0], atlas.heads)

    st.dataframe(shown, key="atlas_table", on_select=take_row, **look)
    name = f"atlas_{model.name.rpartition('/')[2]}"
    every, some = lambda: as_parquet(heads_table(atlas), about), lambda: as_parquet(examples_table(atlas), about)
    with st.container(horizontal=True):
        download(say("This table as CSV"), frame.to_csv(index=False), f"{name}.csv", "text/csv")
        download(say("All data as Parquet"), every, f"{name}.parquet")
        download(say("The examples as Parquet"), some, f"{name}.examples.parquet")


MAX_SHOWN = 10  # maximum number of heads listed
MAX_MARKED = 48  # tokens of the text that can be marked


def by_distance(atlas: Atlas) -> None:
    longest = atlas.at_offset.shape[-1] // 2
    st.session_state.atlas_back = min(max(st.session_state.atlas_back, -longest), longest)
    about = say(
        "The mean weight at this distance over all texts of the atlas. 0 is the token itself; negative numbers are "
        "later tokens."
    )
    label = say("Heads that attend this many tokens back")
    weights = atlas.back(st.number_input(label, -longest, longest, key="atlas_back", help=about))
    if np.isnan(weights).all():
        st.info(say("Under these masks, no token of these texts may attend there."))
        return
    _ranked(atlas, weights, say("mean weight there"), "atlas_take_back")


def by_marks(model: Model, text: str, atlas: Atlas, masks: MaskSpec) -> None:
    line = first_line(text)
    if not line:
        st.info(say("Type a sentence on the left to mark tokens in it."))
        return
    with guarded():
        batch = run_view.tokenize(model, line, "right", None).batch
        pieces = batch.pieces[0][:MAX_MARKED]
    template = N_(
        "Heads that attend from one token to another: mark both among the first {count} tokens of the first line on "
        "the left."
    )
    st.caption(say(template, count=len(pieces)))
    shown = [escaped(piece.replace("·", " ").strip() or piece) for piece in pieces]
    # repeated tokens get their positions: of pills with the same label, Streamlit recognizes only the last
    labels = [f"{one} ({position})" if shown.count(one) > 1 else one for position, one in enumerate(shown)]
    _mark_first((model.key, line), batch.ids[0, : len(pieces)])

    def keep() -> None:
        for name, marked in (("atlas_looks", "atlas_queries"), ("atlas_at", "atlas_keys")):
            st.session_state[name] = ",".join(map(str, sorted(st.session_state[marked]))) or "-"
        tokens_of, _, _ = st.session_state.atlas_marked
        st.session_state.atlas_marked = tokens_of, st.session_state.atlas_looks, st.session_state.atlas_at

    look: Any = {"format_func": labels.__getitem__, "selection_mode": "multi", "wrap": True, "on_change": keep}
    queries = sorted(st.pills(say("Query tokens"), range(len(pieces)), key="atlas_queries", **look))
    keys = sorted(st.pills(say("Key tokens"), range(len(pieces)), key="atlas_keys", **look))
    if not queries or not keys:
        st.info(say("Mark at least one query token and one key token."))
        return
    with guarded(say("Checking every head …")):
        now, _ = run_view.run_pair(model, batch, masks, 0, "self")
        weights = now.ask(weight_there, tuple(queries), tuple(keys))
    if np.isnan(weights).all():
        st.info(say("Under these masks none of the query tokens may attend to the key tokens."))
        return
    _ranked(atlas, weights, say("weight there"), "atlas_take_marks")


def _mark_first(tokens_of: tuple[str, str], ids: Tensor) -> None:
    """Set the marks for a new model or text: those of a link; else, as the query, the last token and, as the key, the
    token that followed its previous occurrence, or the token before it."""
    state = st.session_state
    marked, looks, at = state.get("atlas_marked", (tokens_of, None, None))
    if marked == tokens_of and (looks, at) == (state.atlas_looks, state.atlas_at) and "atlas_queries" in state:
        # set again: the browser forgets pills that were not drawn meanwhile
        state.atlas_queries, state.atlas_keys = state.atlas_queries, state.atlas_keys
        return
    marks = state.atlas_looks, state.atlas_at
    state.atlas_marked = tokens_of, *marks
    numbers = [[int(position) for position in (some or "").split(",") if position.isdigit()] for some in marks]
    linked = [[position for position in some if position < len(ids)] for some in numbers]
    if all(found or some == "-" for found, some in zip(linked, marks, strict=True)):
        state.atlas_queries, state.atlas_keys = linked
        return
    last, follower = len(ids) - 1, int(measures.followers(ids)[-1])
    state.atlas_queries, state.atlas_keys = [last], [follower if follower > 0 else max(last - 1, 0)]


def _ranked(atlas: Atlas, weights: np.ndarray, what: str, key: str) -> None:
    order = np.argsort(-np.nan_to_num(weights, nan=-1.0), axis=None, kind="stable")[:MAX_SHOWN]
    heads = [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, weights.shape), strict=True)]
    ranked = [(atlas.name(head), float(weights[head]), called(atlas, head)) for head in heads]
    st.html(ranked_table(ranked, what))
    st.button(say("Show {head}", head=atlas.name(heads[0])), key=key, on_click=controls.take_head, args=heads[0])
