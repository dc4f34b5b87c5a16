"""The Head atlas's files: the scatter for print, examples of the chosen head, the table of all heads."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from i18n import N_, say, say_count, together
from model.atlas.result import MEASURES, NAMES, Atlas, Example
from model.atlas.table import as_parquet, examples_table, heads_table, measures_table
from model.base import Model
from model.masks import MaskSpec
from ui import controls, explain
from ui.guard import guarded
from ui.head_atlas import controls as atlas_controls
from ui.results import cached_figure
from ui.widgets.uploads import download
from viz.export.words import version
from viz.head_atlas.tables import called, deciles_html

TEXTS = {
    "sample": N_("the sample included with Unmask"),
    "text": N_("those in the page's text box"),
    "file": N_("a file"),
    "random": N_("random tokens repeated twice"),
}


def offer(atlas: Atlas, model: Model, masks: MaskSpec, texts: str, x: str, y: str, chosen: tuple[int, int]) -> None:
    """What the scatter shows, in a popover: its files are made when they are asked for. texts: a key of TEXTS."""
    slot = st.popover(say("Picture for print"), icon=":material/image:", key="atlas_picture", on_change="rerun")
    if not slot.open:
        return
    from ui import printed  # matplotlib takes a second, and nothing else here needs it
    from viz.export import words
    from viz.export.paper import atlas_picture

    name = explain.plain_title(model)
    on, lifted = controls.held_and_lifted(model, masks)

    def caption() -> str:
        what = say_count(
            "The {heads} attention heads of {model}, measured over {count} text of {tokens:,} tokens.",
            "The {heads} attention heads of {model}, measured over {count} texts, {tokens:,} tokens in all.",
            atlas.texts,
            **{"heads": atlas.layers * atlas.heads, "model": name, "tokens": atlas.read},
        )
        which = say("Texts: {which}.", which=say(TEXTS[texts]))
        held = say("Masks: {masks}.", masks=words.masks_said(on, lifted, only_layer=False))
        return together([what, which, held, *words.of_atlas(atlas, x, y), f"Unmask {version()}."])

    of = atlas, x, y, chosen
    found = printed.PrintedPicture(atlas_picture, of, lambda: say("{model} · all heads", model=name), caption, [])
    with slot, guarded(say("Drawing …")):
        printed.say_what_has_no_font(found)
        printed.offer(found, "head_atlas")


SHOWN_EACH = 3  # examples of a tenth
HEAD_COLUMNS = {"layer": N_("Layer"), "head": N_("Head"), "called": N_("Pattern")}


def examples(atlas: Atlas, layer: int, head: int) -> None:
    with st.container(width=260):
        by = atlas_controls.choose_by(atlas, layer, head)
    deciles = atlas.deciles(by, layer, head, SHOWN_EACH)
    if not deciles:
        st.info(say("No sampled query of these texts has a {measure} measure.", measure=say(MEASURES[by].title)))
        return
    sampled = sum(decile.queries for decile in deciles)
    words = N_(
        "A random sample of {sampled:,} of {queries:,} queries, split into tenths; {each} random examples of each "
        "tenth. Framed: the query. Coloured: the keys with the largest weights, at most 5; point at one for its weight."
    )
    queries = int(atlas.counts[NAMES.index(by), layer])
    st.caption(say(words, sampled=sampled, queries=queries, each=SHOWN_EACH))
    st.html(cached_figure(deciles_html, deciles, by))
    _take_to_explore([one for decile in deciles for one in decile.examples])


def table(atlas: Atlas, model: Model, about: dict[str, object]) -> None:
    frame = measures_table(atlas)
    columns = {
        name: st.column_config.NumberColumn(say(one.title), help=atlas_controls.words(name), format="%.3f")
        for name, one in MEASURES.items()
    }
    columns |= {name: st.column_config.Column(say(title)) for name, title in HEAD_COLUMNS.items()}
    columns["called"]["width"] = "medium"  # else as wide as what the first heads are called
    shown = frame.assign(called=[called(atlas, head) for head in np.ndindex(atlas.layers, atlas.heads)])
    look: Any = {"hide_index": True, "column_config": columns, "height": 420, "selection_mode": "single-row"}
    st.dataframe(shown, key="atlas_table", on_select=partial(_take_row, atlas.heads), **look)
    name = f"atlas_{model.name.rpartition('/')[2]}"
    every, some = lambda: as_parquet(heads_table(atlas), about), lambda: as_parquet(examples_table(atlas), about)
    with st.container(horizontal=True):
        download(say("This table as CSV"), frame.to_csv(index=False), f"{name}.csv", "text/csv")
        download(say("All data as Parquet"), every, f"{name}.parquet")
        download(say("The examples as Parquet"), some, f"{name}.examples.parquet")


def _take_row(heads: int) -> None:
    rows = st.session_state.atlas_table.selection.rows
    if rows:
        st.session_state.layer, st.session_state.head = divmod(rows[0], heads)


def _take_to_explore(found: list[Example]) -> None:
    with_text = [one for one in found if one.text]
    if not with_text:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        numbered = lambda number: f"{number + 1}. {_named(with_text[number])}"  # noqa: E731
        label = say("See one on Explore, with all weights")
        number = st.selectbox(label, range(len(with_text)), key="atlas_example", format_func=numbered)
        if st.button(say("Open"), icon=":material/grid_view:", key="atlas_open"):
            one = with_text[number]
            own = dict.fromkeys(("begin", "end", "zoom")) | {"text": one.text, "row": 1, "query": one.query}
            st.session_state.kept |= own  # what a page newly come to takes its choices from
            st.switch_page("app.py")


def _named(one: Example) -> str:
    before = "".join(one.pieces[max(one.query - 5, 0) : one.query + 1]).replace("·", " ")
    return f"… {before}"
