"""One cell's score taken apart: query and key as strips, and tables of what wrote them."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from model.heads.parts import ScoreSplit
from viz.formats import signed
from viz.heatmap import Picture, figure
from viz.html import bar, join, table, tag
from viz.palette import NOW, STANDARD, diverging

MOST_PAIRS, MOST_SOURCES = 10, 8  # rows
STRIPS = (("query", 0.72, 1.0), ("key", 0.40, 0.68), ("product", 0.0, 0.28))  # and what part of the height each has


def strips_figure(found: ScoreSplit, *, dark: bool) -> Picture:
    """q, k, and their products times the scale, which sum to the score: a strip of D numbers each."""
    reach = max(float(np.abs([found.q, found.k]).max()), 1e-9)
    each = max(float(np.abs(found.by_dimension).max()), 1e-9)
    traces, layout = [], {"height": 190, "margin": {"l": 8, "r": 8, "t": 8, "b": 40}}
    rows = zip(STRIPS, (found.q, found.k, found.by_dimension), (reach, reach, each), strict=True)
    for number, ((name, low, high), values, most) in enumerate(rows):
        place = str(number + 1) if number else ""
        traces.append({
            "type": "heatmap", "z": values[None].astype(np.float32), "y": [name], "yaxis": "y" + place,
            "zmin": -most, "zmax": most, "colorscale": diverging(dark), "showscale": False,
            "hovertemplate": "dimension %{x}<br>" + name + " %{z:.4f}<extra></extra>", "name": name,
        })  # fmt: skip
        layout["yaxis" + place] = {"domain": [low, high], "automargin": True, "ticks": "", "fixedrange": True}
    layout["xaxis"] = {"title": {"text": "dimension of the head"}, "anchor": "y3", "showgrid": False, "zeroline": False}
    return figure(traces, layout)


def sum_words(found: ScoreSplit, query: str, key: str, *, score: float, weight: str, blocked: Sequence[str]) -> str:
    """HTML: the cell's numbers. score: what the softmax takes, with what the model adds to q·k or caps."""
    parts = [
        "The score of ",
        tag("b", query),
        " on ",
        tag("b", key),
        f" is {signed(found.score)}: q·k × {found.scale:.4g}",
    ]
    if found.softcap is not None:
        parts.append(f"; the model keeps it within ±{found.softcap:g}")
    if found.added:
        parts.append(f"; the model adds {signed(found.added)} for the two positions")
    if found.softcap is not None or found.added:
        parts.append(f": {signed(score)} goes into the softmax")
    names = " and ".join(blocked)
    verb = "blocks" if len(blocked) == 1 else "block"
    parts.append(f". {names.capitalize()} {verb} it: nothing comes of it." if names else f". Its weight is {weight}.")
    return tag("p", join(parts), class_="key")


def largest_dimensions(found: ScoreSplit) -> str:
    """In a sentence: how few dimensions make the score."""
    order = np.argsort(-np.abs(found.by_dimension))[:3]
    listed = ", ".join(f"{place} ({signed(found.by_dimension[place])})" for place in order)
    return f"The {len(found.q)} products sum to {signed(found.score)}; the largest are those of dimensions {listed}."


def pairs_table(found: ScoreSplit) -> str:
    """HTML: the pairs of sources with the largest terms, the others together, and their sum, the score."""
    assert found.sources is not None
    assert found.terms is not None
    order = np.argsort(-np.abs(found.terms), axis=None, kind="stable")[:MOST_PAIRS]
    longest = max(float(np.abs(found.terms).max()), 1e-9)
    rows = [[tag("th", "the query's"), tag("th", "the key's"), tag("th", "term", class_="number", colspan=2)]]
    rest = found.score
    for place in order:
        q, k = divmod(int(place), len(found.sources))
        term = float(found.terms[q, k])
        rest -= term
        rows.append([tag("td", found.sources[q]), tag("td", found.sources[k]), *_term(term, longest)])
    left = found.terms.size - len(order)
    if left:
        rows.append([tag("td", f"the other {left:,} pairs", colspan=2), *_term(rest, None)])
    rows.append([tag("td", tag("b", "the score"), colspan=2), *_term(found.score, None)])
    if found.added:
        rows.append([tag("td", "the model's own, for the positions", colspan=2), *_term(found.added, None)])
    return table(rows)


def sources_table(found: ScoreSplit, side: str) -> str:
    """HTML: side "query" or "key": what each of its sources gives to the score, whatever the other side's."""
    assert found.sources is not None
    assert found.terms is not None
    each = found.terms.sum(1 if side == "query" else 0)
    order = np.argsort(-np.abs(each), kind="stable")[:MOST_SOURCES]
    longest = max(float(np.abs(each).max()), 1e-9)
    rows = [[tag("th", f"what wrote the {side}"), tag("th", "gives", class_="number", colspan=2)]]
    rows += [[tag("td", found.sources[place]), *_term(float(each[place]), longest)] for place in order]
    if len(each) > len(order):
        rest = found.score - float(each[order].sum())
        rows.append([tag("td", f"the other {len(each) - len(order)}"), *_term(rest, None)])
    rows.append([tag("td", tag("b", "the score")), *_term(found.score, None)])
    return table(rows)


def _term(value: float, longest: float | None) -> tuple[Markup, Markup]:
    """A number and its bar; no bar where longest is None."""
    colour = NOW if value > 0 else STANDARD
    drawn = "" if longest is None else bar(abs(value) / longest, colour)
    return tag("td", signed(float(value)), class_="number"), tag("td", drawn, class_="track")
