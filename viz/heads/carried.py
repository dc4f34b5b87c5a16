"""What one query of a head carries from each key, beside the plain weights, and a sentence on why they differ."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from model.heads.parts import Carried, DirectEffect
from viz.formats import signed
from viz.heads.cells import weight_text
from viz.html import bar, join, table, tag
from viz.numbers import percent
from viz.palette import NOW, STANDARD

MOST_KEYS = 12  # rows of the table
APART = 0.05  # shares that differ by more are worth a sentence


def carried_table(found: Carried, keys: Sequence[str]) -> str:
    """HTML: the keys of which most is carried, by any of the measures, and the rest together."""
    columns = [("weight", found.weights), ("weight × |v|", found.moved)]
    if found.added is not None:
        columns.append(("adds", found.added))
    shares = [_share(values) for _, values in columns]
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    order = order[np.max(shares, axis=0)[order] > 0]
    head = [tag("th", "key"), tag("th", "|v|", class_="number")]
    head += [tag("th", name, class_="number", colspan=2) for name, _ in columns]
    rows = [head, *(_row(found, keys, place, columns, shares) for place in sorted(order[:MOST_KEYS]))]
    rest = order[MOST_KEYS:]
    if len(rest):
        cells = [tag("td", f"the other {len(rest):,}"), tag("td")]
        for (name, values), share in zip(columns, shares, strict=True):
            cells += [_number(name, values[rest].sum()), _bar(share[rest].sum())]
        rows.append(cells)
    return table(rows)


def why_they_differ(found: Carried, name: str, keys: Sequence[str]) -> str:
    """HTML: the key whose share of the weight differs most from its share of what is carried."""
    who = tag("b", name)
    if not found.weights.any():
        return tag("p", join((who, " looks at nothing and carries nothing: every key is blocked.")), class_="key")
    weights, moved = _share(found.weights), _share(found.moved)
    looked = np.flatnonzero(found.weights > 0)
    most = int(np.abs(weights - moved).argmax())
    if abs(weights[most] - moved[most]) < APART:
        sizes = found.value_norms[looked]
        words = (
            f": what is carried goes with the weights here, no key's share differs by {APART * 100:.0f} points. The "
            f"values are between {sizes.min():.3g} and {sizes.max():.3g} long."
        )
        return tag("p", join((who, words)), class_="key")
    rest = np.delete(found.weights, most).sum()
    kind = "short" if moved[most] < weights[most] else "long"
    parts = [
        who, " gives ", tag("b", f"{most}: {keys[most]}"),
        f" {percent(float(weights[most]))} of its weight and carries {percent(float(moved[most]))} of what it carries "
        f"from there: its value is {kind}, {found.value_norms[most]:.3g} long",
    ]  # fmt: skip
    if rest > 0:
        others = np.delete(found.moved, most).sum() / rest
        parts.append(f", the others', taken by their weights, {others:.3g} in the mean")
    return tag("p", join((*parts, ".")), class_="key")


def effect_table(found: DirectEffect) -> str:
    """HTML: the tokens that the head pushes up, and down."""
    longest = max((abs(value) for _, value in (*found.up, *found.down)), default=0.0) or 1.0
    head = [tag("th", "pushes up", colspan=3), tag("th", "pushes down", colspan=3)]
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
    for (name, values), share in zip(columns, shares, strict=True):
        cells += [_number(name, values[place]), _bar(share[place])]
    return cells


def _pushed(label: str, value: float, longest: float, colour: str) -> list[Markup]:
    drawn = bar(abs(value) / longest, colour)
    return [
        tag("td", label, class_="token"),
        tag("td", signed(value), class_="number"),
        tag("td", drawn, class_="track"),
    ]


def _number(name: str, value: float) -> Markup:
    return tag("td", weight_text(value) if name == "weight" else f"{value:.3f}", class_="number")


def _bar(share: float) -> Markup:
    return tag("td", bar(float(share), NOW), class_="track")


def _share(values: np.ndarray) -> np.ndarray:
    total = values.sum(dtype=np.float64)
    return values / total if total else np.zeros(len(values))
