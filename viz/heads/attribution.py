"""Contributions of keys to one query's output, beside the plain weights; and the parts of one cell's score: query and
key as strips, and tables of the components that wrote them.
"""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say, together
from model.attribution.parts import DirectEffect, ScoreSplit, ValueWeightedAttention
from viz.charts import MARGIN, symmetric_colours
from viz.heads.cells import weight_text
from viz.heatmap import CachedFigure, Part, figure, heat
from viz.html import filled, join, paragraph, signed, table, tag, td, th, track
from viz.mask_styles import mask_names
from viz.numbers import percent
from viz.palette import NOW, STANDARD

MAX_KEYS = 12  # rows of the table
SMALLEST = 0.0005  # logits; a smaller change shows as 0
APART = 0.05  # smallest difference between shares that is reported
WHY = N_(
    "{query} gives {key} {weight} of its weight; {carried} of the weighted values come from that key, whose value "
    "vector has norm {length:.3g} (weighted mean over all keys: {mean:.3g})."
)
ALONE = N_("{query} attends to {key} alone, whose value vector has norm {length:.3g}.")
MAX_PAIRS, MAX_SOURCES = 10, 8  # rows
SCORE = N_("The score of {query} on {key} is {score}: q·k × {scale:.4g}.")
CAPPED = N_("The model caps it at ±{most:g}.")
STRIPS = (  # name, bottom and top as shares of the height
    (N_("query"), 0.72, 1.0),
    (N_("key"), 0.40, 0.68),
    (N_("product"), 0.0, 0.28),
)


def contributions_table(found: ValueWeightedAttention, keys: Sequence[str]) -> str:
    """Return an HTML table of the keys that contribute most by any of the measures, and of the rest together."""
    columns = measures_of(found)
    largest = np.max([shares_of(values) for _, values in columns], axis=0)
    order = np.argsort(-largest, kind="stable")
    order = order[largest[order] > 0]
    shown, rest = sorted(order[:MAX_KEYS]), order[MAX_KEYS:]
    rows = [[th(say("key")), th("|v|", "number"), *(th(name, "number", colspan=2) for name, _ in columns)]]
    for key in shown:
        begin = [td(f"{key}: {keys[key]}", "token"), td(f"{found.value_norms[key]:.3f}", "number")]
        rows.append([*begin, *_cells(found, columns, np.array([key]))])
    if len(rest):
        rows.append([td(say("the other {count:,}", count=len(rest))), td(), *_cells(found, columns, rest)])
    return table(rows)


def _cells(found: ValueWeightedAttention, columns: list[tuple[str, np.ndarray]], keys: np.ndarray) -> list[Markup]:
    """Return table cells with the sum of each measure over these keys, and its share of the sum over all keys."""
    cells = []
    for _, values in columns:
        amount = values[keys].sum()
        text = weight_text(amount) if values is found.weights else f"{amount:.3f}"
        cells += [td(text, "number"), track(float(shares_of(values)[keys].sum()), NOW)]
    return cells


def contribution_sentence(found: ValueWeightedAttention, name: str, keys: Sequence[str]) -> str:
    """Name the key whose share of the weight differs most from its share of the weighted values. HTML."""
    who = tag("b", name)
    if not found.weights.any():
        template = say("{query} attends to nothing, so its output is 0: every key is blocked.")
        return paragraph(filled(template, query=who), "key")
    if np.count_nonzero(found.weights) == 1:  # nothing to compare one key with
        only = int(found.weights.argmax())
        about = {"key": tag("b", f"{only}: {keys[only]}"), "length": found.value_norms[only]}
        return paragraph(filled(say(ALONE), query=who, **about), "key")
    weights, moved = shares_of(found.weights), shares_of(found.moved)
    most = int(np.abs(weights - moved).argmax())
    if abs(weights[most] - moved[most]) < APART:
        sizes = found.value_norms[found.weights > 0]
        template = say(
            "{query}: the weighted values follow the weights here; no key's share differs by {points:.0f} percentage "
            "points. The norms of the values are between {least:.3g} and {most:.3g}."
        )
        return paragraph(filled(template, query=who, points=APART * 100, least=sizes.min(), most=sizes.max()), "key")
    shares = {"weight": percent(float(weights[most])), "carried": percent(float(moved[most]))}
    norms = {"length": found.value_norms[most], "mean": found.moved.sum() / found.weights.sum()}
    return paragraph(filled(say(WHY), query=who, key=tag("b", f"{most}: {keys[most]}"), **shares, **norms), "key")


