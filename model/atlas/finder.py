"""Which heads look from marked tokens to marked tokens of one text."""

from collections.abc import Sequence

import numpy as np
import torch

from model.masks import MaskSpec
from model.trace import Trace


@torch.inference_mode()
def weight_there(trace: Trace, row: int, masks: MaskSpec, queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
    """float64 [L,H], 0 to 1: what the queries put on all the keys together, their mean.

    Queries that may look at none of the keys are left out; NaN in a layer where none may. Raises ValueError for no
    query, no key, and positions that are not there.
    """
    sizes = len(trace.queries.pieces[row]), len(trace.keys.pieces[row])
    for name, some, size in (("queries", queries, sizes[0]), ("keys", keys, sizes[1])):
        if not some or not all(0 <= one < size for one in some):
            raise ValueError(f"expected {name} from 0 to {size - 1}, at least one, got {list(some)}")  # not shown
    result = np.zeros((trace.num_layers, trace.num_heads))
    for layer in range(trace.num_layers):
        some = [query for query in queries if trace.allowed(layer, row, masks)[query, list(keys)].any()]
        for head in range(trace.num_heads):
            weights = trace.weights(layer, head, row, masks)[some][:, list(keys)]
            result[layer, head] = float(weights.double().sum(-1).mean()) if some else np.nan
    return result
