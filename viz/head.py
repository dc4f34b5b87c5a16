"""The chosen head: alone under the standard masks; otherwise now, standard, and the difference."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz.heatmap import add_hatching, add_head, axis_names, colour_bar, colour_range, style_axes
from viz.palette import diverging
from viz.view import HeadView, coarser, patches

HEIGHT = 600  # pixels, the same for both, so that the page stands still when a mask is lifted


def head_figure(now: HeadView, *, dark: bool) -> go.Figure:
    """One heatmap, as large as it gets."""
    figure = _empty_figure()
    view = coarser(now)
    add_head(figure, view, head_range(now), dark=dark)
    return figure


def comparison_figure(
    now: HeadView,
    standard: HeadView,
    *,
    dark: bool,
    titles: tuple[str, str, str] = ("now", "standard masks", "now − standard"),
) -> go.Figure:
    """Now (large), and beside it the standard masks and the difference now - standard; the three zoom together."""
    figure = _empty_figure()
    zmax = head_range(now, standard)
    add_head(figure, coarser(now), zmax, dark=dark)
    add_head(figure, coarser(standard), zmax, dark=dark, place="2")
    below = {"x": 0.99, "xanchor": "left", "y": 0, "yanchor": "bottom", "len": 0.47}
    _add_difference(figure, now, standard, dark=dark, place="3", **below)
    beside = {"domain": [0.64, 0.98], "matches": "x"}
    figure.update_layout(
        xaxis={"domain": [0, 0.6]},
        xaxis2=beside,
        yaxis2={"domain": [0.53, 1], "matches": "y"},
        xaxis3=beside,
        yaxis3={"domain": [0, 0.47], "matches": "y"},
    )
    where = {"x": 0.99, "xanchor": "left", "y": 1, "yanchor": "top", "len": 0.47}
    figure.update_traces(colorbar=where, selector={"name": "weights", "xaxis": "x"})
    for text, (x, y) in zip(titles, ((0, 1), (0.64, 1), (0.64, 0.47)), strict=True):
        figure.add_annotation(
            text=f"<b>{text}</b>",
            xref="paper",
            yref="paper",
            x=x,
            y=y,
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )
    return figure


def difference_figure(now: HeadView, standard: HeadView, *, dark: bool) -> go.Figure:
    """now - standard alone, as large as it gets."""
    figure = _empty_figure()
    _add_difference(figure, now, standard, dark=dark, place="")
    return figure


def head_range(*views: HeadView) -> float:
    """The weight that gets the last colour, one for all of these views."""
    return colour_range(*(view.weights for view in views))


def difference(now: HeadView, standard: HeadView) -> np.ndarray:
    """now - standard, float32 [Q,K]; cells that both block are NaN; of a patch, the change of largest size."""
    change = now.weights - standard.weights
    step = coarser(now).step
    if step > 1:
        parts = patches(change, step, 0.0).transpose(0, 2, 1, 3)
        parts = parts.reshape(*parts.shape[:2], -1)
        change = np.take_along_axis(parts, np.abs(parts).argmax(-1)[..., None], -1)[..., 0]
    both = coarser(now).any_blocked() & coarser(standard).any_blocked()
    return np.where(both, np.nan, change).astype(np.float32)


def _add_difference(
    figure: go.Figure, now: HeadView, standard: HeadView, *, dark: bool, place: str, **where: Any
) -> None:
    view, change = coarser(now), difference(now, standard)
    both = {name: mask & np.isnan(change) for name, mask in coarser(standard).blocked.items()}
    if np.isnan(change).any():
        add_hatching(figure, both, dark=dark, place=place)
    reach = max(float(np.nanmax(np.abs(change), initial=0.0)), 0.01)
    figure.add_heatmap(
        z=change,
        **axis_names(view),
        xaxis="x" + place,
        yaxis="y" + place,
        zmin=-reach,
        zmax=reach,
        colorscale=diverging(dark),
        colorbar=colour_bar("change", **where),
        hovertemplate="<b>%{y}</b> looks at <b>%{x}</b><br>change %{z:+.4f}<extra></extra>",
        hoverongaps=False,
        name="difference",
    )
    style_axes(figure, view, place, tokens=not place)


def _empty_figure() -> go.Figure:
    margin = {"l": 8, "r": 8, "t": 52, "b": 8}  # on top, room for plotly's buttons above the titles
    return go.Figure(layout={"height": HEIGHT, "margin": margin, "hovermode": "closest"})
