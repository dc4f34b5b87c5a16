"""Checks of the sentences of Across layers, of reach and of the ranking of heads, as in claims.py."""

# ruff: noqa: E501 - each sentence on one line, so that a search finds it

import re

import numpy as np

from tests.ui.sentences.claims import Claim, Said, near, same
from tests.ui.sentences.facts import Facts


def _chance(said: str, share: float) -> bool:
    """Whether it is right for a model's probability, which is never exactly 0 or 1."""
    return same(said, min(max(share, 1e-9), 1 - 1e-9), 1e-4)


def _reading(name: str) -> int:
    return 0 if name == "the embedding" else int(name[1:]) + 1


def _first(facts: Facts) -> int:
    """Return the first reading from which on the model's own prediction ranks first."""
    tops = facts.readings.argmax(-1)
    return 1 + max((reading for reading, top in enumerate(tops) if top != tops[-1]), default=-1)


def _lens(said: Said, facts: Facts) -> bool:
    """Whether it names the model's own prediction, and the first reading from which on that ranks first."""
    last = facts.readings[-1]
    named = facts.now.model.label(int(last.argmax())) == said["label"] and _chance(said["chance"], np.exp(last.max()))
    return named and _first(facts) == _reading(said["layer"])


def _before(said: Said, facts: Facts) -> bool:
    """Whether it names what ranked first one reading before."""
    reading, label = _reading(said["layer"]), facts.now.model.label
    return reading == _first(facts) - 1 and label(int(facts.readings[reading].argmax())) == said["before"]


def _as_standard(said: Said, facts: Facts) -> bool:
    old = facts.logs0[facts.at]
    return facts.now.model.label(int(old.argmax())) == said["label"] and _chance(said["chance"], np.exp(old.max()))


def _named(said: Said, facts: Facts) -> tuple[tuple[int, int], int, str]:
    """Return the cell that it names, how many others it counts as displayed alike, and what it calls them."""
    parts = re.fullmatch(r"(.*?)(?:(?: and|, and in) (\d+) other (token|cell)s?)?", said["other"], re.DOTALL)
    other, count, noun = parts.groups(default="")
    key = facts.at
    if other != "itself":
        key = facts.position_of(*re.fullmatch(r"“(.*)” \((\d+)\)", other, re.DOTALL).groups())
    return (int(said["layer"].removeprefix("L")), key), int(count or 0), noun


def _alike(said: str, values: np.ndarray, slack: float) -> np.ndarray:
    """Return which cells' values are displayed as `said`; slack as in `same`."""
    return np.array([[share > 0 and same(said, share, slack) for share in row] for row in values.tolist()])


def _counted(cell: tuple[int, int], count: int, noun: str, surely: np.ndarray, perhaps: np.ndarray) -> bool:
    """Whether it counts all other cells displayed alike, and calls them tokens only if they are in this cell's layer.
    surely, perhaps: [L,T], the cells displayed alike for any rounding of float32, and those that may be."""
    surely, perhaps = surely.copy(), perhaps.copy()
    surely[cell] = perhaps[cell] = False
    if noun == "token":
        here = not np.delete(surely, cell[0], 0).any()
        return bool(here and surely.sum() <= count <= perhaps[cell[0]].sum())
    elsewhere = noun == "" or np.delete(perhaps, cell[0], 0).any()
    return bool(elsewhere and surely.sum() <= count <= perhaps.sum())


def _is_largest(said: Said, facts: Facts, values: np.ndarray) -> bool:
    """Whether its cell has the largest of values [L,T], and its count of cells displayed alike is right."""
    cell, *others = _named(said, facts)
    right = _counted(cell, *others, *(_alike(said["share"], values, slack) for slack in (-1e-4, 1e-4)))
    return right and same(said["share"], float(values.max()), 1e-4) and abs(values[cell] - values.max()) < 1e-5


def _most(said: Said, facts: Facts) -> bool:
    return _is_largest(said, facts, facts.maps(old=False))


def _rollout(said: Said, facts: Facts) -> bool:
    shares, last = facts.maps(old=False), facts.layers[-1]
    own = float(shares[last, facts.at])
    shares[:last], shares[last, facts.at] = 0, 0
    right = same(said["itself"], own, 1e-4) and said["layer"] == f"L{last}"
    return right and _is_largest(said, facts, shares)


