"""The views of the chosen head, one at a time: the others are neither computed nor sent."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from i18n import N_, say, together
from model.attribution.score_split import carried, direct_effect, score_split
from model.errors import NotSupported
from model.heads.view import HeadView
from ui import page, results, run_view
from ui.heads import head as head_picture
from ui.heads import query
from ui.heads.head import ABOVE, MIN_SIDE, canvas
from ui.heads.query import Moves
from ui.link import PINS
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.streamlit_internals.selectors import css
from ui.widgets import bound, component_value, one_of
from viz.figure_table import head_table
from viz.heads.attribution import (
    contribution_sentence,
    contributions_table,
    effect_table,
    largest_dimensions,
    pairs_table,
    sources_table,
    strips_figure,
    sum_words,
)
from viz.heads.bars import MAX_SORTED, bars_figure, remaining_keys_sentence, row_of, weight_distribution_sentence
from viz.heads.cells import weight_text
from viz.heads.colours import PALETTES, Colours, key_names, numbers_table
from viz.heads.colours import shown as numbers_part
from viz.heads.tokens import (
    MAX_HEADS,
    arcs_packet,
    arcs_part,
    colour_scale_sentence,
    left_out,
    tokens_packet,
    tokens_part,
)
from viz.heatmap import margin
from viz.html import paragraph, signed
from viz.palette import WIDE

OF_TOKENS = ("carried", "why")  # views of single tokens, which are not offered when tokens are merged


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """The head to draw. view, standard: the whole head under the current and the standard masks, the same if unchanged.

    name: the head's, "L3 H2"; layer, head: as the run counts them. part: the positions shown large, [begin, end).
    moves: how arrow keys move the query.
    """

    now: RunView
    view: HeadView
    standard: HeadView
    layer: int
    head: int
    name: str
    part: tuple[int, int]
    moves: Moves

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return function(model, trace, row, *arguments), of model/, cached. Raises as results.ask."""
        return results.ask(function, self.now.run.model, self.now.run, self.now.row, *arguments)

    @property
    def views(self) -> list[HeadView]:
        """The whole head now and, if it differs, as standard."""
        return [self.view, self.standard] if self.changed else [self.view]

    @property
    def query(self) -> int:
        return self.moves.query

    @property
    def across(self) -> bool:
        return self.now.run.attention == "cross"

    @property
    def changed(self) -> bool:
        return self.standard is not self.view


def choice_setter(name: str) -> Callable[[], None]:
    """Return a callback that sets choices to the values of the same names that this component sent, if valid."""

    def take() -> None:
        query.take(name)
        sent = component_value(name)
        if isinstance(sent.get("pins"), str):
            st.session_state.pins = sent["pins"] if re.fullmatch(PINS, sent["pins"]) else None
        if sent.get("towards") in ("at", "by"):
            st.session_state.towards = sent["towards"]
        for choice, value in (("token_values", sent.get("values")), ("hide_first", sent.get("hide_first"))):
            if isinstance(value, bool):
                st.session_state[choice] = value
        if isinstance(sent.get("least"), float | int) and 0 < sent["least"] <= 1:
            st.session_state.least = float(sent["least"])

    return take


def show(now: RunView, views: list[HeadView], layer: int, head: int, name: str, part: tuple[int, int]) -> None:
    """Draw the row of views, and the chosen one. views: the whole head now and, if it differs, as standard; if not, the
    tokens may be drawn beside the heatmap, in whose column this is called."""
    offered = {view: label for view, (label, _) in VIEWS.items() if now.by == "tokens" or view not in OF_TOKENS}
    if st.session_state.view not in offered:
        st.session_state.view = "tokens"
    shown = one_of(say("This head as"), offered, "view", label_visibility="collapsed")
    _, draw = VIEWS[shown]
    draw(ChosenHead(now, views[0], views[-1], layer, head, name, part, query.moves(now, part)))


def colours() -> Colours:
    """Return what the heatmap's colours mean, as chosen in the view Numbers."""
    state = st.session_state
    return Colours(state.palette, state.colours_to, state.brightness)


_tokens = canvas("tokens")

