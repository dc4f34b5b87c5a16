"""One head step by step: panels of all its queries that zoom together, each under its formula."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from model.heads.row_steps import Arithmetic
from viz.heatmap import KEY_TITLE, QUERY_TITLE, add_blocked, add_head, axis_names, colour_bar, colour_range, style_axes
from viz.mask_lab.reach import mark_row
from viz.palette import diverging
from viz.view import HeadView, coarser

HEIGHT = 780  # pixels
MOST_CELLS = 128  # a side of each panel
COLUMNS = ((0.0, 0.26), (0.36, 0.62), (0.72, 0.98))
ROWS = ((0.56, 1.0), (0.0, 0.44))
RAW, SCALED, MASKED, WEIGHTS, VALUES, OUTPUT = PANELS = ("", "2", "3", "4", "5", "6")  # of axes, in reading order
WITH_BAR = (RAW, MASKED, OUTPUT)  # the others have the colours of the next


@dataclass(frozen=True, eq=False)
class StepsView:
    """One head, Q queries by K keys, D numbers a value.

    head: its weights, its scores before masking, and what is blocked. raw: q·k [Q,K]. values [K,D]. output [Q,D].
    query: the picked row.
    """

    head: HeadView
    raw: np.ndarray
    values: np.ndarray
    output: np.ndarray
    arithmetic: Arithmetic
    query: int


def steps_figure(view: StepsView, *, dark: bool) -> go.Figure:
    """Raw, scaled and masked scores; weights, values and output. Axes that mean the same zoom together."""
    margin = {"l": 8, "r": 8, "t": 64, "b": 8}
    figure = go.Figure(layout={"height": HEIGHT, "margin": margin, "hovermode": "closest"})
    head = coarser(view.head, MOST_CELLS)
    _add_scores(figure, view, head, dark)
    add_blocked(figure, head, dark=dark, place=MASKED)
    add_head(figure, head, colour_range(view.head.weights), dark=dark, place=WEIGHTS)
    figure.update_traces(showscale=True, colorbar=_bar(WEIGHTS), selector={"name": "weights"})
    _add_values(figure, view, head, dark)
    _lay_out(figure, head)
    _add_titles(figure, view)
    mark_row(figure, view.query // head.step, (RAW, SCALED, MASKED, WEIGHTS, OUTPUT))
    return figure


def _add_scores(figure: go.Figure, view: StepsView, head: HeadView, dark: bool) -> None:
    """Before and after scaling, and masked: the last two share their colours."""
    names = axis_names(head)
    raw = largest(view.raw, head.step, head.step)
    left = largest(np.where(view.head.any_blocked(), -np.inf, view.head.scaled), head.step, head.step)
    masked = np.where(head.any_blocked(), np.nan, left)
    reach = _reach_of(head.scaled)
    _add_signed(figure, raw, names, RAW, "q·k", _reach_of(raw), dark)
    _add_signed(figure, head.scaled, names, SCALED, "score", reach, dark)
    _add_signed(figure, masked, names, MASKED, "masked score", reach, dark)


def _add_values(figure: go.Figure, view: StepsView, head: HeadView, dark: bool) -> None:
    """The values of the keys, and for every query their weighted sum, in one range of colours."""
    numbers = [f"number {place}" for place in range(view.values.shape[1])]
    reach = max(_reach_of(view.values), _reach_of(view.output))
    names = axis_names(head)
    for place, what, z, rows in (
        (VALUES, "value", view.values, names["x"]),
        (OUTPUT, "output", view.output, names["y"]),
    ):
        _add_signed(figure, largest(z, head.step, 1), {"x": numbers, "y": rows}, place, what, reach, dark)


def _add_signed(
    figure: go.Figure, z: np.ndarray, names: dict[str, list[str]], place: str, what: str, reach: float, dark: bool
) -> None:
    """A panel of numbers on both sides of 0."""
    figure.add_heatmap(
        z=z.astype(np.float32),
        **names,
        xaxis="x" + place,
        yaxis="y" + place,
        zmin=-reach,
        zmax=reach,
        colorscale=diverging(dark),
        showscale=place in WITH_BAR,
        colorbar=_bar(place),
        hovertemplate=f"<b>%{{y}}</b>, <b>%{{x}}</b><br>{what} %{{z:.4f}}<extra></extra>",
        hoverongaps=False,
        name=what,
    )


def _lay_out(figure: go.Figure, head: HeadView) -> None:
    """Two rows of three. Queries zoom together, keys do, and the D numbers of a value."""
    for place in PANELS:
        columns, rows = _domain(place)
        style_axes(figure, head, place, tokens=False)
        figure.update_layout({f"xaxis{place}": {"domain": columns}, f"yaxis{place}": {"domain": rows}})
    for place in (SCALED, MASKED, WEIGHTS):
        figure.update_layout({f"xaxis{place}": {"matches": "x"}, f"yaxis{place}": {"matches": "y"}})
    figure.update_layout({f"xaxis{OUTPUT}": {"matches": "x" + VALUES}, f"yaxis{OUTPUT}": {"matches": "y"}})
    labels = {"showticklabels": True, "tickfont": {"size": 9}, "automargin": True}
    for axis, title in (("yaxis", QUERY_TITLE), (f"yaxis{WEIGHTS}", QUERY_TITLE), (f"xaxis{WEIGHTS}", KEY_TITLE)):
        turned = {"tickangle": -90} if axis.startswith("x") else {}
        figure.update_layout({axis: labels | turned | {"title": {"text": title, "font": {"size": 11}}}})
    for place in (VALUES, OUTPUT):
        figure.update_layout({f"xaxis{place}": {"title": {"text": "the head's numbers", "font": {"size": 11}}}})


def _add_titles(figure: go.Figure, view: StepsView) -> None:
    titles = (
        ("1 raw", "q·k"),
        ("2 scaled", view.arithmetic.formula()),
        ("3 masked", "−∞ where blocked"),
        ("4 weights", f"softmax: {view.arithmetic.softmax()}"),
        ("the keys' values", "v, a row for each key"),
        ("5 output", "Σ weight × v"),
    )
    for place, (name, formula) in zip(PANELS, titles, strict=True):
        columns, rows = _domain(place)
        figure.add_annotation(
            text=f"<b>{name}</b><br>{formula}",
            xref="paper",
            yref="paper",
            x=columns[0],
            y=rows[1] + 0.005,
            xanchor="left",
            yanchor="bottom",
            align="left",
            showarrow=False,
        )


def _domain(place: str) -> tuple[tuple[float, float], tuple[float, float]]:
    number = PANELS.index(place)
    return COLUMNS[number % 3], ROWS[number // 3]


def _bar(place: str) -> dict[str, Any]:
    columns, (low, high) = _domain(place)
    where = {"x": columns[1] + 0.003, "xanchor": "left", "y": high, "yanchor": "top", "len": high - low, "ypad": 0}
    return colour_bar("", **where, tickfont={"size": 9}, nticks=6, xpad=2)


def largest(values: np.ndarray, down: int, across: int) -> np.ndarray:
    """[R,C] -> the largest of each patch of down × across."""
    rows, columns = -values.shape[0] % down, -values.shape[1] % across
    full = np.pad(values, ((0, rows), (0, columns)), constant_values=-np.inf)
    return full.reshape(full.shape[0] // down, down, full.shape[1] // across, across).max((1, 3))


def _reach_of(values: np.ndarray) -> float:
    """How far the numbers go on either side of 0, for a range of colours."""
    return max(float(np.abs(values[np.isfinite(values)]).max(initial=0.0)), 1e-6)