def effect_table(found: DirectEffect) -> str:
    """Return an HTML table of the tokens whose logits the head raises and lowers; a sentence if there is none."""
    longest = max((abs(value) for _, value in (*found.up, *found.down)), default=0.0)
    if longest < SMALLEST:
        return tag("p", say("It adds nothing here that changes a logit by {least} or more.", least=SMALLEST))
    rows = [[th(say("pushes up"), colspan=3), th(say("pushes down"), colspan=3)]]
    cells = lambda label, value, colour: join(  # noqa: E731
        (td(label, "token"), td(signed(value), "number"), track(abs(value) / longest, colour))
    )
    up, down = ([cells(*one, colour) for one in some] for some, colour in ((found.up, NOW), (found.down, STANDARD)))
    return table([*rows, *zip_longest(up, down, fillvalue=tag("td", "", colspan=3))])


def measures_of(found: ValueWeightedAttention) -> list[tuple[str, np.ndarray]]:
    """Return the measures of the keys [K], each with its name."""
    added = [] if found.added is None else [(say("adds"), found.added)]
    return [(say("weight"), found.weights), (say("weight × |v|"), found.moved), *added]


def shares_of(values: np.ndarray) -> np.ndarray:
    """Return each key's share of the sum [K]; zeros if the sum is 0."""
    total = values.sum(dtype=np.float64)
    return values / total if total else np.zeros(len(values))


def strips_figure(found: ScoreSplit, *, dark: bool) -> CachedFigure:
    """Draw q, k and their scaled products, which sum to the score, as strips of D numbers."""
    title = {"text": say("dimension of the head")}
    traces: list[Part] = []
    layout: Part = {"height": 190, "margin": MARGIN | {"b": 40}}
    layout["xaxis"] = {"title": title, "anchor": "y3", "showgrid": False, "zeroline": False}
    rows = zip(STRIPS, (found.q, found.k, found.by_dimension), reaches(found), ("", "2", "3"), strict=True)
    dimension = say("dimension {number}", number="%{x}")
    for (strip, low, high), values, most, axis in rows:
        name = say(strip)
        hover = f"{dimension}<br>{name} %{{z:.4f}}"
        strip_of = heat(values[None], list(range(len(values))), [name], name, hover) | symmetric_colours(most, dark)
        traces.append(strip_of | {"yaxis": "y" + axis, "showscale": False})
        layout["yaxis" + axis] = {"domain": [low, high], "automargin": True, "ticks": "", "fixedrange": True}
    return figure(traces, layout)


def reaches(found: ScoreSplit) -> tuple[float, float, float]:
    """Return the absolute values of the last colours of the three strips: query, key and their products."""
    both = max(float(np.abs([found.q, found.k]).max()), 1e-9)
    return both, both, max(float(np.abs(found.by_dimension).max()), 1e-9)