def _moved_most(said: Said, facts: Facts) -> bool:
    now, old = facts.maps(old=False), facts.maps(old=True)
    cell, *others = _named(said, facts)
    most = abs(abs(now[cell] - old[cell]) - np.abs(now - old).max()) < 1e-5
    surely, perhaps = (
        (np.abs(now - old) > 0)
        & (np.abs(old - float(said["was"])) < 0.005 + slack)
        & (np.abs(now - float(said["now"])) < 0.005 + slack)
        for slack in (-1e-4, 1e-4)
    )
    right = _counted(cell, *others, surely, perhaps)
    return most and right and near(said["was"], old[cell]) and near(said["now"], now[cell])


def _depends(said: Said, facts: Facts) -> bool:
    """Whether it counts the tokens to attend to and to depend on, and the layers until it depends on all of them."""
    seen = [int(layer[facts.at].sum()) for layer in facts.reached]
    counts = {"alone": facts.windows[facts.layer][facts.at].sum(), "seen": seen[-1], "layers": len(seen)}
    counts |= {"ahead": (facts.reached[-1][facts.at] & facts.keep)[facts.at + 1 :].sum()}
    counts |= {"settled": [1, *seen].index(seen[-1]), "position": facts.at}
    named = said["token"] == facts.pieces[facts.at] and said["layer"] == f"L{facts.layer}"
    return named and all(int(said[name]) == count for name, count in counts.items())


def _ranked(said: Said, facts: Facts) -> bool:
    layer, head = map(int, re.fullmatch(r"L(\d) H(\d)", said["head"]).groups())
    effect = facts.effects[layer, head]
    return abs(abs(effect) - np.abs(facts.effects).max()) < 1e-4 and near(said["nats"], effect)


LAYER_CLAIMS: dict[str, Claim] = {
    # viz/layers.py
    "After “{token}” the model predicts “{label}” ({chance}), ranked first from {layer} on.": _lens,
    "After {layer} it was “{before}”.": _before,
    "Under the standard masks it predicts “{label}” ({chance}).": _as_standard,
    "“{token}” attends to nothing in any layer.": lambda said, facts: not facts.maps(old=False).any(),
    "“{token}” attends to nothing in {layer}.": lambda said, facts: (
        not facts.maps(old=False).any() and said["layer"] == f"L{facts.layers[0]}"
    ),
    "The largest weight that “{token}” gives in a single head is in {layer}: {share} to {other}.": _most,
    "The largest mean weight over heads that “{token}” gives is in {layer}: {share} to {other}.": _most,
    "In {layer}, the largest weight that “{token}” gives in a single head is {share}, to {other}.": _most,
    "In {layer}, the largest mean weight over heads that “{token}” gives is {share}, to {other}.": _most,
    "By the end of {layer}, {itself} of “{token}”'s rollout comes from itself; the largest other share, {share}, from {other}.": _rollout,
    "By the end of {layer}, “{token}” has received nothing but its own state.": lambda said, facts: (
        np.delete(facts.maps(old=False)[facts.layers[-1]], facts.at).max(initial=0) < 1e-6
    ),
    "The largest change from the standard masks is in {layer}, on {other}: {was:.2f} → {now:.2f}.": _moved_most,
    "In {layer}, the largest change from the standard masks is on {other}: {was:.2f} → {now:.2f}.": _moved_most,
    # viz/mask_lab/effect.py
    "Of all tokens, {token} (position {position}) may attend to {alone:,} in layer {layer} alone. After the last layer it can depend on {seen:,} ({ahead:,} of them later in the text); layers needed for that: {settled} of {layers}.": _depends,
    "Of the tokens it can depend on, {count} are padding.": lambda said, facts: (
        int(said["count"]) == (facts.reached[-1][facts.at] & ~facts.keep).sum() > 0
    ),
    # viz/ablation.py
    "Turned off one at a time: {count} of {total} heads.": lambda said, facts: (
        (int(said["count"]), int(said["total"])) == (facts.effects.size, facts.effects.size)
    ),
    "{head} matters most: it changes the loss by {nats} nats.": _ranked,
    "Heads that change it by less than 0.05: {count}.": lambda said, facts: (
        abs((np.abs(facts.effects) < 0.05).sum() - int(said["count"])) <= (np.abs(np.abs(facts.effects) - 0.05) < 1e-4).sum()
    ),
    "None changes the loss by {least} nats or more.": lambda said, facts: (
        np.abs(facts.effects).max() < float(said["least"]) + 1e-4
    ),
}  # fmt: skip
