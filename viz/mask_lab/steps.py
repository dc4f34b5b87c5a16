"""One head step by step: panels of all its queries that zoom together, each under its formula."""

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from i18n import say
from model.heads.view import HeadView, coarser
from viz import heatmap
from viz.charts import both_sides, heat
from viz.heatmap import (
    KEY_TITLE,
    QUERY_TITLE,
    Part,
    axes,
    axis_names,
    blocked_traces,
    colour_bar,
    colour_range,
    hatching,
    weights_trace,
)

if TYPE_CHECKING:  # it imports torch
    from model.heads.row_steps import HeadSteps

HEIGHT = 780  # pixels
COLUMNS = ((0.0, 0.26), (0.36, 0.62), (0.72, 0.98))
ROWS = ((0.56, 1.0), (0.0, 0.44))
RAW, SCALED, MASKED, WEIGHTS, VALUES, OUTPUT = PANELS = ("", "2", "3", "4", "5", "6")  # of axes, in reading order
WITH_BAR = (RAW, MASKED, OUTPUT)  # the others have the colours of the next


def steps_figure(view: "HeadSteps", *, dark: bool) -> go.Figure:
    """Raw, scaled and masked scores; weights, values and output. Axes that mean the same zoom together."""
    head = coarser(view.head)
    layout = _layout(head) | {
        "annotations": _titles(view)
        + [note for place in (MASKED, WEIGHTS) for note in heatmap.empty_notes(head, dark=dark, place=place)],
        "shapes": heatmap.frames(head, view.row.position, RAW, SCALED, MASKED, WEIGHTS, OUTPUT),
        "images": [image for place in (MASKED, WEIGHTS) for image in hatching(head.blocked, dark=dark, place=place)],
    }
    weights = weights_trace(head, colour_range(view.head.weights), WEIGHTS, **_where(WEIGHTS))
    pictures = [*_scores(view, head, dark), *blocked_traces(head, WEIGHTS), weights, *_values(view, head, dark)]
    return heatmap.figure(pictures, layout)


def _scores(view: "HeadSteps", head: HeadView, dark: bool) -> list[Part]:
    """Before and after scaling, and masked: the last two share their colours."""
    names = axis_names(head)
    raw = largest(view.raw, head.step, head.step)
    left = largest(np.where(view.head.any_blocked(), -np.inf, view.head.scaled), head.step, head.step)
    reach = _reach_of(head.scaled)
    masked = _signed(np.where(head.any_blocked(), np.nan, left), names, MASKED, say("masked score"), reach, dark)
    return [
        _signed(raw, names, RAW, "q·k", _reach_of(raw), dark),
        _signed(head.scaled, names, SCALED, say("score"), reach, dark),
        *blocked_traces(head, MASKED),
        masked,
    ]


def _values(view: "HeadSteps", head: HeadView, dark: bool) -> list[Part]:
    """The values of the keys, and for every query their weighted sum, in one range of colours."""
    numbers = [say("number {number}", number=place) for place in range(view.values.shape[1])]
    reach = max(_reach_of(view.values), _reach_of(view.output))
    names = axis_names(head)
    return [
        _signed(largest(z, head.step, 1), {"x": numbers, "y": rows}, place, what, reach, dark)
        for place, what, z, rows in (
            (VALUES, say("value"), view.values, names["x"]),
            (OUTPUT, say("output"), view.output, names["y"]),
        )
    ]


def _signed(z: np.ndarray, names: dict[str, list[str]], place: str, what: str, reach: float, dark: bool) -> Part:
    """A panel of numbers on both sides of 0."""
    numbers = heat(z, names["x"], names["y"], what, f"<b>%{{y}}</b>, <b>%{{x}}</b><br>{what} %{{z:.4f}}", place)
    bar = {"showscale": place in WITH_BAR, "colorbar": colour_bar("", **_where(place))}
    return numbers | both_sides(reach, dark) | bar


def _layout(head: HeadView) -> Part:
    """Two rows of three. Queries zoom together, keys do, and the D numbers of a value."""
    layout: Part = {"height": HEIGHT, "margin": {"l": 8, "r": 8, "t": 64, "b": 8}}
    for place in PANELS:
        layout |= axes(head, place, tokens=False)
        layout[f"xaxis{place}"]["domain"], layout[f"yaxis{place}"]["domain"] = _domain(place)
    for place, keys in ((SCALED, ""), (MASKED, ""), (WEIGHTS, ""), (OUTPUT, VALUES)):
        layout[f"xaxis{place}"]["matches"] = "x" + keys
        layout[f"yaxis{place}"]["matches"] = "y"
    labels = {"showticklabels": True, "tickfont": {"size": 9}, "automargin": True}
    for axis, name in (("yaxis", QUERY_TITLE), (f"yaxis{WEIGHTS}", QUERY_TITLE), (f"xaxis{WEIGHTS}", KEY_TITLE)):
        turned = {"tickangle": -90} if axis.startswith("x") else {}
        layout[axis] |= labels | turned | {"title": {"text": say(name), "font": {"size": 11}}}
    for place in (VALUES, OUTPUT):
        layout[f"xaxis{place}"]["title"] = {"text": say("the head's numbers"), "font": {"size": 11}}
    return layout


def _titles(view: "HeadSteps") -> list[Part]:
    titles = (
        (say("1 raw"), "q·k"),
        (say("2 scaled"), view.row.arithmetic.formula()),
        (say("3 masked"), say("−∞ where blocked")),
        (say("4 weights"), f"softmax: {view.row.arithmetic.softmax()}"),
        (say("the keys' values"), say("v, a row for each key")),
        (say("5 output"), say("Σ weight × v")),
    )
    corners = [(columns[0], rows[1] + 0.005) for columns, rows in map(_domain, PANELS)]
    return [
        heatmap.title(f"<b>{name}</b><br>{formula}", *corner)
        for corner, (name, formula) in zip(corners, titles, strict=True)
    ]


def _domain(place: str) -> tuple[tuple[float, float], tuple[float, float]]:
    number = PANELS.index(place)
    return COLUMNS[number % 3], ROWS[number // 3]


def _where(place: str) -> Part:
    """Where the colour bar of a panel stands, and how it looks."""
    columns, (low, high) = _domain(place)
    where = {"x": columns[1] + 0.003, "xanchor": "left", "y": high, "yanchor": "top", "len": high - low, "ypad": 0}
    return where | {"title": "", "tickfont": {"size": 9}, "nticks": 6, "xpad": 2}


def largest(values: np.ndarray, down: int, across: int) -> np.ndarray:
    """[R,C] -> the largest of each patch of down × across."""
    rows, columns = -values.shape[0] % down, -values.shape[1] % across
    full = np.pad(values, ((0, rows), (0, columns)), constant_values=-np.inf)
    return full.reshape(full.shape[0] // down, down, full.shape[1] // across, across).max((1, 3))


def _reach_of(values: np.ndarray) -> float:
    """How far the numbers go on either side of 0, for a range of colours."""
    return max(float(np.abs(values[np.isfinite(values)]).max(initial=0.0)), 1e-6)
