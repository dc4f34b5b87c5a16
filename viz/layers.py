"""The page Across layers: the logit lens as a table, and one token's attention, layer by layer.

One token's attention is a HeadView too: weights [L,K] of one query in each layer; its `queries` are layers' labels.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_count, together
from model.heads.view import MAX_CELLS, HeadView, head_name
from viz.charts import symmetric_colours, token_axis
from viz.head import TITLES
from viz.heatmap import AXIS, MAX_TICKS, CachedFigure, Part, colour_bar, colour_range, figure, hatching, heat, title
from viz.html import escaped, join, scrollable, shortened, table, tag, td, th
from viz.numbers import chance, key_count, layer_count, percent
from viz.palette import MARK, NOW, SEQUENTIAL_SCALE, ink_on, stops
from viz.sentence import DIFFERENT

if TYPE_CHECKING:  # this module imports torch
    from model.heads.layers import LogitLens


CANDIDATES = "numbers lens-candidates"  # not shown: classes
SHADES = 32
ENDINGS = {1: N_("{rank:,}st"), 2: N_("{rank:,}nd"), 3: N_("{rank:,}rd")}


def column_names(readings: int) -> list[str]:
    """Return the names of the lens's readings: "embedding", "L0", "L1" …; the last is the model's own output."""
    return [say("embedding"), *map(head_name, range(readings - 1))]


def lens_table(
    lens: "LogitLens", positions: Mapping[int, str], query: int, standard: "LogitLens | None" = None
) -> Markup:
    """Return the logit lens as a table. positions: those of the lens, with their labels. query: the position to frame.
    standard: the lens under the standard masks; predictions that differ from it are marked.
    """
    names = column_names(len(lens.ids))
    last = th(join((names[-1], tag("small", " " + say("the model")))), scope="col")
    rows = [tag("tr", join([*(th(name, scope="col") for name in (say("position"), *names[:-1])), last]))]
    for row, (position, label) in enumerate(positions.items()):
        token = tag("span", shortened(label, 12), class_="t", translate="no", title=label)
        title = join((tag("small", position), " ", token))
        cells = [_cell(lens, reading, row, names[reading], standard) for reading in range(len(names))]
        chosen = {"class_": "chosen"} if position == query else {}
        rows.append(tag("tr", join((th(title, scope="row"), *cells)), **chosen))
    label = say("Logit lens, {rows} × {readings} (positions × readings): each cell's most likely next token.",
                rows=len(positions), readings=len(names))  # fmt: skip
    body = tag("table", join(rows), class_="lens")
    return Markup(STYLE) + scrollable(body, label, "lens")


def candidates_table(lens: "LogitLens", row: int) -> Markup:
    """Return a table of one token's most likely candidate after each layer, and the probability and rank of the token
    that follows in the text; if none follows, the next candidates. row: an index into the lens's positions."""
    follows = int(lens.next_ids[row])
    heading = say("next") if follows < 0 else say("“{token}”, the actual next token", token=lens.labels[follows])
    rows = []
    for reading, name in enumerate(column_names(len(lens.ids))):
        (label, share), *others = _candidates(lens, reading, row)
        nearest = (join((tag("code", other, translate="no"), chance(its)), " ") for other, its in others[:2])
        note: str = listed(_next_token_texts(lens, reading, row)) if follows >= 0 else join(nearest, say(", "))
        rows.append([td(name), td(label, "token", translate="no"), td(chance(share), "number"), td(note, "wide")])
    head = [th(say("after")), th(say("most likely"), colspan=2), th(heading)]
    return table([head, *rows], CANDIDATES)


def key(*, compared: bool) -> Markup:
    """Return the key to lens_table. compared: whether predictions are compared with those under the standard masks."""
    mark = Markup('<span class="lens-mark {}"></span>{}')
    marks = [
        say("Colour: the probability of the token in the cell, brightness its square root."),
        mark.format("follows", say("the actual next token of the text.")),
    ]
    if compared:
        marks.append(mark.format("other", say("a different token than under the standard masks.")))
    return tag("p", Markup(" ").join(marks), class_="key")


