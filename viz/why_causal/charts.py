"""The twins as figures: their training, their loss on each token, what moves when a later token changes.

Blue is trained with the causal mask, red without; a dotted line, or an open point where there is but one,
is a run under the other mask than in training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from i18n import say
from viz.heatmap import CachedFigure, finished
from viz.html import escaped
from viz.palette import NOW, STANDARD

WITH, WITHOUT = STANDARD, NOW
BELOW = {"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0}  # a legend where plotly's buttons do not cover it
ABOVE = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
MARGIN = {"l": 8, "r": 24, "t": 8, "b": 8}


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve. name: what the legend says. x, y: its points. trained: with the mask. dotted: run under the other."""

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    trained: bool
    dotted: bool = False
    faint: bool = False


def loss_curves(lines: Sequence[Curve], *, unit: str, height: int = 330, steps: int | None = None) -> CachedFigure:
    """Losses over the steps of a training; unit is what they are counted in. steps: how far the axis goes."""
    return finished(_curves(lines, unit, height, steps))


def _curves(lines: Sequence[Curve], unit: str, height: int, steps: int | None) -> go.Figure:
    figure = go.Figure(layout={"height": height, "margin": MARGIN, "hovermode": "x unified", "uirevision": "kept"})
    for line in lines:
        figure.add_scatter(
            x=np.asarray(line.x, np.float32),
            y=np.asarray(line.y, np.float32),
            name=line.name,
            mode="lines" if np.isfinite(line.y).sum() > 1 else "markers",  # one point is no line
            opacity=0.45 if line.faint else 1,
            line={"color": colour(line.trained), "width": 1.8, "dash": "dot" if line.dotted else "solid"},
            marker=_point(line),
            hovertemplate="%{y:.3f} " + unit,
        )
    figure.update_xaxes(title={"text": say("training step")}, rangemode="tozero")
    if steps:
        figure.update_xaxes(range=[0, steps])
    figure.update_yaxes(title={"text": say("loss, {unit}", unit=unit)}, rangemode="tozero")
    figure.update_layout(legend=BELOW, showlegend=True)
    return figure


def _point(line: Curve) -> dict:
    """Where one point is all there is of a line: open instead of dotted."""
    edge = {"color": colour(line.trained), "width": 1.8}
    return {"symbol": "circle-open" if line.dotted else "circle", "size": 8, "line": edge}


def token_losses(lines: Sequence[Curve], pieces: Sequence[str]) -> CachedFigure:
    """The loss of every token under each combination; pieces [T], a label for each."""
    figure = _curves(lines, say("nats"), 300, None)
    figure.update_xaxes(title=None, **token_axis(pieces, 24))  # half the page wide
    figure.update_layout(legend=ABOVE)
    return finished(figure)


def change_bars(moved: dict[str, np.ndarray], pieces: Sequence[str], place: int) -> CachedFigure:
    """A row of bars for each name: how far the logits moved at each of T places; the token at `place` changed."""
    figure = make_subplots(len(moved), 1, shared_xaxes=True, vertical_spacing=0.12, subplot_titles=list(moved))
    most = max(float(values.max()) for values in moved.values()) or 1.0
    names = [f"{number}: {escaped(piece)}" for number, piece in enumerate(pieces)]
    for row, values in enumerate(moved.values(), 1):
        figure.add_bar(
            x=list(range(len(values))),
            y=values.astype(np.float32),
            customdata=names,
            marker={"color": [WITHOUT if number < place else "#8a919c" for number in range(len(values))]},
            hovertemplate="%{customdata}<br>" + say("largest change") + " %{y:.3g}<extra></extra>",
            row=row,
            col=1,
        )
        figure.add_vline(x=place, line={"dash": "dot", "width": 1.5, "color": "#8a919c"}, row=row, col=1)
    figure.update_yaxes(range=[0, most * 1.06])
    figure.update_xaxes(token_axis(pieces, 48), row=len(moved), col=1)
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_layout(height=330, margin=MARGIN | {"t": 28}, showlegend=False, bargap=0.15)
    return finished(figure)


def token_axis(pieces: Sequence[str], most: int) -> dict:
    """Numeric places with tokens for labels, so that a repeated token stands in each of its places. most: labels."""
    every = math.ceil(len(pieces) / most)
    return {
        "tickmode": "array",
        "tickvals": list(range(0, len(pieces), every)),
        "ticktext": [escaped(piece[:12]) for piece in pieces[::every]],
        "tickangle": -90,
        "tickfont": {"size": 10},
        "range": [-0.7, len(pieces) - 0.3],
    }


def colour(trained: bool) -> str:
    """Of everything about the model that was trained with the mask, or without."""
    return WITH if trained else WITHOUT
