"""Measures of a head, computed from its weights [.., Q, K], whose blocked cells are exactly 0 and whose rows sum to 1
(to less with a learned sink, or to 0). Means over the query rows that have any weight; `queries` (bool [Q]) narrows
them further, to real tokens for example. A head without such rows gives NaN."""

import torch
from torch import Tensor

EPSILON = 1e-30  # the smallest weight, or sum of weights, to divide by


def entropy(weights: Tensor, queries: Tensor | None = None) -> Tensor:
    """Return the Shannon entropy of row shares in bits, from 0 (one key) to log2(K) (uniform): [.., Q, K] -> [..]."""
    return _mean_over_rows(row_entropy(weights), weights, queries)


def row_entropy(weights: Tensor) -> Tensor:
    """Return the entropy of every row in bits: [.., Q, K] -> [.., Q]. For a row of zeros any number."""
    logs = weights.clamp(min=EPSILON).log2_()  # half the time of torch.special.entr
    total = weights.sum(-1).clamp(min=EPSILON)
    return (total.log2() - logs.mul_(weights).sum(-1) / total).clamp_(min=0)


def leak(weights: Tensor, keep: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the shares of attention, 0 to 1, on later real tokens and on padding, which does not count as later: [..,
    Q, K], keep bool [K] -> [..], [..]."""
    later = (torch.arange(weights.shape[-1], device=weights.device) > _positions(weights)[:, None]) & keep
    future = _mean_over_rows((weights * later).sum(-1), weights, queries)
    padding = _mean_over_rows((weights * ~keep).sum(-1), weights, queries)
    return future, padding


def previous_token(weights: Tensor, queries: Tensor | None = None) -> Tensor:
    """Return the mean weight, 0 to 1, on the previous position: [.., T, T] -> [..]. Position 0 is left out."""
    return _mean_over_rows(_on(weights, 1), weights, queries, _positions(weights) >= 1)


def own_token(weights: Tensor, queries: Tensor | None = None) -> Tensor:
    """Return the mean weight, 0 to 1, on the query's own position: [.., T, T] -> [..]."""
    return _mean_over_rows(_on(weights, 0), weights, queries)


def key_share(weights: Tensor, key: int, queries: Tensor | None = None) -> Tensor:
    """Return the mean weight, 0 to 1, on one key, the first token for example: [.., Q, K] -> [..]."""
    return _mean_over_rows(weights[..., key], weights, queries)


def induction(weights: Tensor, ids: Tensor, queries: Tensor | None = None) -> Tensor:
    """Return the mean weight, 0 to 1, on the token after the last earlier occurrence of the query's token: weights [..,
    T, T], ids [T] -> [..], over the queries that have one of `followers` (Olsson et al. 2022: prefix matching)."""
    target = followers(ids.to(weights.device))
    position = torch.arange(len(ids), device=weights.device)
    after = position[None, :] == target[:, None]  # all False where the target is -1
    seen = target >= 0
    return _mean_over_rows((weights * after).sum(-1), weights, queries, seen)


def same_before(ids: Tensor) -> Tensor:
    """Return for each query the earlier keys that are the same token: [.., T] -> bool [.., T, T]."""
    position = torch.arange(ids.shape[-1], device=ids.device)
    return (ids[..., :, None] == ids[..., None, :]) & (position[None, :] < position[:, None])


def repeats(ids: Tensor) -> Tensor:
    """Return whether each token occurred before: [T] -> bool [T]."""
    kinds, number = ids.unique(return_inverse=True)
    position = torch.arange(len(ids), device=ids.device)
    first = torch.full_like(kinds, len(ids)).scatter_reduce(0, number, position, "amin")
    return position > first[number]


def followers(ids: Tensor) -> Tensor:
    """Return the position after the last earlier occurrence of each query's token: [.., T] -> int64 [.., T]. -1 if
    there is none, and if it is the query's own or the one just before it: weight there is no evidence of induction."""
    order = ids.argsort(dim=-1, stable=True)  # equal tokens side by side, in the order of the text
    ordered = ids.gather(-1, order)
    before = torch.full_like(order, -2)
    before[..., 1:] = torch.where(ordered[..., 1:] == ordered[..., :-1], order[..., :-1], -2)
    after = torch.empty_like(order).scatter_(-1, order, before) + 1
    position = torch.arange(ids.shape[-1], device=ids.device)
    return torch.where((after > 0) & (after < position - 1), after, -1)


def repeated_tokens(rows: int, span: int, ids: range, start: int | None, generator: torch.Generator) -> Tensor:
    """Return random ids repeated once, [rows, 2·span], plus one column for a start token if the model has one."""
    once = torch.randint(ids.start, ids.stop, (rows, span), generator=generator)
    lead = [] if start is None else [torch.full((rows, 1), start)]
    return torch.cat([*lead, once, once], dim=-1)


def _on(weights: Tensor, back: int) -> Tensor:
    """Return each query's weight on the key `back` positions before it: [.., T, T] -> [.., T], 0 without such a key."""
    diagonal = weights.diagonal(-back, dim1=-2, dim2=-1)
    return torch.nn.functional.pad(diagonal, (weights.shape[-2] - diagonal.shape[-1], 0))


def _positions(weights: Tensor) -> Tensor:
    return torch.arange(weights.shape[-2], device=weights.device)


def _mean_over_rows(values: Tensor, weights: Tensor, *queries: Tensor | None) -> Tensor:
    """Return the mean of values [.., Q] -> [..] over the rows that have any weight and that all queries select."""
    counted = weights.sum(-1) > 0
    for some in queries:
        counted = counted if some is None else counted & some
    return (values * counted).sum(-1) / counted.sum(-1)