def ordinal(rank: int) -> str:
    """Write a rank as an ordinal: 1 -> "1st", 2 -> "2nd", 11 -> "11th", 1042 -> "1,042nd"."""
    if rank % 100 not in (11, 12, 13) and rank % 10 in ENDINGS:
        return say(ENDINGS[rank % 10], rank=rank)
    return say("{rank:,}th", rank=rank)


def _cell(lens: "LogitLens", reading: int, row: int, name: str, standard: "LogitLens | None") -> Markup:
    found = _candidates(lens, reading, row)
    label, share = found[0]
    top, follows = int(lens.ids[reading, row, 0]), int(lens.next_ids[row])
    parts = [f"{name}: " + listed(f"{one} {chance(probability)}" for one, probability in found)]
    if follows >= 0:
        share_of_next, rank = _next_token_texts(lens, reading, row)
        next_one = {"token": lens.labels[follows], "chance": share_of_next, "rank": rank}
        parts.append(say("“{token}”, the actual next token: {chance}, {rank}", **next_one))
    marks = ["follows"] if top == follows else []
    if standard is not None and top != int(standard.ids[reading, row, 0]):
        marks.append("other")
        was, probability = _candidates(standard, reading, row)[0]
        parts.append(say("Standard masks: {token} {chance}", token=was, chance=chance(probability)))
    shade = round(min(max(share, 0.0), 1.0) ** 0.5 * (SHADES - 1))
    return td(label, " ".join([f"s{shade}", *marks]), title=say(". ").join(parts), translate="no")


def _candidates(lens: "LogitLens", reading: int, row: int) -> list[tuple[str, float]]:
    ids, shares = lens.ids[reading, row], lens.probabilities[reading, row]
    return [(lens.labels[int(one)], float(share)) for one, share in zip(ids, shares, strict=True)]


def _next_token_texts(lens: "LogitLens", reading: int, row: int) -> tuple[str, str]:
    """Write the probability and the rank of the token that follows in the text."""
    return chance(float(lens.next_probabilities[reading, row])), ordinal(int(lens.next_ranks[reading, row]))


_RULES = " ".join(
    f"table.lens td.s{shade} {{ background: rgb({r},{g},{b}); color: {ink_on(r, g, b)}; }}"  # not shown
    for shade, (r, g, b) in enumerate(stops(SHADES).tolist())
)
STYLE = f"""
<style>
  div.lens {{ overflow: auto; max-height: max(24rem, calc(100dvh - 19rem)); }}
  table.lens {{ border-collapse: separate; border-spacing: 2px; font-size: .85rem; width: 100%; }}
  table.lens th {{ font-weight: 600; text-align: left; padding: .1rem .4rem; white-space: nowrap; }}
  table.lens th small {{ font-weight: 400; opacity: .7; }}
  table.lens tr:first-child th {{ position: sticky; top: 0; z-index: 1; background: light-dark(#FFFFFF, #14171C); }}
  table.lens th[scope=row] {{ position: sticky; left: 0; background: light-dark(#FFFFFF, #14171C); font-weight: 400; }}
  table.lens .t, table.lens td {{ font-family: monospace; unicode-bidi: isolate; }}
  table.lens td {{ padding: .1rem .4rem; border-radius: 3px; max-width: 9rem; overflow: hidden; white-space: nowrap;
    text-overflow: ellipsis; min-width: 4rem; cursor: default; }}
  table.lens tr.chosen th[scope=row] {{ box-shadow: inset 3px 0 0 {MARK}; font-weight: 600; }}
  table.lens tr.chosen td {{ outline: 1.5px solid {MARK}; }}
  table.lens td.follows {{ text-decoration: underline; text-underline-offset: 3px; font-weight: 700; }}
  table.lens td.other {{ border-left: 5px dashed {NOW}; }}
  .lens-mark {{ display: inline-block; margin: 0 .35em 0 .8em; width: 1em; }}
  .lens-mark.follows {{ border-bottom: 2px solid currentColor; height: .8em; }}
  .lens-mark.other {{ border-left: 5px dashed {NOW}; height: .9em; width: .3em; vertical-align: -.1em; }}
  table.lens-candidates td.wide {{ white-space: normal; width: 45%; }}
  {_RULES}
</style>
"""