BESIDE = """<style>@media (min-width: 1600px) {
  $column:has(.st-key-tokens_beside) { position: relative; container-type: inline-size; }
  $column:has(.st-key-tokens_beside) div:has(> .st-key-tokens_beside) { position: static; }
  .st-key-tokens_beside { /* the room of a comparison, which a head without one leaves empty: ui/heads/head.py's ROOM */
    --side: clamp(MIN_SIDE, min((100cqw - var(--across)) / WIDE, 100dvh - ABOVEpx - var(--down)), 70rem);
    position: absolute; top: var(--top); left: calc(var(--side) + var(--across)); right: 0; width: auto;
    max-height: var(--side); overflow-y: auto; padding-bottom: .9rem; } /* its last button stands so much lower */
}
@media (max-width: 1599.9px) { .st-key-said_beside { display: none; } }</style>"""


def show_tokens(chosen: ChosenHead) -> None:
    """Draw the tokens below the heatmap or, in a wide window without a comparison or slider, beside it."""
    # always, though only tokens beside the heatmap need it: when rules come or go, a browser restyles the whole page
    st.html(css(BESIDE.replace("WIDE", str(WIDE)).replace("ABOVE", str(ABOVE)).replace("MIN_SIDE", MIN_SIDE)))
    if chosen.changed or chosen.part != (0, len(chosen.view.queries)):
        draw_tokens(chosen)
        return
    room = margin(chosen.view.queries, chosen.view.keys)
    sizes = {"across": room["l"] + room["r"], "down": room["t"] + room["b"], "top": room["t"]}
    given = " ".join(f"--{name}: {pixels}px;" for name, pixels in sizes.items())
    st.html(f"<style>.st-key-tokens_beside {{ {given} }}</style>")
    with st.container(key="said_beside"):
        st.caption(say("The tokens are beside the heatmap."))
    with st.container(key="tokens_beside"):
        draw_tokens(chosen)


def draw_tokens(chosen: ChosenHead) -> None:
    """Draw the tokens; what the user picks there sets the choices "query", "pins", "towards" and "token_values"."""
    state, key = st.session_state, "head_tokens"
    part = tokens_part(chosen.view, chosen.part, chosen.query)
    packet = cached_figure(
        tokens_packet,
        part,
        name=chosen.name,
        query=chosen.query,
        among=chosen.moves.span,
        pins=[int(position) for position in (state.get("pins") or "").split(",") if position],
        towards=state.towards,
        across=chosen.across,
        choices={"values": state.token_values},
    )
    callbacks = dict.fromkeys(
        ("on_query_change", "on_pins_change", "on_towards_change", "on_values_change"), choice_setter(key)
    )
    _tokens(data=packet, key=key, tables=lambda: [head_table(part, chosen.name)], **callbacks)
    if note := together(filter(None, (left_out(chosen.view, part, chosen.query), colour_scale_sentence(part)))):
        st.caption(note)


_arcs = canvas("arcs")


def show_arcs(chosen: ChosenHead) -> None:
    """Draw the head as arcs, with other chosen heads of its layer; a click chooses the query."""
    now, key = chosen.now, "head_arcs"
    others = choose_heads(now, chosen.layer, chosen.head)
    views = [chosen.view, *(now.head(chosen.layer, head) for head in others)]
    parts = [arcs_part(view, chosen.part, chosen.query) for view in views]
    names = [chosen.name, *(now.name(chosen.layer, head) for head in others)]
    packet = cached_figure(
        arcs_packet,
        parts,
        names,
        query=chosen.query,
        among=chosen.moves.span,
        first_token=int(now.keep().argmax()),  # that is not padding
        across=chosen.across,
        choices={name: st.session_state[name] for name in ("least", "hide_first")},
    )
    callbacks = dict.fromkeys(("on_query_change", "on_least_change", "on_hide_first_change"), choice_setter(key))
    _arcs(data=packet, key=key, tables=lambda: list(map(head_table, parts, names)), **callbacks)
    if note := left_out(chosen.view, parts[0], chosen.query):
        st.caption(note)


def choose_heads(now: run_view.RunView, layer: int, chosen: int) -> list[int]:
    """Let the user choose other heads of the layer, the choice "heads"."""
    offered = [head for head in range(run_view.shape_of(now)[1]) if head != chosen]
    picked = [int(head) for head in (st.session_state.get("heads") or "").split(",") if head]
    added = [head for head in picked if head in offered][: MAX_HEADS - 1]
    others = say("Other heads of {layer}", layer=run_view.name_of(now.model, now.run.attention, layer))
    take = lambda heads: st.session_state.update(heads=",".join(map(str, heads)) or None)  # noqa: E731
    look = bound("arcs_heads", added, take) | {"placeholder": others, "label_visibility": "collapsed"}
    name = partial(now.name, layer)
    return st.multiselect(others, offered, format_func=name, max_selections=MAX_HEADS - 1, **look)


