"""What one query of a head carries from each key, beside the plain weights, and a sentence on why they differ."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from i18n import say
from model.attribution.parts import Carried, DirectEffect
from viz.heads.cells import weight_text
from viz.html import bar, filled, signed, table, tag
from viz.numbers import percent
from viz.palette import NOW, STANDARD

MOST_KEYS = 12  # rows of the table
SMALLEST = 0.0005  # logits; a smaller change shows as 0
APART = 0.05  # shares that differ by more are worth a sentence


def carried_table(found: Carried, keys: Sequence[str]) -> str:
    """HTML: the keys of which most is carried, by any of the measures, and the rest together."""
    columns = [(say("weight"), found.weights), (say("weight × |v|"), found.moved)]
    if found.added is not None:
        columns.append((say("adds"), found.added))
    shares = [_share(values) for _, values in columns]
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    order = order[np.max(shares, axis=0)[order] > 0]
    head = [tag("th", say("key")), tag("th", "|v|", class_="number")]
    head += [tag("th", name, class_="number", colspan=2) for name, _ in columns]
    rows = [head, *(_row(found, keys, place, columns, shares) for place in sorted(order[:MOST_KEYS]))]
    rest = order[MOST_KEYS:]
    if len(rest):
        cells = [tag("td", say("the other {count:,}", count=len(rest))), tag("td")]
        for (_, values), share in zip(columns, shares, strict=True):
            cells += [_amount(found, values, values[rest].sum()), _bar(share[rest].sum())]
        rows.append(cells)
    return table(rows)


def why_they_differ(found: Carried, name: str, keys: Sequence[str]) -> str:
    """HTML: the key whose share of the weight differs most from its share of what is carried."""
    who = tag("b", name)
    if not found.weights.any():
        said = say("{query} attends to nothing, so its output is 0: every key is blocked.")
        return tag("p", filled(said, query=who), class_="key")
    weights, moved = _share(found.weights), _share(found.moved)
    looked = np.flatnonzero(found.weights > 0)
    most = int(np.abs(weights - moved).argmax())
    if abs(weights[most] - moved[most]) < APART:
        sizes = found.value_norms[looked]
        said = say(
            "{query}: the weighted values follow the weights here; no key's share differs by {points:.0f} percentage "
            "points. The norms of the values are between {least:.3g} and {most:.3g}."
        )
        words = filled(said, query=who, points=APART * 100, least=sizes.min(), most=sizes.max())
        return tag("p", words, class_="key")
    rest = np.delete(found.weights, most).sum()
    said = _short(rest > 0) if moved[most] < weights[most] else _long(rest > 0)
    words = filled(
        said,
        query=who,
        key=tag("b", f"{most}: {keys[most]}"),
        weight=percent(float(weights[most])),
        carried=percent(float(moved[most])),
        length=found.value_norms[most],
        others=np.delete(found.moved, most).sum() / rest if rest > 0 else 0.0,
    )
    return tag("p", words, class_="key")


def _short(others: bool) -> str:
    if others:
        return say(
            "{query} gives {key} {weight} of its weight, and {carried} of its weighted values come from there: its "
            "value vector is short (norm {length:.3g}; weighted mean of the others: {others:.3g})."
        )
    return say(
        "{query} gives {key} {weight} of its weight, and {carried} of its weighted values come from there: its value "
        "vector is short (norm {length:.3g})."
    )


def _long(others: bool) -> str:
    if others:
        return say(
            "{query} gives {key} {weight} of its weight, and {carried} of its weighted values come from there: its "
            "value vector is long (norm {length:.3g}; weighted mean of the others: {others:.3g})."
        )
    return say(
        "{query} gives {key} {weight} of its weight, and {carried} of its weighted values come from there: its value "
        "vector is long (norm {length:.3g})."
    )


def effect_table(found: DirectEffect) -> str:
    """HTML: the tokens that the head pushes up, and down; a sentence where it pushes none."""
    longest = max((abs(value) for _, value in (*found.up, *found.down)), default=0.0)
    if longest < SMALLEST:
        return tag("p", say("It adds nothing here that changes a logit by {least} or more.", least=SMALLEST))
    head = [tag("th", say("pushes up"), colspan=3), tag("th", say("pushes down"), colspan=3)]
    rows = [
        [*_pushed(*up, longest, NOW), *_pushed(*down, longest, STANDARD)]
        for up, down in zip(found.up, found.down, strict=True)
    ]
    return table([head, *rows])


def _row(
    found: Carried,
    keys: Sequence[str],
    place: int,
    columns: list[tuple[str, np.ndarray]],
    shares: list[np.ndarray],
) -> list[Markup]:
    size = f"{found.value_norms[place]:.3f}"
    cells = [tag("td", f"{place}: {keys[place]}", class_="token"), tag("td", size, class_="number")]
    for (_, values), share in zip(columns, shares, strict=True):
        cells += [_amount(found, values, values[place]), _bar(share[place])]
    return cells


def _pushed(label: str, value: float, longest: float, colour: str) -> list[Markup]:
    drawn = bar(abs(value) / longest, colour)
    return [
        tag("td", label, class_="token"),
        tag("td", signed(value), class_="number"),
        tag("td", drawn, class_="track"),
    ]


def _amount(found: Carried, column: np.ndarray, value: float) -> Markup:
    """A cell of a column: of the weights as every view writes them."""
    return tag("td", weight_text(value) if column is found.weights else f"{value:.3f}", class_="number")


def _bar(share: float) -> Markup:
    return tag("td", bar(float(share), NOW), class_="track")


def _share(values: np.ndarray) -> np.ndarray:
    total = values.sum(dtype=np.float64)
    return values / total if total else np.zeros(len(values))
