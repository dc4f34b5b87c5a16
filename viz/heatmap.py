"""One head as a plotly heatmap: rows are queries, columns are keys, blocked cells hatched."""

import html
import itertools
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz.hatch import LARGE, SMALL, data_uri, hatch_png
from viz.palette import sequential
from viz.view import HeadView

QUERY_TITLE, KEY_TITLE = "query: the token that looks", "key: the token looked at"
MOST_TICKS = 56  # labels that a large picture has room for
LONGEST_TICK = 12


def add_head(figure: go.Figure, view: HeadView, zmax: float, *, dark: bool, place: str = "") -> None:
    """Draw the head's weights on the axes x{place}, y{place}, colours from 0 to zmax.

    place "" is the main picture, with tokens along its axes and the colour bar; others follow its reading.
    """
    names = axis_names(view)
    blocked = view.any_blocked()
    figure.add_heatmap(
        z=np.where(blocked, np.nan, view.weights).astype(np.float32),
        **names,
        xaxis="x" + place,
        yaxis="y" + place,
        zmin=0,
        zmax=zmax,
        colorscale=sequential(),
        showscale=not place,
        colorbar=colour_bar("weight"),
        customdata=view.scaled,
        hovertemplate=_hover(view, "weight %{z:.4f}"),
        hoverongaps=False,
        name="weights",
    )
    add_blocked(figure, view, dark=dark, place=place)
    style_axes(figure, view, place, tokens=not place)


def add_blocked(figure: go.Figure, view: HeadView, *, dark: bool, place: str = "") -> None:
    """Hatch the cells that masks block, and say in the tooltip which masks."""
    if not view.any_blocked().any():
        return
    rows, columns = view.weights.shape
    add_hatching(figure, view.blocked, dark=dark, place=place)
    for text, cells in blocked_groups(view):
        figure.add_heatmap(
            z=np.where(cells, 0.0, np.nan).astype(np.float32),
            **axis_names(view),
            xaxis="x" + place,
            yaxis="y" + place,
            colorscale=[[0, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]],
            showscale=False,
            customdata=view.scaled,
            hovertemplate=_hover(view, text),
            hoverongaps=False,
            name=text,
        )
    for first, last in empty_runs(view):
        figure.add_annotation(
            text="nothing to attend to" if last > first or rows <= MOST_TICKS else "nothing",
            xref="x" + place,
            yref="y" + place,
            x=(columns - 1) / 2,
            y=(first + last) / 2,
            showarrow=False,
            font={"size": 11},
            bgcolor="rgba(27,31,39,.85)" if dark else "rgba(255,255,255,.85)",
        )


def add_hatching(figure: go.Figure, blocked: dict[str, np.ndarray], *, dark: bool, place: str) -> None:
    """Hatch cells, bool [Q,K] for each mask, where the heatmap above has none."""
    rows, columns = next(iter(blocked.values())).shape
    figure.add_layout_image(
        source=data_uri(hatch_png(blocked, dark, SMALL if place else LARGE)),
        xref="x" + place,
        yref="y" + place,
        x=-0.5,
        y=-0.5,
        sizex=columns,
        sizey=rows,
        sizing="stretch",
        layer="below",
    )


def blocked_groups(view: HeadView) -> list[tuple[str, np.ndarray]]:
    """The blocked cells by what blocks them: ("blocked by causal and padding", bool [Q,K]) and so on."""
    groups = []
    for size in range(1, len(view.blocked) + 1):
        for names in itertools.combinations(view.blocked, size):
            cells = np.all([mask if name in names else ~mask for name, mask in view.blocked.items()], axis=0)
            if cells.any():
                groups.append(("blocked by " + " and ".join(names), cells))
    return groups


def empty_runs(view: HeadView) -> list[tuple[int, int]]:
    """First and last row of each run of rows that have no key to attend to."""
    empty = view.any_blocked().all(axis=1)
    edges = np.flatnonzero(np.diff(np.r_[False, empty, False]))
    return [(int(first), int(last) - 1) for first, last in edges.reshape(-1, 2)]


def colour_range(*weights: np.ndarray) -> float:
    """One upper end for all of these pictures: their largest weight, rounded up to hundredths."""
    largest = max(float(w.max(initial=0.0)) for w in weights)
    return max(math.ceil(round(largest * 100, 3)) / 100, 0.01)  # float32's 0.3 is a little more, and no 0.31


def colour_bar(title: str, **where: Any) -> dict[str, Any]:
    """A thin colour bar beside its picture."""
    return {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0, **where}


def axis_names(view: HeadView) -> dict[str, list[str]]:
    """A name for every column (x) and row (y) that no other has: its position, then its token.

    Names of their own keep a repeated token's columns apart, and the tooltip shows them whole.
    """
    return {"x": _names(view.keys, view.first, view.step), "y": _names(view.queries, view.first, view.step)}


def style_axes(figure: go.Figure, view: HeadView, place: str = "", *, tokens: bool = True) -> None:
    """The first query on top; tokens and titles along both axes, and square cells, or none of that."""
    style: dict[str, Any] = {"type": "category", "showgrid": False, "zeroline": False}
    axes = {
        "x": style | {"anchor": "y" + place, "constraintoward": "left"},
        "y": style | {"anchor": "x" + place, "constraintoward": "top", "autorange": "reversed"},
    }
    if tokens:  # axes that match these take the rest from them; plotly has no square cells for both
        square = {"constrain": "domain", "scaleanchor": "x" + place}
        axes["x"] |= {"tickangle": -90, "constrain": "domain"} | _ticks(view.keys, KEY_TITLE, view)
        axes["y"] |= square | _ticks(view.queries, QUERY_TITLE, view)
    else:
        axes = {letter: axis | {"showticklabels": False, "ticks": ""} for letter, axis in axes.items()}
    figure.update_layout({f"{letter}axis{place}": axis for letter, axis in axes.items()})


def _ticks(labels: list[str], title: str, view: HeadView) -> dict[str, Any]:
    """A label for every token; where that is too many, for every so many with its position."""
    every = math.ceil(len(labels) / (MOST_TICKS if view.step == 1 else MOST_TICKS // 3))
    places = range(0, len(labels), every)
    alone = every == 1 and view.step == 1
    texts = [
        _short(labels[place]) if alone else _placed(place * view.step + view.first, labels[place]) for place in places
    ]
    return {
        "tickmode": "array",
        "tickvals": list(places),
        "ticktext": [escaped(text) for text in texts],
        "tickfont": {"size": 11 if len(labels) <= 32 else 9},
        "ticks": "",
        "automargin": True,
        "title": {"text": title, "standoff": 18},
    }


def _placed(position: int, label: str) -> str:
    return f"{position} {_short(label)}"


def _hover(view: HeadView, what: str) -> str:
    score = "scaled score %{customdata:.3f}" if view.step == 1 else "largest scaled score %{customdata:.3f}"
    what = what if view.step == 1 else "largest " + what if what.startswith("weight") else what
    return f"<b>%{{y}}</b> looks at <b>%{{x}}</b><br>{what}<br>{score}<extra></extra>"


def _names(labels: list[str], first: int, step: int) -> list[str]:
    starts = range(first, first + len(labels) * step, step)
    places = [str(start) if step == 1 else f"{start}–{start + step - 1}" for start in starts]
    return [f"{place}: {escaped(label)}" for place, label in zip(places, labels, strict=True)]


def escaped(label: str) -> str:
    """Plotly reads labels as a little HTML; it knows &lt;, &gt; and &amp; but no &quot;."""
    return html.escape(label, quote=False)


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_TICK else label[: LONGEST_TICK - 1] + "…"
