"""The softmax of a block of scores in base 2, and the measures that fall out of it.

An atlas takes more time for this than for anything else that it measures: 2^x costs half of e^x, the entropy of a
row is the log of its sum less the mean of its scores, so no weight's own log is taken, and the largest weight is where
the largest score is, which is known before.
Sizes: B rows, H heads, Q queries of a block, K keys.
"""

import math

import torch
from torch import Tensor

BITS = math.log2(math.e)  # what scores are multiplied with for that
Known = dict[str, Tensor]  # measures by their names, [B,H,Q] each
BLOCKED = -1e30  # a score whose weight is 0, and that times a weight of 0 is 0


def softmax2(scores: Tensor, mask: Tensor | None, choice: Tensor, sinks: Tensor | None) -> tuple[Tensor, Known]:
    """The weights [B,H,Q,K], and the peak and the entropy of each row; scores [B,H,Q,K], in BITS, are written over.

    mask: broadcastable to them, 0 where a cell is open and BLOCKED elsewhere. choice: bool [B,Q]; the weights of all
    other queries are 0. sinks: [H] or [B,H,Q,1], one more score a row, whose weight is left out.
    """
    if mask is not None:
        scores.add_(mask)
    first, others = scores[..., :1], scores[..., 1:]
    second = others.amax(-1, keepdim=True) if others.numel() else torch.full_like(first, BLOCKED)
    largest = torch.maximum(first, second)
    if sinks is not None:
        sinks = sinks.view(-1, 1, 1) if sinks.ndim == 1 else sinks
        largest = torch.maximum(largest, sinks)
    scores.sub_(largest)
    weights = scores.exp2()
    total = weights.sum(-1, keepdim=True)
    whole = total if sinks is None else total + (sinks - largest).exp2()
    part = choice[:, None, :, None] / whole
    weights.mul_(part)
    entropy = whole.log2() * total * part - torch.linalg.vecdot(weights, scores)[..., None]
    peak = (second - largest).exp2() * part
    return weights, {"peak": peak[..., 0], "entropy": entropy[..., 0]}
