"""Reach: after how many layers a token can know of another, beside what one layer lets it look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from model.heads.view import HeadView, coarser, reduced
from viz.charts import NEVER, RIGHT, flat, two_masks, unweighted
from viz.heatmap import CachedFigure, Part, blocked_traces, cells, colour_bar, figure, frames, hatching, title
from viz.html import filled, paragraph, table, td, th, track
from viz.palette import table as colours

MOST_CELLS = 192  # a side: two pictures share the width
STACKED = N_(
    "Of all tokens, <b>{token}</b> (position {position}) may attend to {alone:,} in layer {layer} alone. After the "
    "last layer it can depend on {seen:,} ({ahead:,} of them later in the text); layers needed for that: {settled} of "
    "{layers}."
)


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


def reach_figure(view: ReachView, *, dark: bool) -> CachedFigure:
    """Left, what one layer lets through; right, after how many layers: two pictures that zoom together."""
    mask = coarser(unweighted(view.blocked, view.tokens), MOST_CELLS)
    alone = say("layer {layer} alone: what a token may attend to", layer=view.names[view.layer])
    stacked = say("stacked: after how many layers (of {count}) it can depend on it", count=len(view.window))
    layout = two_masks(mask) | {
        "annotations": [title(f"<b>{text}</b>", x, 1) for text, x in ((alone, 0), (stacked, RIGHT[0]))],
        "images": hatching(mask.blocked, dark=dark),
        "shapes": frames(mask, view.query, "", "2"),
    }
    words = _pair(say("{query} may attend to {key}"))
    open_cells = flat(mask, ~mask.any_blocked(), _colours(1)[0], "may look", words)  # not shown
    return figure([*blocked_traces(mask), open_cells, *_reach_traces(view, mask, dark=dark)], layout)


def reach_table(view: ReachView) -> Markup:
    """The picked query's numbers after each layer; layers that change nothing share a row."""
    spans: list[list[int]] = []
    numbers = np.stack([view.window[:, view.query], view.seen[:, view.query]], axis=1)
    for layer in range(len(numbers)):
        if layer and (numbers[layer] == numbers[layer - 1]).all():
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    counts = [th(say("may attend to in that layer"), "number"), th(say("can depend on"), "number")]
    head = [th(say("layers")), *counts, th(), th(say("farthest back"))]
    return table([head, *(_table_row(view, *span) for span in spans)])


def reach_sentence(view: ReachView) -> Markup:
    """HTML: what to notice, of the picked query."""
    seen, alone = int(view.seen[-1, view.query]), int(view.window[view.layer, view.query])
    about = {"layer": view.names[view.layer], "token": view.tokens[view.query], "position": view.query}
    about |= {"alone": alone, "seen": seen}
    ahead = int((view.first[view.query, view.query + 1 :] > 0).sum())
    settled = int((view.seen[:, view.query] < seen).sum()) + 1
    return paragraph(filled(say(STACKED), ahead=ahead, settled=settled, layers=len(view.window), **about))


def _table_row(view: ReachView, begin: int, end: int) -> list[Markup]:
    reached = view.first[view.query]
    back = view.query - int(np.flatnonzero((reached > 0) & (reached <= begin + 1)).min())
    seen, alone = int(view.seen[begin, view.query]), int(view.window[begin, view.query])
    span = N_("{first} to {last}") if begin < end else "{last}"
    after, where = (say(span, first=some[begin], last=some[end]) for some in (range(1, end + 2), view.names))
    farthest = say("{count:,} back: {token}", count=back, token=view.tokens[view.query - back]) if back > 0 else "–"
    numbers = [td(f"{alone:,}", "number"), td(f"{seen:,}", "number"), track(seen / len(view.tokens), _colours(1)[0])]
    return [td(f"{after} ({where})"), *numbers, td(farthest, "token")]


def soonest(first: np.ndarray, step: int) -> np.ndarray:
    """int [T,T] -> [T/step,T/step]: the smallest number of layers in each patch; 0 where all are 0."""
    never = np.iinfo(np.int32).max
    least = reduced(np.where(first > 0, first.astype(np.int32), never), step, np.minimum, never)
    return np.where(least == never, 0, least)


def _reach_traces(view: ReachView, mask: HeadView, *, dark: bool) -> list[Part]:
    numbers = soonest(view.first, mask.step)
    most = int(numbers.max())
    ticks = list(range(1, most + 1, -(-most // 12)))  # so many numbers at the colour bar at the most
    after = say("after {count} layers") if mask.step == 1 else say("after at least {count} layers")
    words = _pair(say("{query} can depend on {key}"), after.format(count="%{z}"))
    reach = cells(mask, np.where(numbers > 0, numbers, np.nan), "2") | {
        "zmin": 0.5,
        "zmax": most + 0.5,
        "colorscale": _discrete(most),
        "colorbar": colour_bar(say("layers"), x=1, xanchor="left", xpad=8, y=1, yanchor="top", ypad=0, tickvals=ticks),
        "hovertemplate": words + "<extra></extra>",
        "name": "reach",
    }
    words = _pair(say("{query} can never depend on {key}"), say("no path through the masks"))
    never = flat(mask, numbers == 0, NEVER[dark], "never", words, "2")
    return [reach, never] if (numbers == 0).any() else [reach]


def _pair(words: str, *more: str) -> str:
    """A line of the cell pointed at, and others, as plotly has them."""
    return "<br>".join([words.format(query="<b>%{y}</b>", key="<b>%{x}</b>"), *more])


def _colours(count: int) -> list[str]:
    """From light to dark, without the darkest, which a dark page would swallow."""
    triples = [colours(256)[3 * entry : 3 * entry + 3] for entry in np.linspace(250, 62, count).round().astype(int)]
    return [f"rgb{tuple(triple)}" for triple in triples]


def _discrete(count: int) -> list[list[Any]]:
    steps = enumerate(_colours(count))
    return [[edge / count, colour] for place, colour in steps for edge in (place, place + 1)]
