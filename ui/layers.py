"""The pictures of the Across layers page: the logit lens, one query layer by layer, and all queries at one layer."""

from dataclasses import replace
from functools import partial
from typing import Literal

import plotly.graph_objects as go
import streamlit as st

from i18n import N_, say, together
from model.base import Model
from model.heads.layers import LayerMaps, LogitLens, layer_maps, logit_lens, token_flow
from model.heads.view import HeadView, coarser_words, cropped
from ui import explain, link, page, results
from ui.heads import head as head_picture
from ui.heads import query as queries
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView, layer_names
from viz import layers as pictures
from viz.head import comparison_figure, head_figure
from viz.heads.cells import merged_words
from viz.palette import WIDE

Across = Literal["lens", "token", "all"]
Over = Literal["mean", "maximum", "rollout", "flow"]
SECTIONS = {"lens": N_("Logit lens"), "token": N_("One query, layer by layer"), "all": N_("All queries")}
OVER = {
    "mean": N_("mean over heads"),
    "maximum": N_("maximum over heads"),
    "rollout": N_("rollout"),
    "flow": N_("flow"),
}
HELP = N_(
    "Mean, maximum: of the weights of a layer's heads. Rollout: how much of a token's state comes from each token by "
    "the end of a layer, each layer counted as half its heads' mean and half the residual connection. Flow: the "
    "maximum flow from one token through those layers, with weights as capacities (Abnar and Zuidema 2020), for one "
    "token only: flows to several share capacities and cannot be added."
)


class LayersLink(link.View):
    LEFT_OUT = ("masks", "section", "scope", "head")
    across: Across = "lens"
    over: Over = "rollout"


MAX_LENS = 64  # most rows of the table
MAX_BESIDE = 9  # most columns of the table that leave room beside it
BEFORE, STEP = 40, 16  # in a longer text: the fewest rows before the query, and by how many the rows move
UNITS = {"mean": N_("mean weight"), "maximum": N_("largest weight"), "rollout": N_("rollout"), "flow": N_("flow")}
ATTENTION_ALONE = N_(
    "Rollout and flow use only attention weights: they ignore the size of the value vectors and the MLPs."
)
COLUMNS = {
    "tokens": N_("Rows: layers, the first on top. Columns: the tokens that “{token}” ({position}) attends to."),
    "words": N_("Rows: layers, the first on top. Columns: the words that “{token}” ({position}) attends to."),
    "sentences": N_("Rows: layers, the first on top. Columns: the sentences that “{token}” ({position}) attends to."),
}
LENS = N_(
    "The state after each layer goes through the model's own final norm (if it has one) and unembedding, as if no "
    "layer followed (nostalgebraist 2020, *interpreting GPT: the logit lens*). Only the last column was trained to be "
    "read this way."
)


def show_lens(now: RunView, standard: RunView | None, query: int) -> str:
    """Draw the table of the logit lens, and the query's candidates. Returns the page's sentence."""
    if now.model.kind == "encoder" or not now.model.predicts:
        st.info(explain.no_predictions(now.model))
        return say("There is nothing to predict here; the other two pictures show its attention.")
    real, pieces = now.real, now.tokens
    begin, end = lens_part(real.start, real.stop, query)
    found, *others = [_lens(view, begin, end) for view in (now, standard) if view is not None]
    other = others[0] if others else None
    positions = {position: pieces[position] for position in range(begin, end)}
    if (begin, end) != (real.start, real.stop):
        words_of = N_("{shown} of {count:,} positions are shown, those around the query: {first} to {last}.")
        st.caption(say(words_of, shown=end - begin, count=real.stop - real.start, first=begin, last=end - 1))
    inside = begin <= query < end
    beside = len(found.ids) <= MAX_BESIDE
    left, right = st.columns([1.6, 1], gap="small") if beside else (st.container(), st.container())
    left.html(
        cached_figure(pictures.lens_table, found, positions, query, other) + pictures.key(compared=other is not None)
    )
    if inside:
        right.markdown("#### " + say("After “{token}”, layer by layer", token=escaped(pieces[query])))
        right.html(cached_figure(pictures.candidates_table, found, query - begin))
    after = say("What follows a word or a sentence is what follows its last token.") if now.by != "tokens" else ""
    st.caption(together(filter(None, [after, say(LENS)])))
    if not inside:
        return say("The query is padding: choose another.")
    return cached_figure(pictures.lens_sentence, found, query - begin, pieces[query], other)


def lens_part(begin: int, end: int, chosen: int) -> tuple[int, int]:
    """Return the positions shown in the table, [begin, end): all real ones, or MAX_LENS around the query.

    They stay the same for STEP consecutive queries, because other positions need another run of the model.
    """
    if end - begin <= MAX_LENS:
        return begin, end
    first = begin + max(chosen - BEFORE - begin, 0) // STEP * STEP
    first = min(first, end - MAX_LENS)
    return first, first + MAX_LENS


