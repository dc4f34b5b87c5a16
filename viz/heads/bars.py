"""One query's weights as bars, in the order of the text or the largest first, and a sentence on their distribution."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from model.heads.view import HeadView, cropped
from viz.charts import LEGEND, MARGIN, bars, scatter, token_axis
from viz.hatch import blocked_groups
from viz.heads.cells import weight_text
from viz.heatmap import CachedFigure, Part, attends_to_line, axis_names, axis_titles, figure
from viz.html import escaped, filled, join, paragraph, tag
from viz.mask_styles import PERIOD
from viz.numbers import percent
from viz.palette import MASK_COLOURS, NOW, STANDARD

MAX_SORTED = 32  # bars
MAX_LABELS = 40
VISIBLE = 5e-5  # a smaller change of a weight does not show in its four digits
MOVED = N_(
    "{query}: {moved} of its weight has moved compared with the standard masks; {opened} of its weight is on keys that "
    "those block."
)
MOVED_TOGETHER = N_("{query}: {moved} of its weight has moved compared with the standard masks.")


@dataclass(frozen=True, eq=False)
class BarRow:
    """One query's row over K keys. view: [1,K]; standard: the row under the standard masks, None if it is the same."""

    view: HeadView
    standard: HeadView | None

    @property
    def name(self) -> str:
        """The query's position and token: "3: cat"."""
        return f"{self.view.first}: {self.view.queries[0]}"

    @property
    def now(self) -> np.ndarray:
        """The weights [K]."""
        return self.view.weights[0]

    def largest(self, limit: int = MAX_SORTED) -> np.ndarray:
        """Return at most `limit` keys, sorted by their largest weight in either row, without keys blocked in both."""
        views = [self.view] if self.standard is None else [self.view, self.standard]
        free = ~np.all([view.any_blocked()[0] for view in views], axis=0)
        order = np.argsort(-np.max([view.weights[0] for view in views], axis=0), kind="stable")
        return order[free[order]][:limit]


def row_of(view: HeadView, standard: HeadView | None, query: int) -> BarRow:
    """Return the row at position `query` of whole views."""
    rows, columns = (query, query + 1), (0, view.weights.shape[1])
    return BarRow(cropped(view, rows, columns), None if standard is None else cropped(standard, rows, columns))


def bars_figure(row: BarRow, *, largest_first: bool) -> CachedFigure:
    """Draw a bar for each key: all in the order of the text, or only the largest, sorted. Blocked keys have a cross."""
    names = np.array(axis_names(row.view)["x"], object)
    keys = row.largest() if largest_first else np.arange(len(names))
    series = [(say("weight"), row.view, NOW)]
    if row.standard:
        series = [(say("now"), row.view, NOW), (say("standard"), row.standard, STANDARD)]
    hover = f"{attends_to_line(escaped(row.name))}<br>"
    traces: list[Part] = []
    for name, view, colour in series:
        shown = np.where(view.any_blocked()[0], np.nan, view.weights[0])[keys]
        words = say("weight {weight}", weight="%{y:.4f}") + (f" ({name})" if row.standard else "")
        traces.append(bars(names[keys].tolist(), shown, name, hover + words, colour))
    for words, cells in blocked_groups(row.view):
        here = keys[cells[0][keys]]
        first = next(name for name, mask in row.view.blocked.items() if mask[cells].any())
        cross = {"symbol": "x", "size": PERIOD, "color": MASK_COLOURS[first]}
        zeros = np.zeros(len(here), np.float32)
        traces.append(scatter(names[here].tolist(), zeros, words, hover + words, marker=cross))
    across = token_axis([row.view.keys[key] for key in keys], MAX_LABELS, 0.6)
    across |= {"type": "category", "automargin": True, "title": {"text": axis_titles(row.view)[1]}}
    heights = {"title": {"text": say("weight")}, "rangemode": "tozero", "automargin": True}
    layout = {"height": 330, "margin": MARGIN, "bargap": 0.15, "legend": LEGEND, "barmode": "group"}
    return figure(traces, layout | {"xaxis": across, "yaxis": heights, "showlegend": len(traces) > 1})


def weight_distribution_sentence(row: BarRow, named: BarRow | None = None) -> str:
    """Say on how many keys the query's weight is concentrated, or where changed masks moved it. HTML. named: the row
    whose weights are quoted, by default `row`, which may be a sum of queries."""
    who = tag("b", row.name)
    if not row.now.any():
        return paragraph(filled(say("{query} attends to nothing: every key is blocked."), query=who), "key")
    if row.standard is not None:
        return paragraph(_moved(who, row, row.standard, named or row), "key")
    shares = np.cumsum(np.sort(row.now.astype(np.float64))[::-1]) / row.now.sum(dtype=np.float64)
    half, most = (int(np.searchsorted(shares, share - 1e-6)) + 1 for share in (0.5, 0.9))
    template = say("{query}: half of its weight is on {half} of its allowed keys ({keys:,}), 90% on {most}.")
    keys = int((~row.view.any_blocked()).sum())
    return paragraph(filled(template, query=who, half=half, keys=keys, most=most), "key")


def _moved(who: Markup, row: BarRow, standard: HeadView, named: BarRow) -> Markup:
    """Say how much weight the changed masks moved, and from which keys to which."""
    now, before = row.now.astype(np.float64), standard.weights[0].astype(np.float64)
    if not before.any():
        words = say("{query} attends to nothing under the standard masks: every key is blocked.")
        return filled(words, query=who)
    change = now - before
    share = (np.abs(change).sum() + abs(change.sum())) / 2  # the sums differ if a sink takes part
    opened = float(now[standard.any_blocked()[0] & ~row.view.any_blocked()[0]].sum())
    words = MOVED_TOGETHER if row.view.merged else MOVED  # a merged key is blocked only where all its cells are
    moved = filled(say(words), query=who, moved=percent(share), opened=percent(opened))
    old, new = named.standard.weights[0] if named.standard else before, named.now
    largest = [
        join((tag("b", f"{key}: {row.view.keys[key]}"), f" ({weight_text(old[key])} → {weight_text(new[key])})"))
        for key in np.argsort(-np.abs(change), kind="stable")[:2]
        if abs(change[key]) >= VISIBLE
    ]
    if not largest:
        return moved
    changes = filled(say("The largest changes: {changes}."), changes=join(largest, say(", ")))
    return join((moved, changes), " ")


def remaining_keys_sentence(row: BarRow, shown: int) -> str:
    """Say how many keys, with which weight, the bars of the largest keys leave out; "" if none. shown: their number."""
    rest = row.largest(len(row.now))[shown:]
    if not len(rest):
        return ""
    share = percent(float(row.now[rest].sum() / (row.now.sum() or 1)))  # the sum is not 1 for several queries or a sink
    return say("All other keys ({count:,}): {share} of the weight.", count=len(rest), share=share)
