"""The game: a heatmap with a bug in it, and four names to choose from. Which one it is follows from a number."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention import AttentionStages, attention_stages
from model.base import Model
from model.bug_clinic.bugs import BUGS, BY_KEY, Bug
from model.bug_clinic.clinic import case_of
from model.trace import Trace

VISIBLE = 0.15  # the change of a weight that nobody misses
CANDIDATES = 4
NOT_TO_SEE = {bug.key for bug in BUGS if bug.second_use or bug.dtype == torch.float16}


@dataclass(frozen=True)
class Puzzle:
    """A bug in one head, and the candidates, the bug among them, in the order to show."""

    bug: str
    layer: int
    head: int
    candidates: tuple[str, ...]


@torch.inference_mode()
def puzzle(model: Model, trace: Trace, row: int, number: int, but_not: str = "") -> Puzzle | None:
    """Puzzle `number` on a row of a run; the bug is not of the number of but_not, which came just before.

    Its heatmap differs visibly from the right one and from those of the other candidates; no two candidates are
    variants of one bug. None where the text shows too few bugs apart.
    """
    chance = random.Random(number)
    last = BY_KEY[but_not].number if but_not else None
    layers = list(range(trace.num_layers))
    chance.shuffle(layers)
    for layer in layers:
        case = case_of(model, trace, layer, row)
        right = case.run(attention_stages).weights[0]
        weights = {bug.key: case.run(bug.function).weights[0] for bug in _seen_in(layer)}
        for key, head in _in_some_order(chance, weights, trace.num_heads):
            bug, shown = BY_KEY[key], weights[key][head]
            if bug.number == last or not _differ(shown, right[head]):
                continue
            others = _others(chance, bug, shown, {other: weights[other][head] for other in weights})
            if len(others) == CANDIDATES - 1:
                candidates = [key, *others]
                chance.shuffle(candidates)
                return Puzzle(key, layer, head, tuple(candidates))
    return None


@torch.inference_mode()
def shown(model: Model, trace: Trace, row: int, asked: Puzzle) -> tuple[AttentionStages, AttentionStages]:
    """The puzzle's layer with the bug and right, each [H,T,..]: all layers before it are right."""
    case = case_of(model, trace, asked.layer, row)
    both = (case.run(BY_KEY[asked.bug].function), case.run(attention_stages))
    wrong, right = (AttentionStages(**{name: part[0] for name, part in vars(stages).items()}) for stages in both)
    return wrong, right


def _seen_in(layer: int) -> list[Bug]:
    """The bugs that this layer's weights show."""
    return [bug for bug in BUGS if bug.key not in NOT_TO_SEE and layer >= bug.first_layer]


def _in_some_order(chance: random.Random, weights: dict[str, Tensor], heads: int) -> Iterator[tuple[str, int]]:
    """Every bug with every head; the bugs first, so that one with many visible heads comes up no more than others."""
    keys = list(weights)
    chance.shuffle(keys)
    for key in keys:
        some = list(range(heads))
        chance.shuffle(some)
        yield from ((key, head) for head in some)


def _others(chance: random.Random, bug: Bug, shown: Tensor, weights: dict[str, Tensor]) -> list[str]:
    """Candidates of other numbers, each visibly unlike what is shown."""
    keys = list(weights)
    chance.shuffle(keys)
    found: dict[int, str] = {}
    for key in keys:
        number = BY_KEY[key].number
        if number != bug.number and number not in found and _differ(weights[key], shown):
            found[number] = key
    return list(found.values())[: CANDIDATES - 1]


def _differ(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() >= VISIBLE)
