"""Figures of the chosen head: alone under the standard masks; otherwise now, standard, and the difference.

Both have one large picture of the same size, so that the page's layout stays when a mask is lifted.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView, coarser, reduced, step_of
from viz import heatmap
from viz.charts import symmetric_colours
from viz.palette import SMALL, WIDE

TITLES = (N_("now"), N_("standard masks"), N_("now − standard"))


def head_figure(
    now: HeadView,
    *,
    dark: bool,
    wide: float = 1,
    tall: float = 1,
    query: int | None = None,
    zmax: float | None = None,
) -> heatmap.CachedFigure:
    """Draw one heatmap. wide, tall: the figure's width and height in units of the heatmap's side; WIDE leaves room for
    the small pictures of a comparison.

    query: the position whose row is framed. zmax: the weight of the last colour, by default head_range(now).
    """
    view = coarser(now)
    layout = _layout(view, query) | heatmap.axes(view) | {"images": heatmap.hatching(view.blocked, dark=dark)}
    layout["xaxis"]["domain"] = [0, 1 / wide]
    weights = heatmap.weights_trace(view, zmax or head_range(now), **_at_picture(view, wide, tall))
    return heatmap.figure([*heatmap.blocked_traces(view), weights], layout)


def anonymous_masks_figure(now: HeadView, *, dark: bool, query: int | None = None) -> heatmap.CachedFigure:
    """Draw head_figure for a question about masks: all blocked cells look the same, and no tooltip names a mask."""
    plain = head_figure(replace(now, blocked={"drawn": now.any_blocked()}), dark=dark, query=query).to_dict()
    return heatmap.figure([trace for trace in plain["data"] if trace["name"] != "blocked"], plain["layout"])


def comparison_figure(
    now: HeadView,
    standard: HeadView,
    *,
    dark: bool,
    titles: tuple[str, str, str] | None = None,
    query: int | None = None,
) -> heatmap.CachedFigure:
    """Draw `now` large, and beside it `standard` and the difference now - standard; the three zoom together.

    titles: of the three pictures, in the user's language.
    """
    zmax = head_range(now, standard)
    view, other = coarser(now), coarser(standard)
    change = _change(now, standard, view.any_blocked() & other.any_blocked())
    named, other_named = with_shared_labels(view, other)
    traces = [
        *heatmap.blocked_traces(named),
        *heatmap.blocked_traces(other_named, "2"),
        heatmap.weights_trace(named, zmax, **_beside(1, 1, SMALL)),
        heatmap.weights_trace(other_named, zmax, "2"),
        _difference_trace(named, change, dark, "3", **_beside(1, SMALL, SMALL)),
    ]
    layout = (
        _layout(view, query)
        | heatmap.axes(view)
        | heatmap.axes(other, "2", tokens=False)
        | heatmap.axes(view, "3", tokens=False)
    )
    layout["xaxis"]["domain"] = [0, 1 / WIDE]
    for axis, domain in (("2", [1 - SMALL, 1]), ("3", [0, SMALL])):
        layout[f"xaxis{axis}"] |= {"domain": [1 - SMALL / WIDE, 1], "matches": "x"}
        layout[f"yaxis{axis}"] |= {"domain": domain, "matches": "y"}
    layout["images"] = (
        heatmap.hatching(view.blocked, dark=dark)
        + heatmap.hatching(other.blocked, dark=dark, axis="2")
        + _hatching_of(change, other, dark=dark, axis="3")
    )
    corners = ((0, 1), (1 - SMALL / WIDE, 1), (1 - SMALL / WIDE, SMALL))
    layout["annotations"] += heatmap.empty_notes(other, "2")
    layout["annotations"] += [
        heatmap.title(f"<b>{text}</b>", *corner)
        for text, corner in zip(titles or map(say, TITLES), corners, strict=True)
    ]
    return heatmap.figure(traces, layout)


def with_shared_labels(one: HeadView, other: HeadView) -> tuple[HeadView, HeadView]:
    """Give both views the same labels, "one / other" where they differ: axes that zoom together need equal labels."""
    queries, keys = (
        [mine if mine == theirs else f"{mine} / {theirs}" for mine, theirs in zip(*labels, strict=True)]
        for labels in ((one.queries, other.queries), (one.keys, other.keys))
    )
    return replace(one, queries=queries, keys=keys), replace(other, queries=queries, keys=keys)


def difference_figure(
    now: HeadView, standard: HeadView, *, dark: bool, tall: float = 1, query: int | None = None
) -> heatmap.CachedFigure:
    """Draw only the difference now - standard, as large as fits. tall: the figure's height in units of its width."""
    view, other = coarser(now), coarser(standard)
    change, (_, named) = (
        _change(now, standard, view.any_blocked() & other.any_blocked()),
        with_shared_labels(other, view),
    )
    images = _hatching_of(change, other, dark=dark, axis="")
    layout = _layout(view, query) | heatmap.axes(view) | {"annotations": [], "images": images}
    return heatmap.figure([_difference_trace(named, change, dark, "", **_at_picture(view, 1, tall))], layout)


def head_range(*views: HeadView) -> float:
    """Return the weight of the last colour, shared by these views."""
    return heatmap.colour_range(*(view.weights for view in views))


def _change(now: HeadView, standard: HeadView, both: np.ndarray) -> np.ndarray:
    """Return now - standard, float32, reduced to screen size: a patch holds its largest change. both: the cells of the
    reduced size that are blocked in both; they become NaN."""
    change, step = now.weights - standard.weights, step_of(now)
    if step > 1:
        highest, lowest = reduced(change, step, np.maximum, 0.0), reduced(change, step, np.minimum, 0.0)
        change = np.where(highest >= -lowest, highest, lowest)
    return np.where(both, np.nan, change).astype(np.float32)


def _difference_trace(view: HeadView, change: np.ndarray, dark: bool, axis: str, **where: Any) -> heatmap.Part:
    reach = max(float(np.nanmax(np.abs(change), initial=0.0)), 0.01)
    hover = heatmap.tooltip(say("change {change}", change="%{z:+.4f}"))
    bar = {"colorbar": heatmap.colour_bar(say("change"), **where)}
    return heatmap.cells(view, change, "difference", hover, axis) | symmetric_colours(reach, dark) | bar


def _hatching_of(change: np.ndarray, standard: HeadView, *, dark: bool, axis: str) -> list[heatmap.Part]:
    """Return the hatching of the cells that are blocked in both views."""
    both = {name: mask & np.isnan(change) for name, mask in standard.blocked.items()}
    return heatmap.hatching(both, dark=dark, axis=axis)


def _beside(x: float, top: float, tall: float) -> heatmap.Part:
    """Return the position of a colour bar right of x, from `top` down, in shares of the figure's width and height."""
    return {"x": x, "xanchor": "left", "xpad": 8, "y": top, "yanchor": "top", "ypad": 0, "len": tall}


def _at_picture(view: HeadView, wide: float, tall: float) -> heatmap.Part:
    """Return the position of the colour bar of a single picture, whose cells are square."""
    rows, columns = view.weights.shape
    return _beside(min(columns / rows * tall, 1) / wide, 1, min(rows / columns / tall, 1))


def _layout(view: HeadView, query: int | None) -> heatmap.Part:
    """Return the layout that all figures of this module share."""
    return {
        "margin": heatmap.margin(view.queries, view.keys, view.first, view.first_key, view.step)
        | {"autoexpand": False},
        "annotations": heatmap.empty_notes(view),
        "shapes": heatmap.frames(view, query, ""),
    }
