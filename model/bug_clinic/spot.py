"""The game "spot the bug": a heatmap with a bug, and four names to choose from. A number sets the puzzle."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention import AttentionStages
from model.base import Model
from model.bug_clinic.bugs import BUGS, BY_KEY, AttentionCase, Bug
from model.bug_clinic.comparison import case_of, row_of
from model.trace import Trace

MIN_FEATURE_DIFFERENCE = 0.05  # a difference of a feature that is visible


FEATURES: dict[str, Callable[[Tensor, Tensor], float]] = {  # of one head's weights [T,T] and keep [T]
    # the share of real tokens' weight on real keys that goes to later tokens; and the share that goes to padding
    "later": lambda weights, keep: _share(weights[keep][:, keep].triu(1), weights[keep][:, keep]),
    "padding": lambda weights, keep: _share(weights[keep][:, ~keep], weights[keep]),
    # over real tokens' rows: the smallest sum, the mean weight on the token itself, and the mean of the largest weights
    "sum": lambda weights, keep: float(weights[keep].sum(-1).min()),
    "itself": lambda weights, keep: float(weights.diagonal()[keep].mean()),
    "largest": lambda weights, keep: float(weights[keep].amax(-1).mean()),
}


@dataclass(frozen=True)
class HeatmapDifference:
    """A difference between two heatmaps: a feature, or else a cell (query, key), and the number of each."""

    feature: str
    cell: tuple[int, int]
    one: float
    other: float


def difference(one: Tensor, other: Tensor, keep: Tensor, features: tuple[str, ...]) -> HeatmapDifference:
    """Return the first of these features in which they clearly differ; if none, the cell in which they differ most."""
    for name in features:
        first, second = (FEATURES[name](weights, keep) for weights in (one, other))
        if abs(first - second) >= MIN_FEATURE_DIFFERENCE:
            return HeatmapDifference(name, (-1, -1), first, second)
    difference = (one - other).abs()
    query, key = divmod(int(difference.argmax()), difference.shape[1])
    return HeatmapDifference("", (query, key), float(one[query, key]), float(other[query, key]))


def _share(part: Tensor, whole: Tensor) -> float:
    total = float(whole.sum())
    return float(part.sum()) / total if total else 0.0


VISIBLE = 0.15  # a change of a weight that is obvious
CANDIDATES = 4
INVISIBLE_BUGS = {bug.key for bug in BUGS if not bug.hint or bug.dtype == torch.float16}


@dataclass(frozen=True)
class Puzzle:
    """A bug in one head, and the candidates, the bug among them, in the order to show."""

    number: int
    bug: str
    layer: int
    head: int
    candidates: tuple[str, ...]


@torch.inference_mode()
def puzzle(model: Model, trace: Trace, row: int, number: int) -> Puzzle | None:
    """Return puzzle `number` on a row of a run: its heatmap differs visibly from the right one and from those of the
    other candidates, no two of which are variants of one bug. None if the text shows too few bugs apart."""
    chance = random.Random(number)
    layers = list(range(trace.num_layers))
    chance.shuffle(layers)
    for layer in layers:
        case = case_of(model, trace, layer, row)
        right = case.run(AttentionCase.stages).weights[0]
        seen = [bug for bug in BUGS if bug.key not in INVISIBLE_BUGS and layer >= bug.first_layer]
        weights = {bug.key: case.run(bug.function).weights[0] for bug in seen}
        for key, head in _in_some_order(chance, weights, trace.num_heads):
            bug, shown = BY_KEY[key], weights[key][head]
            if not _differ(shown, right[head]):
                continue
            others = _others(chance, bug, shown, {other: weights[other][head] for other in weights})
            if len(others) == CANDIDATES - 1:
                candidates = [key, *others]
                chance.shuffle(candidates)
                return Puzzle(number, key, layer, head, tuple(candidates))
    return None


def next_puzzle(model: Model, trace: Trace, row: int, last: Puzzle) -> Puzzle | None:
    """Return the next puzzle with a bug of another title than the last one's; if there is none in 19, the 19th."""
    title = BY_KEY[last.bug].title
    found = None
    for number in range(last.number + 1, last.number + 20):
        found = puzzle(model, trace, row, number)
        if found is None or BY_KEY[found.bug].title != title:
            break
    return found


@torch.inference_mode()
def stages_of(model: Model, trace: Trace, row: int, asked: Puzzle) -> dict[str, AttentionStages]:
    """Compute the puzzle's layer, [H,T,..], with each candidate by its key and right by "": earlier layers are
    right."""
    case = case_of(model, trace, asked.layer, row)
    functions = {"": AttentionCase.stages} | {key: BY_KEY[key].function for key in asked.candidates}
    return {key: row_of(case.run(function)) for key, function in functions.items()}


def _in_some_order(chance: random.Random, weights: dict[str, Tensor], heads: int) -> Iterator[tuple[str, int]]:
    """Yield every bug with every head; bugs first, so that one with many visible heads comes up no more than others."""
    keys = list(weights)
    chance.shuffle(keys)
    for key in keys:
        some = list(range(heads))
        chance.shuffle(some)
        yield from ((key, head) for head in some)


def _others(chance: random.Random, bug: Bug, shown: Tensor, weights: dict[str, Tensor]) -> list[str]:
    keys = list(weights)
    chance.shuffle(keys)
    found: dict[str, str] = {}
    for key in keys:
        title = BY_KEY[key].title
        if title != bug.title and title not in found and _differ(weights[key], shown):
            found[title] = key
    return list(found.values())[: CANDIDATES - 1]


def _differ(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() >= VISIBLE)
