"""The key-value cache in pictures: the cached row and its mask, what steps cost, and what happens to old rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, large, say, together
from viz.charts import LEGEND, MARGIN, SMALL_LABELS, bars, heat, position_names, token_axis
from viz.heatmap import CachedFigure, Part, colour_range, figure
from viz.html import table, td, th
from viz.numbers import number
from viz.palette import ALLOWED, MASK_COLOURS, NOW, SEQUENTIAL_SCALE, STANDARD

if TYPE_CHECKING:  # it imports torch
    from model.step_cost import Cost

COUNTED = N_(
    "The step to token {last:,} takes {full} multiply-adds (a multiplication and an addition each) without a cache and "
    "{cached} with it: {times:,.1f} times as many. From the first step to this one the step without a cache grew "
    "{full_growth:,.1f}-fold, the cached one {cached_growth:,.2f}-fold."
)
NOISY = N_(
    "The times measured here are too noisy: repeated runs of the same step differ as much as different steps do. The "
    "counts are the same on every machine."
)
MEASURED = N_(
    "Measured here, from {first:,} to {last:,} tokens a step without a cache goes from {begin:.1f} to {end:.1f} ms; a "
    "cached one takes {least:.1f} to {most:.1f} ms."
)
MOST_KEYS = 64  # columns of the cached row that a picture has room for


def cached_row_figure(cached: np.ndarray, full: np.ndarray, allowed: np.ndarray, keys: Sequence[str]) -> CachedFigure:
    """One head's newest row, by a cached step and by the full run, weights [K], under its mask, bool [K]; the last keys
    of many."""
    first = max(len(keys) - MOST_KEYS, 0)
    names = position_names(keys)[first:]
    unseen = np.full(len(names), np.nan)
    seen = np.stack([allowed[first:], unseen, unseen])
    weights = np.stack([unseen, cached[first:], full[first:]])
    lines = [say("mask [1, K]"), say("cached row"), say("full run's last row")]
    plain = {"zmin": 0, "showscale": False, "xgap": 1, "ygap": 4}
    traces = [
        heat(seen, names, lines, "mask", "<b>%{x}</b> %{text}") | plain,
        heat(weights, names, lines, "weights", "<b>%{x}</b><br>%{y}: %{z:.6f}") | plain,
    ]
    traces[0] |= {"zmax": 1, "colorscale": [[0, MASK_COLOURS["causal"]], [1, ALLOWED]]}
    traces[0] |= {"text": np.where(seen == 1, say("visible"), say("blocked"))}
    traces[1] |= {"zmax": colour_range(cached, full), "colorscale": SEQUENTIAL_SCALE}
    heights = {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    axes = {"xaxis": _keys(keys[first:]) | {"showgrid": False}, "yaxis": heights}
    return figure(traces, {"height": 250, "margin": MARGIN} | axes)


@dataclass(frozen=True, eq=False)
class Costs:
    """Multiply-adds of the steps that read 1, 2, … tokens, counted, and what was measured of some. clear: whether the
    seconds differ by more than tries of one step do."""

    counted_full: Sequence[int]
    counted_cached: Sequence[int]
    measured: "list[Cost]"
    clear: bool


def cost_figure(costs: Costs) -> CachedFigure:
    """Large the counted multiply-adds of each step, beside them the measured milliseconds as points."""
    counted = list(range(1, len(costs.counted_full) + 1))
    lengths = [cost.length for cost in costs.measured]
    series = (
        (say("without a cache"), NOW, costs.counted_full, [cost.full for cost in costs.measured]),
        (say("with the cache"), STANDARD, costs.counted_cached, [cost.cached for cost in costs.measured]),
    )
    curves: list[Part] = []
    for name, colour, adds, seconds in series:
        common = {"type": "scatter", "name": name, "legendgroup": name}
        line = {"x": counted, "y": [one / 1e6 for one in adds], "mode": "lines", "line": {"color": colour, "width": 3}}
        points = {
            "x": lengths,
            "y": [one * 1e3 for one in seconds],
            "xaxis": "x2",
            "yaxis": "y2",
        }
        points |= {"mode": "markers", "marker": {"color": colour, "size": 6}, "showlegend": False}
        curves.append(common | line | {"hovertemplate": "%{y:,.1f} " + say("million")})
        curves.append(common | points | {"hovertemplate": "%{y:.2f} " + say("ms")})
    title = {"text": say("tokens of the text after the step"), "standoff": 6}
    measured = say("milliseconds, measured") if costs.clear else say("milliseconds, measured (too noisy to tell)")
    axes = {
        "xaxis": {"domain": [0, 0.6], "title": title},
        "xaxis2": {"domain": [0.7, 1], "title": title, "anchor": "y2"},
        "yaxis": {"title": {"text": say("million multiply-adds, counted")}, "rangemode": "tozero"},
        "yaxis2": {"title": {"text": measured}, "rangemode": "tozero", "anchor": "x2"},
    }
    look = {"height": 340, "margin": MARGIN | {"t": 40}, "hovermode": "x unified", "legend": LEGEND | {"y": 1.14}}
    return figure(curves, axes | look)


def cost_sentence(costs: Costs) -> str:
    """How both grow, in numbers."""
    last = len(costs.counted_full)
    full, cached = costs.counted_full[-1], costs.counted_cached[-1]
    steps = {"last": last, "full": large(full), "cached": large(cached), "times": full / cached}
    growth = {"full_growth": full / costs.counted_full[0], "cached_growth": cached / costs.counted_cached[0]}
    words = say(COUNTED, **steps, **growth)
    if not costs.measured:
        return words
    if not costs.clear:
        return together([words, say(NOISY)])
    first, last_one, cached_ones = costs.measured[0], costs.measured[-1], [cost.cached for cost in costs.measured]
    times = {"begin": first.full, "end": last_one.full, "least": min(cached_ones), "most": max(cached_ones)}
    measured = {name: seconds * 1e3 for name, seconds in times.items()}
    return together([words, say(MEASURED, first=first.length, last=last_one.length, **measured)])


def old_rows_figure(rows: np.ndarray, labels: Sequence[str], *, causal: bool) -> CachedFigure:
    """For each old row [T-1], the largest change of a weight when the newest token is added."""
    hover = say("old row <b>%{x}</b><br>a weight changes by up to %{y:.6f}")
    changes = bars(position_names(labels), rows, "change", hover, STANDARD if causal else NOW)
    top = max(float(rows.max(initial=0.0)) * 1.1, 0.01)
    heights = {"title": {"text": say("largest change of a weight")}, "range": [0, top]}
    return figure([changes], {"height": 260, "margin": MARGIN, "xaxis": _keys(labels), "yaxis": heights})


def _keys(labels: Sequence[str]) -> Part:
    return token_axis(labels, 40) | SMALL_LABELS | {"type": "category"}


def differences_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    """Largest differences, a row each, under their column names; what is not to be had is NaN."""
    titles = [th(head[0]), *(th(name, "number") for name in head[1:])]
    body = [
        [td(what, style="white-space:normal"), *(td("–" if one != one else number(one), "number") for one in numbers)]
        for what, numbers in rows
    ]
    return table([titles, *body], "numbers differences")  # not shown
