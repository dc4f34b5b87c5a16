"""Reach: after how many layers a token can know of another, beside what one layer lets it look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import say, say_count, together
from model.heads.view import HeadView, coarser, reduced
from viz import heatmap
from viz.heatmap import Part, axes, blocked_traces, cells, colour_bar, hatching
from viz.html import join, tag
from viz.palette import TWO, table

LEFT, RIGHT = (0.0, 1 / TWO), (1 - 1 / TWO, 1.0)
NEVER = {True: "#2a2d33", False: "#e4e6eb"}  # in the dark and in the light
MOST_CELLS = 192  # a side: two pictures share the width


@dataclass(frozen=True, eq=False)
class ReachView:
    """T tokens in L layers.

    first: int [T,T], after how many layers, 1 to L, the query can know of the key; 0 = never.
    window, seen: int [L,T], how many keys a query may look at in each layer alone, and can know of after it.
    layer, blocked: one layer, and for each mask that is on in it bool [T,T], True = no head may look, for this mask.
    tokens: a label for each position. query: the picked one. names: of all layers.
    """

    first: np.ndarray
    window: np.ndarray
    seen: np.ndarray
    layer: int
    blocked: dict[str, np.ndarray]
    tokens: list[str]
    query: int
    names: Sequence[str]


def reach_figure(view: ReachView, *, dark: bool) -> go.Figure:
    """Left, what one layer lets through; right, after how many layers: two pictures that zoom together."""
    mask = coarser(_as_head(view), MOST_CELLS)
    left = axes(mask)
    left["yaxis"]["scaleanchor"] = None  # two pictures of one size fill the width
    left["xaxis"]["domain"] = LEFT
    right = axes(mask, "2", tokens=False)
    right["xaxis2"] |= {"domain": RIGHT, "matches": "x"}
    right["yaxis2"]["matches"] = "y"
    alone = say("layer {layer} alone: what a token may attend to", layer=view.names[view.layer])
    stacked = say_count("stacked: after how many of {count} layer it can depend on it",
                        "stacked: after how many of {count} layers it can depend on it", len(view.window))  # fmt: skip
    layout = {
        "margin": heatmap.margin(mask.queries, mask.keys, step=mask.step) | {"autoexpand": False},
        "annotations": [heatmap.title(f"<b>{text}</b>", x, 1) for text, x in ((alone, 0), (stacked, RIGHT[0]))],
        "images": hatching(mask.blocked, dark=dark),
        "shapes": heatmap.frames(mask, view.query, "", "2"),
    }
    return heatmap.figure(_mask_traces(mask) + _reach_traces(view, mask, dark=dark), layout | left | right)


def reach_table(view: ReachView) -> str:
    """HTML: the picked query's numbers after each layer; layers that change nothing share a row."""
    rows, before = [], None
    seen, window = view.seen[:, view.query], view.window[:, view.query]
    for layer, numbers in enumerate(zip(window.tolist(), seen.tolist(), strict=True)):
        if numbers == before:
            rows[-1][1] = layer
        else:
            rows.append([layer, layer])
        before = numbers
    head = tag("tr", join([
        tag("th", say("after")), tag("th", say("may attend to in that layer"), class_="number"),
        tag("th", say("can depend on"), class_="number"), tag("th"), tag("th", say("farthest back")),
    ]))  # fmt: skip
    return f'<table class="numbers">{head}{"".join(_table_row(view, *row) for row in rows)}</table>'


def reach_sentence(view: ReachView) -> str:
    """HTML: what to notice, of the picked query."""
    seen, alone = int(view.seen[-1, view.query]), int(view.window[view.layer, view.query])
    words = Markup(say("In layer {layer}, <b>{token}</b> (position "
                       "{position}) may attend to {alone}; {stacked}")).format(
        layer=view.names[view.layer], token=view.tokens[view.query], position=view.query, alone=_tokens(alone),
        stacked=_stacked(view, alone, seen),
    )  # fmt: skip
    ahead = int((view.first[view.query, view.query + 1 :] > 0).sum())
    if ahead:
        later = say_count("{count} of them comes later in the text.", "{count} of them come later in the text.", ahead)
        words = Markup(together([words, escape(later)]))
    return tag("p", words, class_="sentence")


def _stacked(view: ReachView, alone: int, seen: int) -> str:
    """What all layers together add to the one that is shown."""
    layers = len(view.window)
    told = {"after": say_count("after {count} layer", "after all {count} layers", layers), "known": _tokens(seen)}
    if alone == seen:  # what a query may look at is among what it can know of
        return say("{after} it can depend on no other: no path goes farther.", **told)
    if seen == 1:
        return say("{after} it can depend only on itself, because its own state is carried along.", **told)
    settled = int((view.seen[:, view.query] < seen).sum()) + 1
    if settled < layers:
        return say_count("{after} it can depend on {known}; the first layer is enough.",
                         "{after} it can depend on {known}; the first {count} layers are enough.",
                         settled, **told)  # fmt: skip
    return say("{after} it can depend on {known}.", **told)