def sum_words(found: ScoreSplit, query: str, key: str, *, score: float, weight: str, blocked: Sequence[str]) -> str:
    """Explain the cell's numbers. score: the softmax's input, after the model's soft-cap and bias. HTML if query and
    key are."""
    parts = [say(SCORE, query=query, key=key, score=signed(found.score), scale=found.scale)]
    parts += [] if found.softcap is None else [say(CAPPED, most=found.softcap)]
    parts += [say("The model adds its own bias, {added}.", added=signed(found.added))] if found.added else []
    parts += [say("{sum} goes into the softmax.", sum=signed(score))] if len(parts) > 1 else []
    outcome = say("Its weight is {weight}.", weight=weight)
    if blocked:
        outcome = say("Blocked by {masks}: the score has no effect.", masks=mask_names(blocked))
    return together([*parts, outcome])


def largest_dimensions(found: ScoreSplit) -> str:
    """Say which three dimensions contribute most to the score."""
    order = np.argsort(-np.abs(found.by_dimension))[:3]
    dimensions = listed(f"{dimension} ({signed(found.by_dimension[dimension])})" for dimension in order)
    return say("The {count} products sum to {score}; the largest are those of dimensions {dimensions}.",
               count=len(found.q), score=signed(found.score), dimensions=dimensions)  # fmt: skip


def largest_pairs(found: ScoreSplit) -> list[tuple[str, str, float]]:
    """Return the pairs of sources with the largest terms, the largest first: the query's, the key's, and the term."""
    assert found.sources is not None
    assert found.terms is not None
    order = np.argsort(-np.abs(found.terms), axis=None, kind="stable")[:MAX_PAIRS]
    pairs = (divmod(int(index), len(found.sources)) for index in order)
    return [(say(found.sources[q]), say(found.sources[k]), float(found.terms[q, k])) for q, k in pairs]


def other_pairs(found: ScoreSplit) -> tuple[int, float]:
    """Return the number of pairs besides largest_pairs, and the sum of their terms."""
    assert found.terms is not None
    pairs = largest_pairs(found)
    return found.terms.size - len(pairs), found.score - sum(term for *_, term in pairs)


def pairs_table(found: ScoreSplit) -> str:
    """Return an HTML table of the pairs of sources with the largest terms, the others together, and the sum (score)."""
    pairs = largest_pairs(found)
    longest = max(abs(pairs[0][2]), 1e-9)
    rows = [[th(say("the query's")), th(say("the key's")), th(say("term"), "number", colspan=2)]]
    rows += [[td(one), td(other), *_term(term, longest)] for one, other, term in pairs]
    left, rest = other_pairs(found)
    if left:
        rows.append([td(say("all other pairs ({count:,})", count=left), colspan=2), *_term(rest)])
    rows.append([td(tag("b", say("the score")), colspan=2), *_term(found.score)])
    if found.added:
        rows.append([td(say("the model's own bias"), "wraps", colspan=2), *_term(found.added)])
    return table(rows)


def sources_table(found: ScoreSplit, side: str) -> str:
    """Return an HTML table of the contribution of each source of one side, "query" or "key", to the score, summed over
    the sources of the other side."""
    assert found.sources is not None
    assert found.terms is not None
    each = found.terms.sum(1 if side == "query" else 0)
    order = np.argsort(-np.abs(each), kind="stable")[:MAX_SOURCES]
    longest = max(float(np.abs(each).max()), 1e-9)
    title = say("what wrote the query") if side == "query" else say("what wrote the key")
    rows = [[th(title), th(say("contribution"), "number", colspan=2)]]
    rows += [[td(say(found.sources[source])), *_term(float(each[source]), longest)] for source in order]
    if len(each) > len(order):
        rest = found.score - float(each[order].sum())
        rows.append([td(say("the other {count:,}", count=len(each) - len(order))), *_term(rest)])
    rows.append([td(tag("b", say("the score"))), *_term(found.score)])
    return table(rows)


def _term(value: float, longest: float | None = None) -> tuple[Markup, Markup]:
    """Return table cells with a number and its bar. longest: the value of a full bar; None: no bar."""
    drawn = track(abs(value) / longest, NOW if value > 0 else STANDARD) if longest else td("", "track")
    return td(signed(float(value)), "number"), drawn
