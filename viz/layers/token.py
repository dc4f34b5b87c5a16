"""Where one token looks, layer by layer: a heatmap whose rows are layers, the first on top, its columns keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import escape

from i18n import N_, say, together
from model.heads.view import MOST_CELLS
from viz.charts import both_sides, heat, token_axis
from viz.head import TITLES
from viz.heatmap import AXIS, MOST_TICKS, CachedFigure, Part, colour_bar, colour_range, figure, hatching, title
from viz.html import escaped
from viz.layers.lens import column_names
from viz.numbers import chance, percent
from viz.palette import SEQUENTIAL_SCALE

ROW, MOST = 34, 480  # pixels of a layer, and of a picture
TOP, BETWEEN, BOTTOM = 34, 40, 84


@dataclass(frozen=True, eq=False)
class TokenView:
    """One query over L layers and K keys. values: float32 [L,K]. blocked: for each mask, bool [L,K]. first: the first
    key's position; step: how many keys a column stands for. unit: what a value is."""

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
    return say("{count:,} tokens do not fit on the screen: each column shows the largest of {step}.",
               count=len(view.keys), step=step)  # fmt: skip


def token_figure(now: TokenView, standard: TokenView | None, *, dark: bool) -> CachedFigure:
    """One picture, or three one above the other: now, under the standard masks, and the difference."""
    views = [_coarser(view) for view in ([now] if standard is None else [now, standard])]
    tall = min(ROW * len(now.layers), MOST if standard is None else MOST // 2)
    colours = {"zmin": 0, "zmax": colour_range(*(view.values for view in views)), "colorscale": SEQUENTIAL_SCALE}
    pictures = [(view, colours) for view in views]
    if standard is not None:
        pictures.append(_difference(now, standard, *views, dark=dark))
    count = len(pictures)
    room = count * tall + (count - 1) * BETWEEN
    margins = {"l": 70, "r": 90, "t": TOP, "b": BOTTOM, "autoexpand": False}
    layout: Part = {"height": TOP + room + BOTTOM, "margin": margins, "images": [], "annotations": []}
    traces = []
    for number, (view, some) in enumerate(pictures):
        top = 1 - number * (tall + BETWEEN) / room
        place = str(number + 1) if number else ""
        bar = {"x": 1.01, "y": top, "yanchor": "top", "len": tall / room, "ypad": 0}
        traces.append(_trace(view, place, change=number == 2) | some | {"colorbar": colour_bar(view.unit, **bar)})
        layout |= _axes(view, place, (max(top - tall / room, 0), top), last=number == count - 1)
        layout["images"] += hatching(view.blocked, dark=dark, place=place)
        if standard is not None:
            layout["annotations"].append(title(f"<b>{say(TITLES[number])}</b>", 0, top))
    return figure(traces, layout)


def _difference(
    now: TokenView, standard: TokenView, view: TokenView, other: TokenView, *, dark: bool
) -> tuple[TokenView, Part]:
    """now - standard, hatched where both are blocked, and its colours. view, other: both as coarse as it is shown."""
    closed = view.any_blocked() & other.any_blocked()
    both = {name: mask & closed for name, mask in other.blocked.items()}
    change = _change(now, standard)
    reach = max(float(np.abs(change[~closed]).max(initial=0.0)), 0.01)
    return replace(view, values=change, blocked=both, unit=say("change")), both_sides(reach, dark)


def _trace(view: TokenView, place: str, *, change: bool) -> Part:
    keys = [f"{view.first + column * view.step}: {escaped(label)}" for column, label in enumerate(view.keys)]
    hover = say("<b>%{y}</b> on <b>%{x}</b>") + f"<br>{view.unit} %{{z:{'+' if change else ''}.4f}}"
    values = np.where(view.any_blocked(), np.nan, view.values)
    return heat(values, keys, list(view.layers), "difference" if change else "weights", hover, place)


def _axes(view: TokenView, place: str, domain: tuple[float, float], *, last: bool) -> Part:
    font = {"size": 11 if len(view.keys) <= 32 else 9}
    keys = token_axis(view.keys, MOST_TICKS) | {"tickfont": font, "showticklabels": last}
    layers: Part = {"tickmode": "array", "tickvals": list(range(len(view.layers))), "ticktext": list(view.layers)}
    layers |= {"tickfont": {"size": 11}, "autorange": "reversed", "domain": list(domain)}
    keys |= {"anchor": "y" + place} | ({"matches": "x"} if place else {})
    return {f"xaxis{place}": AXIS | keys, f"yaxis{place}": AXIS | layers | {"anchor": "x" + place}}


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


if TYPE_CHECKING:  # it imports torch
    from model.heads.logit_lens import LogitLens

SETTLED = N_("After “{token}” the model predicts “{label}” ({chance}), ranked first from {layer} on.")
SEEN = {
    "maximum": N_("The largest weight that “{token}” gives one token in a single head is in {layer}: {share} to "
                  "{other}."),
    "mean": N_("The largest mean weight over heads that “{token}” gives one token is in {layer}: {share} to {other}."),
    "rollout": N_("By the end of {layer}, {itself} of “{token}”'s rollout is from itself; the most from another token "
                  "is {share}, from {other}."),
    "flow": N_("By the end of {layer}, the most that can flow to “{token}” from another token is {flow:.2f}, from "
               "{other}."),
}  # fmt: skip


def lens_sentence(lens: "LogitLens", place: int, piece: str, standard: "LogitLens | None" = None) -> str:
    """HTML: what the model predicts after one token, since which layer, and what stood on top before."""
    names, tops = column_names(len(lens.ids)), lens.ids[:, place, 0]
    label, share = lens.labels[int(tops[-1])], float(lens.probabilities[-1, place, 0])
    settled = lens.settled(place)
    about = {"token": escape(piece), "label": escape(label), "chance": chance(share), "layer": names[settled]}
    said = [say(SETTLED, **about)]
    if settled:
        before = escape(lens.labels[int(tops[settled - 1])])
        said.append(say("After {layer} it was “{before}”.", layer=names[settled - 1], before=before))
    if standard is not None:
        was, share = standard.labels[int(standard.ids[-1, place, 0])], float(standard.probabilities[-1, place, 0])
        words = N_("Under the standard masks it predicts “{label}” ({chance}).")
        said.append(say(words, label=escape(was), chance=chance(share)))
    return together(said)


def token_sentence(view: TokenView, how: str, query: int, piece: str, standard: TokenView | None = None) -> str:
    """HTML: where one query looks, how: "mean", "maximum", "rollout" or "flow". query: its position."""
    if not view.values.any():
        return say("“{token}” attends to nothing in any layer.", token=escape(piece))
    sentence = _seen(view, how, query, piece)
    return sentence if standard is None else together([sentence, _moved(view, standard, query)])


def _seen(view: TokenView, how: str, query: int, piece: str) -> str:
    token, last = escape(piece), view.layers[-1]
    if how in ("mean", "maximum"):
        layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
        where = {"layer": view.layers[layer], "other": _name(view, key, query)}
        return say(SEEN[how], token=token, share=percent(float(view.values[layer, key])), **where)
    others = view.values[-1].copy()
    here = slice(max(query - view.first, 0), max(query - view.first + 1, 0))  # empty where the query is out of sight
    itself, others[here] = float(others[here].sum()), 0
    best = int(others.argmax())
    if others[best] == 0:
        return say("By the end of {layer}, “{token}” has received nothing but its own state.", layer=last, token=token)
    about = {"layer": last, "token": token, "other": _name(view, best, query), "flow": float(others[best])}
    return say(SEEN[how], itself=percent(itself), share=percent(float(others[best])), **about)


def _moved(view: TokenView, standard: TokenView, query: int) -> str:
    change = np.abs(view.values - standard.values)
    layer, key = divmod(int(change.argmax()), change.shape[1])
    where = {"layer": view.layers[layer], "other": _name(view, key, query)}
    values = {"was": standard.values[layer, key], "now": view.values[layer, key]}
    return say("The largest change from the standard masks is {layer} on {other}: {was:.2f} → {now:.2f}.",
               **where, **values)  # fmt: skip


def _name(view: TokenView, key: int, query: int) -> str:
    if view.first + key == query:
        return say("itself")
    return f"“{escape(view.keys[key])}” ({view.first + key})"


def token_alt(view: TokenView, piece: str) -> str:
    """The picture for whoever cannot see it."""
    layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
    sizes = {"unit": view.unit.capitalize(), "layers": len(view.layers), "keys": len(view.keys)}
    where = {"layer": view.layers[layer], "position": view.first + key, "key": view.keys[key]}
    return say("{unit} of “{token}”, {layers} layers by {keys} keys. The largest, {largest:.2f}, is in {layer} on "
               "{position} ({key}).", token=piece, largest=view.values.max(), **sizes, **where)  # fmt: skip
