"""One cell's score taken apart: query and key as strips, and tables of what wrote them."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say, together
from model.attribution.parts import ScoreSplit
from viz.charts import MARGIN, both_sides, heat
from viz.heatmap import CachedFigure, Part, figure
from viz.html import signed, table, tag, td, th, track
from viz.mask_styles import mask_names
from viz.palette import NOW, STANDARD

MOST_PAIRS, MOST_SOURCES = 10, 8  # rows
SCORE = N_("The score of {query} on {key} is {score}: q·k × {scale:.4g}.")
CAPPED = N_("The model caps it at ±{most:g}.")
STRIPS = (  # and what part of the height each has
    (N_("query"), 0.72, 1.0),
    (N_("key"), 0.40, 0.68),
    (N_("product"), 0.0, 0.28),
)


def strips_figure(found: ScoreSplit, *, dark: bool) -> CachedFigure:
    """q, k, and their products times the scale, which sum to the score: a strip of D numbers each."""
    title = {"text": say("dimension of the head")}
    traces: list[Part] = []
    layout: Part = {"height": 190, "margin": MARGIN | {"b": 40}}
    layout["xaxis"] = {"title": title, "anchor": "y3", "showgrid": False, "zeroline": False}
    rows = zip(STRIPS, (found.q, found.k, found.by_dimension), reaches(found), ("", "2", "3"), strict=True)
    dimension = say("dimension {number}", number="%{x}")
    for (strip, low, high), values, most, place in rows:
        name = say(strip)
        hover = f"{dimension}<br>{name} %{{z:.4f}}"
        strip_of = heat(values[None], list(range(len(values))), [name], name, hover) | both_sides(most, dark)
        traces.append(strip_of | {"yaxis": "y" + place, "showscale": False})
        layout["yaxis" + place] = {"domain": [low, high], "automargin": True, "ticks": "", "fixedrange": True}
    return figure(traces, layout)


def reaches(found: ScoreSplit) -> tuple[float, float, float]:
    """The numbers that the last colours of the three strips stand for: of query, key and their products."""
    both = max(float(np.abs([found.q, found.k]).max()), 1e-9)
    return both, both, max(float(np.abs(found.by_dimension).max()), 1e-9)


def sum_words(found: ScoreSplit, query: str, key: str, *, score: float, weight: str, blocked: Sequence[str]) -> str:
    """The cell's numbers. score: what the softmax takes, with what the model adds to q·k or caps. HTML where query and
    key are."""
    said = [say(SCORE, query=query, key=key, score=signed(found.score), scale=found.scale)]
    said += [] if found.softcap is None else [say(CAPPED, most=found.softcap)]
    said += [say("The model adds {added} for the two positions.", added=signed(found.added))] if found.added else []
    said += [say("{sum} goes into the softmax.", sum=signed(score))] if len(said) > 1 else []
    outcome = say("Its weight is {weight}.", weight=weight)
    if blocked:
        outcome = say("Blocked by {masks}: the score has no effect.", masks=mask_names(blocked))
    return together([*said, outcome])


def largest_dimensions(found: ScoreSplit) -> str:
    """In a sentence: how few dimensions make the score."""
    order = np.argsort(-np.abs(found.by_dimension))[:3]
    dimensions = listed(f"{place} ({signed(found.by_dimension[place])})" for place in order)
    return say("The {count} products sum to {score}; the largest are those of dimensions {dimensions}.",
               count=len(found.q), score=signed(found.score), dimensions=dimensions)  # fmt: skip


def largest_pairs(found: ScoreSplit) -> list[tuple[str, str, float]]:
    """The pairs of sources with the largest terms, the largest first: the query's, the key's, and the term."""
    assert found.sources is not None
    assert found.terms is not None
    order = np.argsort(-np.abs(found.terms), axis=None, kind="stable")[:MOST_PAIRS]
    places = (divmod(int(place), len(found.sources)) for place in order)
    return [(say(found.sources[q]), say(found.sources[k]), float(found.terms[q, k])) for q, k in places]


def other_pairs(found: ScoreSplit) -> tuple[int, float]:
    """How many pairs there are besides those, and the sum of their terms."""
    assert found.terms is not None
    pairs = largest_pairs(found)
    return found.terms.size - len(pairs), found.score - sum(term for *_, term in pairs)


def pairs_table(found: ScoreSplit) -> str:
    """HTML: the pairs of sources with the largest terms, the others together, and their sum, the score."""
    pairs = largest_pairs(found)
    longest = max(abs(pairs[0][2]), 1e-9)
    rows = [[th(say("the query's")), th(say("the key's")), th(say("term"), "number", colspan=2)]]
    rows += [[td(one), td(other), *_term(term, longest)] for one, other, term in pairs]
    left, rest = other_pairs(found)
    if left:
        rows.append([td(say("all other pairs ({count:,})", count=left), colspan=2), *_term(rest)])
    rows.append([td(tag("b", say("the score")), colspan=2), *_term(found.score)])
    if found.added:
        rows.append([td(say("the model's own, for the positions"), colspan=2), *_term(found.added)])
    return table(rows)


def sources_table(found: ScoreSplit, side: str) -> str:
    """HTML: side "query" or "key": what each of its sources gives to the score, whatever the other side's."""
    assert found.sources is not None
    assert found.terms is not None
    each = found.terms.sum(1 if side == "query" else 0)
    order = np.argsort(-np.abs(each), kind="stable")[:MOST_SOURCES]
    longest = max(float(np.abs(each).max()), 1e-9)
    title = say("what wrote the query") if side == "query" else say("what wrote the key")
    rows = [[th(title), th(say("contribution"), "number", colspan=2)]]
    rows += [[td(say(found.sources[place])), *_term(float(each[place]), longest)] for place in order]
    if len(each) > len(order):
        rest = found.score - float(each[order].sum())
        rows.append([td(say("the other {count:,}", count=len(each) - len(order))), *_term(rest)])
    rows.append([td(tag("b", say("the score"))), *_term(found.score)])
    return table(rows)


def _term(value: float, longest: float | None = None) -> tuple[Markup, Markup]:
    """A number and its bar, if longest is what fills it."""
    drawn = track(abs(value) / longest, NOW if value > 0 else STANDARD) if longest else td("", "track")
    return td(signed(float(value)), "number"), drawn