def _tokens(count: int) -> str:
    return say_count("{count} token", "{count} tokens", count) if count else say("no token")


def _table_row(view: ReachView, begin: int, end: int) -> str:
    reached = view.first[view.query]
    known = (reached > 0) & (reached <= begin + 1)
    back = view.query - int(np.flatnonzero(known).min())
    seen = int(view.seen[begin, view.query])
    last, names = say_count("{count} layer", "{count} layers", end + 1), (view.names[begin], view.names[end])
    after = last if begin == end else say("{first} to {last}", first=begin + 1, last=last)
    where = names[0] if names[0] == names[1] else say("{first} to {last}", first=names[0], last=names[1])
    bar = f'<div class="bar" style="width:{100 * seen / len(view.tokens):.1f}%;background:{_colours(1)[0]}"></div>'
    farthest = (
        say("{count:,} back: {token}", count=back, token=escape(view.tokens[view.query - back])) if back > 0 else "–"
    )
    return (
        f'<tr><td>{after} ({where})</td><td class="number">{int(view.window[begin, view.query]):,}</td>'
        f'<td class="number">{seen:,}</td><td class="track">{bar}</td><td class="token">{farthest}</td></tr>'
    )


def _as_head(view: ReachView) -> HeadView:
    """The mask with the axes, and the coarseness, of all other heatmaps."""
    shape = view.first.shape
    return HeadView(np.zeros(shape, np.float32), np.zeros(shape, np.float32), view.blocked, view.tokens, view.tokens)


def soonest(first: np.ndarray, step: int) -> np.ndarray:
    """int [T,T] -> [T/step,T/step]: the smallest number of layers in each patch; 0 where all are 0."""
    never = np.iinfo(np.int32).max
    least = reduced(np.where(first > 0, first.astype(np.int32), never), step, np.minimum, never)
    return np.where(least == never, 0, least)


def _reach_traces(view: ReachView, mask: HeadView, *, dark: bool) -> list[Part]:
    numbers = soonest(view.first, mask.step)
    most = int(numbers.max())
    every = -(-most // 12)  # so many numbers at the colour bar
    ticks = list(range(1, most + 1, every))
    bar = colour_bar(say("layers"), x=1, xanchor="left", xpad=8, y=1, yanchor="top", ypad=0, tickvals=ticks)
    after = say("after {count} layers") if mask.step == 1 else say("after at least {count} layers")
    reach = cells(mask, np.where(numbers > 0, numbers, np.nan), "2") | {
        "zmin": 0.5,
        "zmax": most + 0.5,
        "colorscale": _discrete(most),
        "colorbar": bar,
        "hovertemplate": _pair(say("{query} can depend on {key}"), after.format(count="%{z}")),
        "name": "reach",
    }
    words = _pair(say("{query} can never depend on {key}"), say("no path through the masks"))
    never = _flat(numbers == 0, mask, NEVER[dark], "never", words, "2")
    return [reach, never] if (numbers == 0).any() else [reach]


def _mask_traces(mask: HeadView) -> list[Part]:
    words = _pair(say("{query} may attend to {key}"))
    return [*blocked_traces(mask), _flat(~mask.any_blocked(), mask, _colours(1)[0], "may look", words)]  # not shown


def _pair(words: str, *more: str) -> str:
    """A line of the cell pointed at, and others, as plotly has them."""
    return "<br>".join([words.format(query="<b>%{y}</b>", key="<b>%{x}</b>"), *more]) + "<extra></extra>"


def _flat(shown: np.ndarray, mask: HeadView, colour: str, name: str, words: str, place: str = "") -> Part:
    """Cells of one colour."""
    return cells(mask, np.where(shown, 0.0, np.nan), place) | {
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, colour], [1, colour]],
        "showscale": False,
        "hovertemplate": words,
        "name": name,
    }


def _colours(count: int) -> list[str]:
    """From light to dark, without the darkest, which a dark page would swallow."""
    triples = [table(256)[3 * entry : 3 * entry + 3] for entry in np.linspace(250, 62, count).round().astype(int)]
    return [f"rgb{tuple(triple)}" for triple in triples]


def _discrete(count: int) -> list[list[Any]]:
    """A plotly colour scale of so many flat steps."""
    steps = enumerate(_colours(count))
    return [[edge / count, colour] for place, colour in steps for edge in (place, place + 1)]
