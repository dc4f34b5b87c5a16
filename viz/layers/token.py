"""Where one token looks, layer by layer: a heatmap whose rows are layers, the first on top, its columns keys."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from i18n import N_, say
from viz.heatmap import LONGEST_TICK, MOST_TICKS, Part, colour_bar, colour_range, figure, hatching, title
from viz.html import escaped
from viz.palette import SEQUENTIAL_SCALE, diverging
from viz.view import MOST_CELLS

TITLES = (N_("now"), N_("standard masks"), N_("now − standard"))
ROW, MOST = 34, 480  # pixels of a layer, and of a picture
TOP, BETWEEN, BOTTOM = 34, 40, 84


@dataclass(frozen=True, eq=False)
class TokenView:
    """One query over L layers and K keys. values: float32 [L,K]. blocked: for each mask, bool [L,K]. layers, keys: a
    label each. first: the position of the first key; step: how many each column stands for. unit: what a value is.
    """

    values: np.ndarray
    blocked: dict[str, np.ndarray]
    layers: Sequence[str]
    keys: Sequence[str]
    unit: str
    first: int = 0
    step: int = 1

    def any_blocked(self) -> np.ndarray:
        """bool [L,K], True where at least one mask blocks the cell."""
        return np.any([np.zeros(self.values.shape, bool), *self.blocked.values()], axis=0)

    def cropped(self, begin: int, end: int) -> "TokenView":
        """The keys from a position up to, without, another."""
        part = slice(begin - self.first, end - self.first)
        masks = {name: mask[:, part] for name, mask in self.blocked.items()}
        return replace(self, values=self.values[:, part], blocked=masks, keys=self.keys[part], first=begin)


def reduced_words(view: TokenView) -> str:
    """In a sentence: how many keys a column stands for; "" for one."""
    _, step = _columns(view)
    if step == 1:
        return ""
    return say("{count:,} tokens are too many for a screen: each column is the largest of {step}.",
               count=len(view.keys), step=step)  # fmt: skip


def token_figure(now: TokenView, standard: TokenView | None, *, dark: bool) -> go.Figure:
    """One picture, or three one above the other: now, under the standard masks, and the difference."""
    views = [_coarser(view) for view in ([now] if standard is None else [now, standard])]
    tall = min(ROW * len(now.layers), MOST if standard is None else MOST // 2)
    zmax = colour_range(*(view.values for view in views))
    pictures = [(view.values, view.any_blocked(), view.blocked) for view in views]
    if standard is not None:
        closed = views[0].any_blocked() & views[1].any_blocked()
        both = {name: mask & closed for name, mask in views[1].blocked.items()}
        pictures.append((_change(now, standard), closed, both))
    count = len(pictures)
    height = TOP + count * tall + (count - 1) * BETWEEN + BOTTOM
    room = height - TOP - BOTTOM
    layout: Part = {"height": height, "margin": {"l": 70, "r": 90, "t": TOP, "b": BOTTOM, "autoexpand": False},
                    "images": [], "annotations": []}  # fmt: skip
    traces = []
    for number, (values, closed, blocked) in enumerate(pictures):
        top = 1 - number * (tall + BETWEEN) / room
        place = "" if number == 0 else str(number + 1)
        bar = {"x": 1.01, "y": top, "yanchor": "top", "len": tall / room, "ypad": 0}
        traces.append(_trace(views[0], np.where(closed, np.nan, values), place, zmax, bar, dark, change=number == 2))
        layout |= _axes(views[0], place, (max(top - tall / room, 0), top), last=number == count - 1)
        layout["images"] += hatching(blocked, dark=dark, place=place)
        if standard is not None:
            layout["annotations"].append(title(f"<b>{say(TITLES[number])}</b>", 0, top))
    return figure(traces, layout)


def _trace(view: TokenView, z: np.ndarray, place: str, zmax: float, bar: Part, dark: bool, *, change: bool) -> Part:
    reach = max(float(np.nanmax(np.abs(z), initial=0.0)), 0.01)
    colours: Part = {"zmin": 0, "zmax": zmax, "colorscale": SEQUENTIAL_SCALE}
    if change:
        colours = {"zmin": -reach, "zmax": reach, "colorscale": diverging(dark)}
    unit = say("change") if change else view.unit
    value = f"{unit} %{{z:{'+' if change else ''}.4f}}"
    return colours | {
        "type": "heatmap",
        "z": z.astype(np.float32),
        "x": [f"{view.first + place * view.step}: {escaped(label)}" for place, label in enumerate(view.keys)],
        "y": list(view.layers),
        "xaxis": "x" + place,
        "yaxis": "y" + place,
        "hoverongaps": False,
        "colorbar": colour_bar(unit, **bar),
        "hovertemplate": say("<b>%{y}</b> on <b>%{x}</b>") + f"<br>{value}<extra></extra>",
        "name": "difference" if change else "weights",
    }


def _axes(view: TokenView, place: str, domain: tuple[float, float], *, last: bool) -> dict[str, Any]:
    axis = {"type": "category", "showgrid": False, "zeroline": False, "ticks": ""}
    x: Part = axis | {"anchor": "y" + place, "showticklabels": last}
    if place:
        x["matches"] = "x"
    every = math.ceil(len(view.keys) / MOST_TICKS)
    shown = range(0, len(view.keys), every)
    x |= {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [escaped(view.keys[one][:LONGEST_TICK]) for one in shown],
        "tickangle": -90,
        "tickfont": {"size": 11 if len(view.keys) <= 32 else 9},
    }
    y = axis | {"anchor": "x" + place, "autorange": "reversed", "domain": list(domain), "tickfont": {"size": 11},
                "tickmode": "array", "tickvals": list(range(len(view.layers))),
                "ticktext": list(view.layers)}  # fmt: skip
    return {f"xaxis{place}": x, f"yaxis{place}": y}


def _coarser(view: TokenView) -> TokenView:
    """At most MOST_CELLS columns, each the largest value of several keys."""
    begins, step = _columns(view)
    if step == 1:
        return view
    masks = {name: np.logical_and.reduceat(mask, begins, axis=1) for name, mask in view.blocked.items()}
    keys = ["".join(view.keys[begin : begin + step]) for begin in begins]
    values = np.maximum.reduceat(view.values, begins, axis=1)
    return replace(view, values=values, blocked=masks, keys=keys, step=step)


def _change(now: TokenView, standard: TokenView) -> np.ndarray:
    """now - standard; of several keys, the change of largest size."""
    change = now.values - standard.values
    begins, _ = _columns(now)
    most, least = (reduce.reduceat(change, begins, axis=1) for reduce in (np.maximum, np.minimum))
    return np.where(most >= -least, most, least)


def _columns(view: TokenView) -> tuple[list[int], int]:
    """Where each column begins, and how many keys it stands for."""
    step = -(-len(view.keys) // MOST_CELLS)
    return list(range(0, len(view.keys), step)), step
