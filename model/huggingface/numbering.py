"""From which number a network counts the tokens of a text when it is left to count by itself.

That is what it was trained with; positions counted from elsewhere and passed to it may give other logits. What the
first attention gets shows it, and is all that is computed to see it.
Sizes: B rows, T tokens.
"""

from typing import Any

import torch
from torch import Tensor

from model.huggingface.attention_hook import Call, blank
from model.huggingface.positions import USUAL
from model.huggingface.stacks import OneStack, through


class _Reached(Exception):
    """The first attention: the rest of the network need not run."""


class _FirstCall:
    """A run that ends at the first attention on the text's tokens, and keeps what that attention gets."""

    positions: Tensor | None = None
    own_code: bool = True

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.call: Call | None = None

    def concerns(self, queries: int, keys: int) -> bool:
        return self._tokens in (queries, keys)

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        return blank(arguments)

    def attend(self, call: Call) -> Tensor:
        self.call = call
        raise _Reached


def first_position(stack: OneStack, ids: Tensor) -> int | None:
    """The number of a text's first token; None where the network does not count on from there, one by one.

    ids [1,T], a text without padding. The stack is left as it was.
    """
    takes, before = stack.takes_positions, stack.first_position
    try:
        stack.takes_positions = False
        by_itself = _first_call(stack, ids)
        stack.takes_positions = True
        for stack.first_position in USUAL:
            if _alike(_first_call(stack, ids), by_itself):
                return stack.first_position
        return None
    finally:
        stack.takes_positions, stack.first_position = takes, before


def _first_call(stack: OneStack, ids: Tensor) -> Call | None:
    run = _FirstCall(ids.shape[1])
    try:
        with through(run, stack.network, len(ids)):
            stack.reference(ids, torch.ones_like(ids, dtype=torch.bool))
    except _Reached:
        pass
    except IndexError:  # positions beyond its table
        return None
    return run.call


def _alike(one: Call | None, other: Call | None) -> bool:
    if one is None or other is None or len(one.added) != len(other.added):
        return one is other  # without any attention, that is said when it is looked for
    pairs = zip((one.q, one.k, *one.added), (other.q, other.k, *other.added), strict=True)
    return all(a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-5) for a, b in pairs)
