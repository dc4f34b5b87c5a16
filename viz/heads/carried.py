"""What one query of a head carries from each key, beside the plain weights, and a sentence on why they differ."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from model.attribution.parts import Carried, DirectEffect
from viz.heads.cells import weight_text
from viz.html import filled, paragraph, signed, table, tag, td, th, track
from viz.numbers import percent
from viz.palette import NOW, STANDARD

MOST_KEYS = 12  # rows of the table
SMALLEST = 0.0005  # logits; a smaller change shows as 0
APART = 0.05  # shares that differ by more are worth a sentence
WHY = N_(
    "{query} gives {key} {weight} of its weight, and {carried} of its weighted values come from there: the norm of its "
    "value vector is {length:.3g}, the weighted mean over all keys {mean:.3g}."
)


def carried_table(found: Carried, keys: Sequence[str]) -> str:
    """HTML: the keys of which most is carried, by any of the measures, and the rest together."""
    columns = [(say("weight"), found.weights), (say("weight × |v|"), found.moved)]
    if found.added is not None:
        columns.append((say("adds"), found.added))
    largest = np.max([shares_of(values) for _, values in columns], axis=0)
    order = np.argsort(-largest, kind="stable")
    order = order[largest[order] > 0]
    shown, rest = sorted(order[:MOST_KEYS]), order[MOST_KEYS:]
    rows = [[th(say("key")), th("|v|", "number"), *(th(name, "number", colspan=2) for name, _ in columns)]]
    for key in shown:
        begin = [td(f"{key}: {keys[key]}", "token"), td(f"{found.value_norms[key]:.3f}", "number")]
        rows.append([*begin, *_cells(found, columns, np.array([key]))])
    if len(rest):
        rows.append([td(say("the other {count:,}", count=len(rest))), td(), *_cells(found, columns, rest)])
    return table(rows)


def _cells(found: Carried, columns: list[tuple[str, np.ndarray]], keys: np.ndarray) -> list[Markup]:
    """For each measure what these keys have of it together, weights as every view writes them, and their share."""
    cells = []
    for _, values in columns:
        amount = values[keys].sum()
        text = weight_text(amount) if values is found.weights else f"{amount:.3f}"
        cells += [td(text, "number"), track(float(shares_of(values)[keys].sum()), NOW)]
    return cells


def why_they_differ(found: Carried, name: str, keys: Sequence[str]) -> str:
    """HTML: the key whose share of the weight differs most from its share of what is carried."""
    who = tag("b", name)
    if not found.weights.any():
        said = say("{query} attends to nothing, so its output is 0: every key is blocked.")
        return paragraph(filled(said, query=who), "key")
    weights, moved = shares_of(found.weights), shares_of(found.moved)
    most = int(np.abs(weights - moved).argmax())
    if abs(weights[most] - moved[most]) < APART:
        sizes = found.value_norms[found.weights > 0]
        said = say(
            "{query}: the weighted values follow the weights here; no key's share differs by {points:.0f} percentage "
            "points. The norms of the values are between {least:.3g} and {most:.3g}."
        )
        return paragraph(filled(said, query=who, points=APART * 100, least=sizes.min(), most=sizes.max()), "key")
    shares = {"weight": percent(float(weights[most])), "carried": percent(float(moved[most]))}
    norms = {"length": found.value_norms[most], "mean": found.moved.sum() / found.weights.sum()}
    return paragraph(filled(say(WHY), query=who, key=tag("b", f"{most}: {keys[most]}"), **shares, **norms), "key")


def effect_table(found: DirectEffect) -> str:
    """HTML: the tokens that the head pushes up, and down; a sentence where it pushes none."""
    longest = max((abs(value) for _, value in (*found.up, *found.down)), default=0.0)
    if longest < SMALLEST:
        return tag("p", say("It adds nothing here that changes a logit by {least} or more.", least=SMALLEST))
    head = [th(say("pushes up"), colspan=3), th(say("pushes down"), colspan=3)]
    rows = [
        [*_pushed(*up, longest, NOW), *_pushed(*down, longest, STANDARD)]
        for up, down in zip(found.up, found.down, strict=True)
    ]
    return table([head, *rows])


def _pushed(label: str, value: float, longest: float, colour: str) -> list[Markup]:
    return [td(label, "token"), td(signed(value), "number"), track(abs(value) / longest, colour)]


def shares_of(values: np.ndarray) -> np.ndarray:
    """Each key's share of the sum [K]; zeros where that is 0."""
    total = values.sum(dtype=np.float64)
    return values / total if total else np.zeros(len(values))
