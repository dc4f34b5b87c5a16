"""What the sentences of Across layers, of reach and of the ranking of heads claim, judged as in claims.py."""

# ruff: noqa: E501 - each sentence stands in one piece, to be found by a search

import re

import numpy as np

from tests.ui.sentences.claims import Claim, Said, near, same
from tests.ui.sentences.facts import Facts

LEAST = 0.05  # a change of a value that is worth a sentence


def _chance(said: str, share: float) -> bool:
    """A model's probability, of which none is 0 or 1."""
    return same(said, min(max(share, 1e-9), 1 - 1e-9), 1e-4)


def _reading(name: str) -> int:
    return 0 if name == "embedding" else int(name[1:]) + 1


def _lens(said: Said, facts: Facts) -> bool:
    """The model's own prediction, and the first reading from which on it is on top; what was so one reading before."""
    readings, label = facts.readings, facts.now.model.label
    tops = readings.argmax(-1)
    first = 1 + max((reading for reading, top in enumerate(tops) if top != tops[-1]), default=-1)
    right = label(int(tops[-1])) == said["label"] and _chance(said["chance"], np.exp(readings[-1, tops[-1]]))
    if not first or "earlier" not in said:
        return right and not first and "earlier" not in said
    if first != _reading(said.get("layer", "L5")) or first != _reading(said["earlier"]) + 1:
        return False
    return right and label(int(tops[first - 1])) == said["before"]


def _as_standard(said: Said, facts: Facts, *, stays: bool) -> bool:
    label, now, old = facts.now.model.label, facts.logs[facts.at], facts.logs0[facts.at]
    was = label(int(old.argmax()))
    named = was == label(int(now.argmax())) if stays else was == said["label"] != label(int(now.argmax()))
    return named and _chance(said["chance"], float(np.exp(old.max())))


def _key(said: str, facts: Facts) -> int:
    if said == "itself":
        return facts.at
    token, position = re.fullmatch("“(.*)” \\((\\d+)\\)", said, re.DOTALL).groups()
    return facts.place(token, position)


def _most(said: Said, facts: Facts) -> bool:
    maps = facts.maps(old=False)
    cell = maps[int(said["layer"][1:]), _key(said["other"], facts)]
    return same(said["share"], float(maps.max()), 1e-4) and abs(cell - maps.max()) < 1e-5


def _rollout(said: Said, facts: Facts) -> bool:
    shares = facts.maps(old=False)[-1].copy()
    own, key = shares[facts.at], _key(said["other"], facts)
    shares[facts.at] = 0
    right = same(said["itself"], float(own), 1e-4) and same(said["share"], float(shares.max()), 1e-4)
    return right and abs(shares[key] - shares.max()) < 1e-5 and said["layer"] == "L5"


def _moved_most(said: Said, facts: Facts) -> bool:
    now, old = facts.maps(old=False), facts.maps(old=True)
    cell = int(said["layer"][1:]), _key(said["other"], facts)
    most = abs(abs(now[cell] - old[cell]) - np.abs(now - old).max()) < 1e-5
    return most and near(said["was"], old[cell]) and near(said["now"], now[cell])


def _count(said: str) -> int:
    found = re.match(r"[\d,]+", said)
    return int(found[0].replace(",", "")) if found else 0


def _depends(said: Said, facts: Facts, *, first: int = 6) -> bool:
    """How many tokens it can depend on after all layers, and that these are reached after so many, not before."""
    seen = [int(layer[facts.at].sum()) for layer in facts.reached]
    settled = 1 + sum(one < seen[-1] for one in seen)
    return _count(said.get("known", "1")) == seen[-1] and settled == first and "6" in said["after"]


def _ranked(said: Said, facts: Facts, sign: int) -> bool:
    layer, head = map(int, re.fullmatch(r"L(\d) H(\d)", said["head"]).groups())
    effects = facts.effects
    most = abs(abs(effects[layer, head]) - np.abs(effects).max()) < 1e-4 and effects[layer, head] * sign > 0
    return most and near(said["nats"], abs(effects[layer, head])) and said["heads"] == "all 36 heads"