def show_bars(chosen: ChosenHead) -> None:
    """Draw the query's row as bars; a click on one chooses its token as the query."""
    row = row_of(chosen.view, chosen.standard if chosen.changed else None, chosen.query)
    st.html(cached_figure(weight_distribution_sentence, row))
    st.toggle(say("Largest first"), key="sorted")
    about = say("The weights of {query} in {head}, a bar for each key.", query=row.name, head=chosen.name)
    largest = say("Every key is blocked.")
    if len(top := row.largest(1)):
        template = N_("The largest, {weight}, is that of {key} ({token}).")
        largest = say(template, weight=weight_text(row.now[top[0]]), key=top[0], token=row.view.keys[top[0]])
    figure = cached_figure(bars_figure, row, largest_first=st.session_state.sorted)
    with st.container(key="bars_of_query"):
        page.chart(figure, "head_bars", together([about, largest]), callbacks=head_picture.callbacks("head_bars"))
    query.listen_for_query_keys("bars_of_query", say("Bars"), chosen.moves, role="application")
    if st.session_state.sorted and remaining_keys_sentence(row, MAX_SORTED):
        st.caption(remaining_keys_sentence(row, MAX_SORTED))


ABOUT = N_(
    "|v| is the norm of a key's value vector; weight × |v| is the norm of its weighted value (Kobayashi et al. 2020)."
)
ADDS = N_(
    "*adds*: the norm of what the key adds to the residual stream, after the output projection. Contributions of "
    "different keys may cancel."
)
EFFECT = N_(
    "The head's direct effect on the logits of the token after the query, bypassing all later layers, with the scale "
    "of the final norm frozen; relative to its mean effect on all tokens, {mean}."
)
CAPPED = N_("The model caps its logits; this is before the cap.")


def show_carried(chosen: ChosenHead) -> None:
    """Draw a table of keys and, if the model allows it, one of next tokens."""
    keys, subject = chosen.view.keys, (chosen.now.masks, chosen.layer, chosen.head, chosen.query)
    name = f"{chosen.query}: {chosen.view.queries[chosen.query]}"
    found = chosen.ask(carried, *subject)
    with st.container(key="carried_of_query"):
        st.html(contribution_sentence(found, name, keys))
        left, right = st.columns([1.5, 1], gap="medium")
    query.listen_for_query_keys("carried_of_query", say("Value × weight"), chosen.moves)
    left.html(contributions_table(found, keys))
    left.caption(say(ABOUT) if found.added is None else together([say(ABOUT), say(ADDS)]))
    with right:
        try:
            effect = chosen.ask(direct_effect, *subject)
        except NotSupported as error:
            st.caption(say("{clauses}.", clauses=escaped(error)))
            return
        st.html(effect_table(effect))
        about = say(EFFECT, mean=signed(effect.mean))
        st.caption(together([about, say(CAPPED)]) if effect.capped else about)


SOURCES = N_(
    "A norm divides by the scale of its input. With that scale frozen, the score is a sum over pairs: what one source "
    "wrote into the query times what another wrote into the key. *biases*: those of projections and norms."
)


def show_why(chosen: ChosenHead) -> None:
    """Explain one cell's score: the query, and the key that is chosen here or by a click on the heatmap."""
    hint = say("Click a cell of the heatmap to choose its query and key.")
    view, at = chosen.view, chosen.query
    key = query.choose_key(view, at, hint)
    with st.container(key="why_of_query"):
        found = chosen.ask(score_split, chosen.layer, chosen.head, at, key)
        names = f"{at}: “{view.queries[at]}”", f"{key}: “{view.keys[key]}”"
        blocked = [name for name, mask in view.blocked.items() if mask[at, key]]
        score, weight = float(view.scaled[at, key]), weight_text(view.weights[at, key])
        st.html(paragraph(sum_words(found, *names, score=score, weight=weight, blocked=blocked), "key"))
        largest = largest_dimensions(found)
        words = N_("The {count} numbers of the query, of the key, and their products. {largest}")
        alt = say(words, count=len(found.q), largest=largest)
        page.chart(strips_figure(found, dark=page.is_dark()), "why_strips", alt)
        st.caption(say("Blue is below 0, red above. {largest}", largest=largest))
        if found.sources is None:
            st.caption(say("The score is not split by source. {reason}.", reason=escaped(found.why_not)))
        else:
            pairs, writers, written = st.columns(3, gap="medium")
            pairs.html(pairs_table(found))
            writers.html(sources_table(found, "query"))
            written.html(sources_table(found, "key"))
            st.caption(say(SOURCES))
    query.listen_for_query_keys("why_of_query", say("Why this cell"), chosen.moves)


