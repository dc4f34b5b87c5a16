"""One query's weights as bars, in the order of the text or the largest first, and a sentence on where they lie."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from model.heads.view import HeadView, cropped
from viz.charts import LEGEND, MARGIN, bars, token_axis
from viz.heads.cells import weight_text
from viz.heatmap import KEY_TITLE, CachedFigure, Part, axis_names, figure, looks_at
from viz.html import escaped, filled, join, tag
from viz.mask_styles import PERIOD
from viz.numbers import percent
from viz.palette import MASK_COLOURS, NOW, STANDARD
from viz.reasons import blocked_groups

MOST_SORTED = 32  # bars
MOST_LABELS = 40
NOWHERE = {  # whether a query attends to anything now, and under the standard masks
    (False, False): N_("{query} attends to nothing now and under the standard masks: every key is blocked."),
    (False, True): N_("{query} attends to nothing now: every key is blocked."),
    (True, False): N_("{query} attends to nothing under the standard masks: every key is blocked."),
}
MOVED = {  # whether keys are open that the standard masks block
    True: N_("{query}: {moved} of its weight has moved compared with the standard masks; {opened} of its weight is on "
             "keys that those block."),
    False: N_("{query}: {moved} of its weight has moved compared with the standard masks."),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class BarRow:
    """One query over K keys. view: its own row of the head, [1,K]; standard: likewise under the standard masks, or
    None where nothing is changed."""

    view: HeadView
    standard: HeadView | None

    @property
    def name(self) -> str:
        """The query's position and token."""
        return f"{self.view.first}: {self.view.queries[0]}"

    @property
    def now(self) -> np.ndarray:
        """Weights [K]."""
        return self.view.weights[0]

    def largest(self, most: int = MOST_SORTED) -> np.ndarray:
        """At most so many keys, the heaviest (now or as standard) first; no key that is blocked in both."""
        both = self.now if self.standard is None else np.maximum(self.now, self.standard.weights[0])
        free = ~self.view.any_blocked()[0]
        if self.standard is not None:
            free |= ~self.standard.any_blocked()[0]
        order = np.argsort(-both, kind="stable")
        return order[free[order]][:most]


def row_of(view: HeadView, standard: HeadView | None, query: int) -> BarRow:
    """The row of a position of whole views."""
    rows, columns = (query, query + 1), (0, view.weights.shape[1])
    return BarRow(cropped(view, rows, columns), None if standard is None else cropped(standard, rows, columns))


def bars_figure(row: BarRow, *, largest_first: bool) -> CachedFigure:
    """A bar for each key: all in the order of the text, or the largest alone. Blocked keys are marked as such."""
    names = np.array(axis_names(row.view)["x"], object)
    places = row.largest() if largest_first else np.arange(len(names))
    series = [(say("weight"), row.view, NOW)]
    if row.standard:
        series = [(say("now"), row.view, NOW), (say("standard"), row.standard, STANDARD)]
    hover = f"{looks_at(escaped(row.name), '%{x}')}<br>"
    traces: list[Part] = []
    for name, view, colour in series:
        shown = np.where(view.any_blocked()[0], np.nan, view.weights[0])[places]
        words = say("weight {weight}", weight="%{y:.4f}") + (f" ({name})" if row.standard else "")
        traces.append(bars(names[places].tolist(), shown, name, hover + words, colour))
    for words, cells in blocked_groups(row.view):
        here = places[cells[0][places]]
        first = next(name for name, mask in row.view.blocked.items() if mask[cells].any())
        said = {"name": words, "hovertemplate": f"{hover}{words}<extra></extra>"}
        traces.append(_crosses(names[here], MASK_COLOURS[first]) | said)
    across = token_axis([row.view.keys[place] for place in places], MOST_LABELS, 0.6)
    across |= {"type": "category", "automargin": True, "title": {"text": say(KEY_TITLE)}}
    heights = {"title": {"text": say("weight")}, "rangemode": "tozero", "automargin": True}
    layout = {"height": 330, "margin": MARGIN, "bargap": 0.15, "legend": LEGEND, "barmode": "group"}
    return figure(traces, layout | {"xaxis": across, "yaxis": heights, "showlegend": len(traces) > 1})


def _crosses(names: np.ndarray, colour: str) -> Part:
    """On the ground line, at keys that are blocked."""
    zeros = np.zeros(len(names), np.float32)
    cross = {"symbol": "x", "size": PERIOD, "color": colour}
    return {"type": "scatter", "mode": "markers", "x": names.tolist(), "y": zeros, "marker": cross}


def where_it_lies(row: BarRow) -> str:
    """HTML: on how few keys the query's weight lies, or where changed masks moved it."""
    who = tag("b", row.name)
    if row.standard is None:
        words = _spread(who, row.now, row.view.any_blocked()[0])
    else:
        words = _moved(who, row, row.now.astype(np.float64), row.standard.weights[0].astype(np.float64))
    return tag("p", words, class_="key")


def _moved(who: Markup, row: BarRow, now: np.ndarray, before: np.ndarray) -> Markup:
    """What the changed masks did to the weights [K]."""
    assert row.standard is not None
    if not now.any() or not before.any():
        return filled(say(NOWHERE[bool(now.any()), bool(before.any())]), query=who)
    moved = np.abs(now - before).sum() / 2
    if moved < 5e-5:
        return filled(
            say("{query} attends as before: the changed masks move less than 0.01% of its weight."), query=who
        )
    opened = float(now[row.standard.any_blocked()[0] & ~row.view.any_blocked()[0]].sum())
    whole = filled(say(MOVED[opened > 0]), query=who, moved=percent(moved), opened=percent(opened))
    return join((whole, _from_to(row, now, before)), " ")


def _from_to(row: BarRow, now: np.ndarray, before: np.ndarray) -> Markup:
    """The keys that gained and that lost most; weights [K] that differ."""
    gain, loss = int((now - before).argmax()), int((now - before).argmin())
    gains, loses = now[gain] > before[gain], now[loss] < before[loss]
    if gains and loses:
        said = say("The most goes to {gain}, from {loss}.")
    elif gains:
        said = say("The most goes to {gain}.")
    else:
        said = say("The most comes from {loss}.")

    def key(place: int) -> Markup:
        name = tag("b", f"{place}: {row.view.keys[place]}")
        return join((name, f" ({weight_text(before[place])} → {weight_text(now[place])})"))

    return filled(said, gain=key(gain), loss=key(loss))


def rest_words(row: BarRow, shown: int) -> str:
    """What the bars of the largest keys leave out; "" where that is nothing."""
    order = row.largest(len(row.now))
    if len(order) <= shown:
        return ""
    rest = float(row.now[order[shown:]].sum())
    return say(
        "The other {count:,} keys together: {share} of the weight.", count=len(order) - shown, share=percent(rest)
    )


def _spread(who: Markup, now: np.ndarray, blocked: np.ndarray) -> Markup:
    total = float(now.sum(dtype=np.float64))
    if total == 0:
        return filled(say("{query} attends to nothing: every key is blocked."), query=who)
    free = int((~blocked).sum())
    if free == 1:
        return filled(say("{query} has all its weight on its only allowed key."), query=who)
    shares = np.cumsum(np.sort(now.astype(np.float64))[::-1]) / total
    half, most = (int(np.searchsorted(shares, share - 1e-6)) + 1 for share in (0.5, 0.9))
    said = say("{query}: half of its weight is on {half} of its {keys:,} allowed keys, 90% on {most}.")
    return filled(said, query=who, half=half, keys=free, most=most)