def show_token(now: RunView, standard: RunView | None, query: int, over: Over) -> str:
    """Draw what one query attends to in each layer, as layers by keys. Returns the page's sentence."""
    runs, real, piece = [view for view in (now, standard) if view is not None], now.real, now.tokens[query]
    whole = [view.cached(("token", over, query), partial(_token, view, query, over)) for view in runs]
    view, *others = whole
    if all(view.masks.padding for view in runs):
        view, *others = [cropped(one, (0, len(one.queries)), (real.start, real.stop)) for one in (view, *others)]
    other = others[0] if others else None
    figure = cached_figure(pictures.token_figure, view, other, say(UNITS[over]), dark=page.is_dark())
    page.chart(figure, "token_layers", pictures.token_alt(view, say(UNITS[over]), piece))
    alone = _attention_alone(now.model, over)
    rows = say(COLUMNS[now.by], token=escaped(piece), position=query)
    st.caption(together(filter(None, [rows, pictures.reduced_words(view), merged_words(now.by), alone])))
    return pictures.token_sentence(whole[0], over, query, piece, *whole[1:])  # uncropped: a padding query has no column


def show_all(
    now: RunView, standard: RunView | None, query: int, over: Over, layer: int, name: str, part: tuple[int, int]
) -> str:
    """Draw queries by keys at one layer. Returns a sentence about the query."""
    runs = [view for view in (now, standard) if view is not None]
    views = [view.cached(("map", over, layer), partial(_map, view, over, layer)) for view in runs]
    picture, below = st.container(), st.container()
    with below:
        part = head_picture.without_padding(part, now.keep(), masked=bool(now.masks.padding))
        rows, columns = head_picture.zoomed(part, part)
    shown = [cropped(view, rows, columns) for view in views]
    figure = cached_figure(_map_figure, shown, say(UNITS[over]), dark=page.is_dark(), query=queries.picked())
    what = {"what": say(OVER[over]).capitalize(), "layer": name}
    with picture:
        sizes = dict(zip(("queries", "keys"), shown[0].weights.shape, strict=True))
        alt = say("{what} in {layer}, {queries} × {keys} (queries × keys).", **sizes, **what)
        head_picture.show(figure, alt, room="pair", zooms=True, moves=queries.moves(now, part))
    shown_of = say("{what} by the end of {layer}.", **what) if over == "rollout" else say("{what} in {layer}.", **what)
    alone = _attention_alone(now.model, over)
    st.caption(together(filter(None, [shown_of, coarser_words(shown[0]), merged_words(now.by), alone])))
    of_query = [replace(cropped(view, (query, query + 1), (0, len(view.keys))), queries=[name]) for view in views]
    return pictures.token_sentence(of_query[0], over, query, now.tokens[query], *of_query[1:])


def _attention_alone(model: Model, over: Over) -> str:
    """Return a note on what rollout and flow leave out; "" for the other measures."""
    if over not in ("rollout", "flow"):
        return ""
    return together([say(ATTENTION_ALONE), *([say(explain.NOT_COUNTED)] if model.describe().other_layers() else [])])


def _lens(of: RunView, begin: int, end: int) -> LogitLens:
    tokens = tuple(map(of.last_token, range(begin, end)))
    return results.ask(logit_lens, of.run.model, of.run.batch, of.masks, of.row, tokens)


def _maps(of: RunView, over: Over) -> LayerMaps:
    return of.ask(layer_maps, "mean" if over == "flow" else over, of.by)


def _map(of: RunView, over: Over, layer: int) -> HeadView:
    return _maps(of, over).view(layer)


def _token(of: RunView, query: int, over: Over) -> HeadView:
    """Return the weights of one query on all keys, a row for each layer."""
    maps = _maps(of, over)
    values = of.ask(token_flow, query) if over == "flow" else maps.maps[:, query]
    return HeadView(
        values, values, maps.blocked_from(query, values), layer_names(of.model, of.run.attention), maps.labels
    )


def _map_figure(views: list[HeadView], unit: str, *, dark: bool, query: int | None) -> go.Figure:
    # Plotly draws no axes if no cell has a number: these numbers keep them when all cells are blocked
    views = [replace(view, scaled=view.weights) for view in views]
    if len(views) > 1:
        figure = comparison_figure(*views, dark=dark, query=query)
    else:
        figure = head_figure(views[0], dark=dark, wide=WIDE, query=query)
    # these weights are not those of one head, and have no scores: remove both from the hover texts
    cell = say("<b>%{y}</b> on <b>%{x}</b>")
    for trace in figure.to_dict()["data"]:  # edit the data in place: the figure was made just now
        if trace.get("name") == "weights":
            trace.pop("customdata", None)
            trace["hovertemplate"] = cell + f"<br>{unit} %{{z:.4f}}<extra></extra>"
            if "colorbar" in trace:
                trace["colorbar"]["title"]["text"] = unit
        elif trace.get("name") == "blocked":
            trace["hovertemplate"] = cell + "<br>" + say("blocked by the masks") + "<extra></extra>"
    return figure