ROW, MAX_SIDE = 34, 480  # pixels: the height of a layer, and the largest of a picture
TOP, BETWEEN, BOTTOM = 34, 40, 84


def reduced_words(view: HeadView) -> str:
    """Say how many keys each column stands for; "" if it is one."""
    _, step = _columns(view)
    words = N_("{count:,} positions do not fit on the screen: each column shows the largest of {step}.")
    return "" if step == 1 else say(words, count=len(view.keys), step=step)


def token_figure(now: HeadView, standard: HeadView | None, unit: str, *, dark: bool) -> CachedFigure:
    """Draw one query's attention, a row for each layer: one picture, or, with `standard`, three below each other (now,
    standard masks, difference). unit: the name of the measure."""
    views = [_coarser(view) for view in ([now] if standard is None else [now, standard])]
    tall = min(ROW * len(now.queries), MAX_SIDE if standard is None else MAX_SIDE // 2)
    colours = {"zmin": 0, "zmax": colour_range(*(view.weights for view in views)), "colorscale": SEQUENTIAL_SCALE}
    pictures = [(view, unit, colours) for view in views]
    if standard is not None:  # add the difference, hatched where both are blocked
        closed, change = views[0].any_blocked() & views[1].any_blocked(), _change(now, standard)
        both = {name: mask & closed for name, mask in views[1].blocked.items()}
        reach = max(float(np.abs(change[~closed]).max(initial=0.0)), 0.01)
        difference = replace(views[0], weights=change, blocked=both)
        pictures.append((difference, say("change"), symmetric_colours(reach, dark)))
    count = len(pictures)
    room = count * tall + (count - 1) * BETWEEN
    margins = {"l": 70, "r": 90, "t": TOP, "b": BOTTOM, "autoexpand": False}
    layout: Part = {"height": TOP + room + BOTTOM, "margin": margins, "images": [], "annotations": []}
    traces = []
    for number, (view, what, some) in enumerate(pictures):
        top = 1 - number * (tall + BETWEEN) / room
        axis = str(number + 1) if number else ""
        bar = {"x": 1.01, "y": top, "yanchor": "top", "len": tall / room, "ypad": 0}
        traces.append(_trace(view, what, axis, change=number == 2) | some | {"colorbar": colour_bar(what, **bar)})
        layout |= _axes(view, axis, (max(top - tall / room, 0), top), last=number == count - 1)
        layout["images"] += hatching(view.blocked, dark=dark, axis=axis)
        if standard is not None:
            layout["annotations"].append(title(f"<b>{say(TITLES[number])}</b>", 0, top))
    return figure(traces, layout)


def _trace(view: HeadView, unit: str, axis: str, *, change: bool) -> Part:
    keys = [f"{view.first_key + column * view.step}: {escaped(label)}" for column, label in enumerate(view.keys)]
    hover = say("<b>%{y}</b> on <b>%{x}</b>") + f"<br>{unit} %{{z:{'+' if change else ''}.4f}}"
    values = np.where(view.any_blocked(), np.nan, view.weights)
    return heat(values, keys, list(view.queries), "difference" if change else "weights", hover, axis)


def _axes(view: HeadView, axis: str, domain: tuple[float, float], *, last: bool) -> Part:
    font = {"size": 11 if len(view.keys) <= 32 else 9}
    keys = token_axis(view.keys, MAX_TICKS) | {"tickfont": font, "showticklabels": last}
    layers: Part = {"tickmode": "array", "tickvals": list(range(len(view.queries))), "ticktext": list(view.queries)}
    layers |= {"tickfont": {"size": 11}, "autorange": "reversed", "domain": list(domain)}
    keys |= {"anchor": "y" + axis} | ({"matches": "x"} if axis else {})
    return {f"xaxis{axis}": AXIS | keys, f"yaxis{axis}": AXIS | layers | {"anchor": "x" + axis}}


def _coarser(view: HeadView) -> HeadView:
    """Reduce a view to at most MAX_CELLS columns, each with the largest value of several keys."""
    begins, step = _columns(view)
    if step == 1:
        return view
    whole = np.logical_and.reduceat(view.any_blocked(), begins, axis=1)
    masks = {name: whole & np.logical_or.reduceat(mask, begins, axis=1) for name, mask in view.blocked.items()}
    keys = ["".join(view.keys[begin : begin + step]) for begin in begins]
    values = np.maximum.reduceat(view.weights, begins, axis=1)
    return replace(view, weights=values, blocked=masks, keys=keys, step=step)


def _change(now: HeadView, standard: HeadView) -> np.ndarray:
    """Return now - standard; a column of several keys holds the largest change."""
    change = now.weights - standard.weights
    begins, _ = _columns(now)
    highest, lowest = (reduce.reduceat(change, begins, axis=1) for reduce in (np.maximum, np.minimum))
    return np.where(highest >= -lowest, highest, lowest)


def _columns(view: HeadView) -> tuple[list[int], int]:
    """Return the first key of each column, and how many keys a column stands for."""
    step = -(-len(view.keys) // MAX_CELLS)
    return list(range(0, len(view.keys), step)), step


Cell = tuple[int, int]  # a layer and a key
SEEN = {
    "maximum": N_("The largest weight that “{token}” gives in a single head is in {layer}: {share} to {other}."),
    "mean": N_("The largest mean weight over heads that “{token}” gives is in {layer}: {share} to {other}."),
    "rollout": N_("By the end of {layer}, {itself} of “{token}”'s rollout comes from itself; the largest other "
                  "share, {share}, from {other}."),
    "flow": N_("By the end of {layer}, the most that can flow to “{token}” from another token is {flow:.2f}, from "
               "{other}."),
}  # fmt: skip
SEEN_IN_ONE = SEEN | {  # if only one layer is shown: no comparison with others
    "maximum": N_("In {layer}, the largest weight that “{token}” gives in a single head is {share}, to {other}."),
    "mean": N_("In {layer}, the largest mean weight over heads that “{token}” gives is {share}, to {other}."),
}
MOVED = N_("The largest change from the standard masks is in {layer}, on {other}: {was:.2f} → {now:.2f}.")
MOVED_IN_ONE = N_("In {layer}, the largest change from the standard masks is on {other}: {was:.2f} → {now:.2f}.")
NOTHING = N_("“{token}” attends to nothing in any layer.")
NOTHING_IN_ONE = N_("“{token}” attends to nothing in {layer}.")


def lens_sentence(lens: "LogitLens", row: int, piece: str, standard: "LogitLens | None" = None) -> str:
    """Say what the model predicts after one token, from which layer on, and what was most likely before. HTML."""
    names, tops = [say("the embedding"), *column_names(len(lens.ids))[1:]], lens.ids[:, row, 0]
    label, share = lens.labels[int(tops[-1])], float(lens.probabilities[-1, row, 0])
    settled = lens.settled(row)
    about = {"token": escape(piece), "label": escape(label), "chance": chance(share), "layer": names[settled]}
    parts = [say("After “{token}” the model predicts “{label}” ({chance}), ranked first from {layer} on.", **about)]
    if settled:
        before = escape(lens.labels[int(tops[settled - 1])])
        parts.append(say("After {layer} it was “{before}”.", layer=names[settled - 1], before=before))
    if standard is not None:
        was, share = standard.labels[int(standard.ids[-1, row, 0])], float(standard.probabilities[-1, row, 0])
        words = N_("Under the standard masks it predicts “{label}” ({chance}).")
        parts.append(say(words, label=escape(was), chance=chance(share)))
    return together(parts)


def token_sentence(view: HeadView, how: str, query: int, piece: str, standard: HeadView | None = None) -> str:
    """Say what one query attends to most, as HTML. how: "mean", "maximum", "rollout" or "flow". query: its position."""
    if not view.weights.any():
        words = NOTHING if len(view.queries) > 1 else NOTHING_IN_ONE
        return say(words, token=escape(piece), layer=view.queries[0])
    parts = [_seen(view, how, query, piece)]
    if standard is not None and np.abs(view.weights - standard.weights).max() >= DIFFERENT:
        parts.append(_moved(view, standard, query))
    return together(parts)


def _seen(view: HeadView, how: str, query: int, piece: str) -> str:
    values, column, words = view.weights, query - view.first_key, SEEN if len(view.queries) > 1 else SEEN_IN_ONE
    about: dict[str, str] = {"token": escape(piece)}
    if how in ("rollout", "flow"):  # only the last layer counts, without the token's own share
        values, about["layer"] = values.copy(), view.queries[-1]
        here = slice(max(column, 0), max(column + 1, 0))  # empty if the query is not among the keys
        about["itself"] = percent(float(values[-1, here].sum()))
        values[:-1], values[-1, here] = 0, 0
        if not values.any():
            return say("By the end of {layer}, “{token}” has received nothing but its own state.", **about)
    largest = float(values.max())
    written = (lambda cell: f"{values[cell]:.2f}") if how == "flow" else (lambda cell: percent(float(values[cell])))
    where = _largest(view, values, written, query)
    return say(words[how], share=percent(largest), flow=largest, **where | about)


def _moved(view: HeadView, standard: HeadView, query: int) -> str:
    change = np.abs(view.weights - standard.weights)
    cell = _first(change)
    where = _largest(view, change, lambda cell: f"{standard.weights[cell]:.2f} {view.weights[cell]:.2f}", query)
    words = MOVED if len(view.queries) > 1 else MOVED_IN_ONE
    return say(words, was=standard.weights[cell], now=view.weights[cell], **where)


def _first(values: np.ndarray) -> Cell:
    """Return the cell with the largest value, the first of equal ones."""
    return divmod(int(values.argmax()), values.shape[1])


def _largest(view: HeadView, values: np.ndarray, written: Callable[[Cell], str], query: int) -> dict[str, str]:
    """Name the layer and the key of the largest of values [L,K], and count cells that are written the same. HTML."""
    layer, key = _first(values)
    return {"layer": view.queries[layer], "other": _with_equal_count(_name(view, key, query), values, written)}


def _with_equal_count(key: str, values: np.ndarray, written: Callable[[Cell], str]) -> str:
    """Add to `key`, the name of the key with the largest of values [L,K], how many other cells are written the same: as
    tokens if all are in its layer, otherwise as cells, since they may have other keys in another layer."""
    first = _first(values)
    near = np.argwhere((values > values[first] - 0.02) & (values > 0))  # equal when written: at most this apart
    alike = [layer for layer, column in near if (layer, column) != first and written((layer, column)) == written(first)]
    if not alike:
        return key
    if set(alike) == {first[0]}:
        return say_count("{key} and {count} other token", "{key} and {count} other tokens", len(alike), key=key)
    return say_count("{key}, and in {count} other cell", "{key}, and in {count} other cells", len(alike), key=key)


def _name(view: HeadView, key: int, query: int) -> str:
    if view.first_key + key == query:
        return say("itself")
    return f"“{escape(view.keys[key])}” ({view.first_key + key})"


def token_alt(view: HeadView, unit: str, piece: str) -> str:
    """Return alternative text for token_figure."""
    layer, key = _first(view.weights)
    sizes = {"unit": unit.capitalize(), "layers": layer_count(len(view.queries)), "keys": key_count(len(view.keys))}
    named = say("{position} ({key})", position=view.first_key + key, key=view.keys[key])
    where = {"layer": view.queries[layer]}
    where["key"] = _with_equal_count(named, view.weights, lambda cell: f"{view.weights[cell]:.2f}")
    return say("{unit} of “{token}”, {layers} by {keys}. The largest, {largest:.2f}, is in {layer} on {key}.",
               token=piece, largest=view.weights.max(), **sizes, **where)  # fmt: skip