RANGES = {"largest": N_("the largest weight"), "one": "1", "percentile": N_("the 99th percentile")}
BRIGHTNESS = {"root": N_("the square root"), "linear": N_("the weight")}


def show_numbers(chosen: ChosenHead) -> None:
    """Draw the numbers as a table; its controls act on the heatmap above."""
    with st.container(horizontal=True, gap="medium"):
        one_of(say("The heatmap's colours"), {name: name for name in PALETTES}, "palette", width="content")
        one_of(say("Brightest at"), RANGES, "colours_to", width="content")
        one_of(say("Brightness shows"), BRIGHTNESS, "brightness", width="content")
    part = numbers_part(chosen.view, chosen.part, chosen.query)
    row, column = chosen.query - part.first, query.chosen_key(chosen.view, chosen.query) - part.first_key
    cells = []  # mark the cell of the query and the key, or of its largest weight in the table
    if 0 <= row < len(part.queries):
        shown = 0 <= column < len(part.keys)
        cells = [(row, key_names(part)[column if shown else int(part.weights[row].argmax())])]
    st.session_state.head_numbers_marked = cells
    if _marked() != cells:
        st.session_state.head_numbers = {"selection": {"cells": cells}}
    alt = say("The weights of {head}, a row for each query.", head=chosen.name)
    look: Any = {"height": 380, "alt": alt, "selection_mode": "single-cell"}
    st.dataframe(numbers_table(part), key="head_numbers", on_select=partial(_take_cell, part), **look)
    about = say("Rows are queries, columns keys; a cell that a mask blocks names the mask.")
    choose = say("Click a cell, or use the arrow keys in the table, to choose its query and key.")
    st.caption(together([about, choose, left_out(chosen.view, part, chosen.query)]))


def _take_cell(part: HeadView) -> None:
    """Choose the query and the key of the cell that was chosen in the table, by a click or by keys.

    The browser also sends back the cell that the page itself marked, which is no choice.
    """
    if _marked() == st.session_state.head_numbers_marked:
        return
    for row, name in _marked():
        st.session_state.query = part.first + row
        st.session_state.key = part.first_key + key_names(part).index(name)


def _marked() -> list[tuple[int, str]]:
    """Return the cells that are marked in the table: one, or none."""
    state = st.session_state.get("head_numbers")
    return [(row, name) for row, name in state["selection"]["cells"]] if state else []


def show_span(chosen: ChosenHead) -> None:
    """Draw several queries together: those typed, else those dragged over, else all that are shown."""
    queries = query.choose_span(chosen.now, chosen.part)
    how, of = st.session_state.pooled, (chosen.now, chosen.views, (chosen.layer, chosen.head), queries)
    row, of_means = query.span_row(*of, how), query.span_row(*of, "mean")
    st.html(cached_figure(weight_distribution_sentence, of_means, row))
    st.toggle(say("Largest first"), key="sorted")
    figure = cached_figure(bars_figure, row, largest_first=st.session_state.sorted)
    about = N_("The {how} of the weights of queries ({count}) from {query} on in {head}, a bar for each key.")
    values = {"how": say(query.POOLED[how]), "count": len(queries), "query": row.name, "head": chosen.name}
    page.chart(figure, "span_bars", say(about, **values))
    if st.session_state.sorted and remaining_keys_sentence(of_means, MAX_SORTED):
        st.caption(remaining_keys_sentence(of_means, MAX_SORTED))


VIEWS: dict[str, tuple[str, Callable[[ChosenHead], None]]] = {
    "tokens": (N_("Tokens"), show_tokens),
    "arcs": (N_("Arcs"), show_arcs),
    "bars": (N_("Bars"), show_bars),
    "carried": (N_("Value × weight"), show_carried),
    "why": (N_("Why this cell"), show_why),
    "numbers": (N_("Numbers"), show_numbers),
    "span": (N_("Several queries"), show_span),
}