LAYER_CLAIMS: dict[str, Claim] = {
    # viz/layers/token.py
    "After “{token}” the model predicts “{label}” ({chance}), ranked first from the embedding on.": _lens,
    "After “{token}” the model predicts “{label}” ({chance}), ranked first from {layer} on; after {earlier} it was “{before}”.": _lens,
    "After “{token}” the model predicts “{label}” ({chance}): only its last layer ranks it first; after {earlier} it was “{before}”.": _lens,
    "Under the standard masks it predicts the same ({chance}).": lambda said, facts: _as_standard(said, facts, stays=True),
    "Under the standard masks it predicts “{label}” ({chance}).": lambda said, facts: _as_standard(said, facts, stays=False),
    "“{token}” attends to nothing in any layer.": lambda said, facts: not facts.maps(old=False).any(),
    "The largest weight that “{token}” gives one token in a single head is in {layer}: {share} to {other}.": _most,
    "The largest mean weight over heads that “{token}” gives one token is in {layer}: {share} to {other}.": _most,
    "By the end of {layer}, {itself} of “{token}”'s rollout is from itself; the most from another token is {share}, from {other}.": _rollout,
    "By the end of {layer}, “{token}” has received nothing but its own state.": lambda said, facts: (
        np.delete(facts.maps(old=False)[-1], facts.at).max(initial=0) < 1e-6
    ),
    "Under the standard masks no value here differs by {least} or more.": lambda said, facts: (
        np.abs(facts.maps(old=False) - facts.maps(old=True)).max() < LEAST + 1e-5
    ),
    "The largest change from the standard masks is {layer} on {other}: {was:.2f} → {now:.2f}.": _moved_most,
    # viz/mask_lab/reach.py
    "In layer {layer}, {token} (position {position}) may attend to {alone}; {stacked}": lambda said, facts: (
        _count(said["alone"]) == facts.windows[facts.layer][facts.at].sum() and int(said["position"]) == facts.at
    ),
    "{count} of them comes later in the text.": lambda said, facts: facts.reached[-1][facts.at, facts.at + 1 :].sum() == 1,
    "{count} of them come later in the text.": lambda said, facts: (
        facts.reached[-1][facts.at, facts.at + 1 :].sum() == int(said["count"])
    ),
    "{after} it can depend on no other: no path goes farther.": lambda said, facts: (
        (facts.reached[-1] == facts.windows[facts.layer])[facts.at].all()
    ),
    "{after} it can depend only on itself, because its own state is carried along.": lambda said, facts: (
        facts.reached[-1][facts.at].sum() == 1 == facts.reached[-1][facts.at, facts.at]
    ),
    "{after} it can depend on {known}.": _depends,
    "{after} it can depend on {known}; the first layer is enough.": lambda said, facts: _depends(said, facts, first=1),
    "{after} it can depend on {known}; the first {count} layers are enough.": lambda said, facts: _depends(
        said, facts, first=int(said["count"])
    ),
    # viz/ablation.py
    "Of {heads}, each turned off alone, {head} matters most: turning it off raises the loss by {nats:.2f} nats.": lambda said, facts: (
        _ranked(said, facts, 1)
    ),
    "Of {heads}, each turned off alone, {head} matters most: turning it off lowers the loss by {nats:.2f} nats.": lambda said, facts: (
        _ranked(said, facts, -1)
    ),
    "{count} of them changes it by less than 0.05.": lambda said, facts: (np.abs(facts.effects) < 0.05).sum() == 1,
    "{count} of them change it by less than 0.05.": lambda said, facts: (
        abs((np.abs(facts.effects) < 0.05).sum() - int(said["count"])) <= (np.abs(np.abs(facts.effects) - 0.05) < 1e-4).sum()
    ),
    "None of {heads}, turned off alone, changes it by {least} nats or more.": lambda said, facts: (
        np.abs(facts.effects).max() < float(said["least"]) + 1e-4
    ),
}  # fmt: skip
