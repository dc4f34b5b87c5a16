"""One head small enough for paper: T = 4 tokens, D = 2 numbers a query, key and value, every stage by the core."""

from dataclasses import dataclass

import numpy as np
import torch

from model.attention import attention_stages
from model.masks import causal

TOKENS = ("the", "cat", "sat", "down")
QUERIES = ((1.0, 0.0), (0.0, 2.0), (1.0, 1.0), (2.0, 0.0))
KEYS = ((1.0, 0.0), (1.0, 2.0), (0.0, 1.0), (2.0, 1.0))
VALUES = ((1.0, 0.0), (0.0, 1.0), (2.0, 2.0), (-1.0, 1.0))
MOST = 9.0  # of a number, without its sign


@dataclass(frozen=True, eq=False)
class ByHand:
    """raw, scaled, exp, weights: float64 [T,T], exp being e^score, 0 in blocked cells. sums: [T], of exp along a row.
    output: [T,D]. allowed: bool [T,T]."""

    raw: np.ndarray
    scaled: np.ndarray
    exp: np.ndarray
    sums: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    allowed: np.ndarray


def by_hand(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *, masked: bool) -> ByHand:
    """[T,D] each; masked: under the causal mask. Raises ValueError for other shapes, and for a number beyond MOST."""
    given = {"queries": queries, "keys": keys, "values": values}
    expected = (len(TOKENS), len(QUERIES[0]))
    for name, numbers in given.items():
        if numbers.shape != expected or not (np.abs(numbers) <= MOST).all():  # NaN is not
            table = f"{expected[0]} × {expected[1]} {name}"
            raise ValueError(f"expected {table} from −{MOST:g} to {MOST:g}, got another")  # not shown: bounded
    q, k, v = (torch.tensor(np.asarray(numbers, np.float64)) for numbers in given.values())
    size = len(TOKENS)
    allowed = causal(size, size) if masked else torch.ones(size, size, dtype=torch.bool)
    stages = attention_stages(q[None], k[None], v[None], allowed)
    exp = stages.masked[0].exp()
    found = (stages.raw[0], stages.scaled[0], exp, exp.sum(-1), stages.weights[0], stages.output[0], allowed)
    return ByHand(*(tensor.numpy() for tensor in found))
