"""What an atlas measures of a head at one query, for a batch of rows at once.

Sizes: M measures, B rows padded on the right, H heads, Q queries of a block, K keys up to the last
that any of them sees.

A query counts where it has a choice: a real token with at least two cells that no mask blocks. For a measure it counts
where a cell that the measure asks about is among them; so blocked cells are left out, and under a causal mask the first
token is. "previous" leaves out the second token as well: the one before it is the row's first, often a start token.
"""

import math

import torch
from torch import Tensor

from model.atlas.result import NAMES
from model.heads import measures
from model.text import TokenBatch

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


class BatchFacts:
    """What of a batch the measures ask about, whatever the head."""

    def __init__(self, batch: TokenBatch, punctuation: Tensor) -> None:
        """punctuation: bool [B,T], True where a token is nothing else."""
        self.keep = batch.keep
        self.position = torch.arange(batch.ids.shape[1])
        self.followers = measures.followers(batch.ids)  # [B,T]
        self.same_before = measures.same_before(batch.ids) & batch.keep[:, None, :] & batch.keep[:, :, None]
        self.punctuation = punctuation & batch.keep
        near = [self.position - 1, self.position, self.followers]  # what previous, same and induction ask about
        self._near = torch.stack(torch.broadcast_tensors(*near), -1).clamp(min=0)  # [B,T,3]
        self._earlier = self.same_before[:, None].float()  # [B,1,T,T]
        at = self.position.expand_as(batch.ids)
        self._of_keys = torch.stack([torch.ones_like(at), at, self.punctuation], 1).float()  # [B,3,T]

    def values(self, weights: Tensor, queries: slice, known: Known | None = None, *, ahead: bool) -> Tensor:
        """Every measure at every query: weights [B,H,Q,K] -> [M,B,H,Q]; where it does not count, any number.

        known: peak and entropy, where they are. ahead: whether any query may look at a later token.
        """
        rows, heads, many, seen = weights.shape
        here = self.position[queries]  # [Q]
        near = self._near[:, None, queries].clamp(max=seen - 1).expand(-1, heads, -1, -1)
        previous, same, induction = weights.gather(-1, near).unbind(-1)
        summed = self._of_keys[:, :, :seen] @ weights.flatten(1, 2).mT  # [B,3,H·Q]
        total, at, punctuation = summed.view(rows, 3, heads, many).unbind(1)
        distance, leak = here * total - at, torch.zeros_like(total)
        if ahead:
            far = (self.position[:seen] - here[:, None]).clamp(min=0).float()  # [Q,K]
            distance = distance + 2 * (weights * far).sum(-1)
            leak = (weights * (far > 0)).sum(-1)
        found = (_peak_and_entropy(weights) if known is None else known) | {
            "previous": previous,
            "first": weights[..., 0],
            "same": same,
            "duplicate": torch.linalg.vecdot(weights, self._earlier[:, :, queries, :seen]),
            "induction": induction,
            "punctuation": punctuation,
            "leak": leak,
            "distance": distance / total.clamp(min=1e-9),  # sinks may leave less than 1
        }
        return torch.stack([found[name] for name in NAMES])

    def counts(self, allowed: Tensor, queries: slice) -> Tensor:
        """Where each measure counts: allowed bool [1 or B, 1, T, T] -> bool [M,B,Q]."""
        rows = len(self.keep)
        cells = allowed[:, 0, queries] & self.keep[:, None, :]  # [B,Q,T]
        choice = self.keep[:, queries] & (cells.sum(-1) > 1)
        here = self.position[queries]
        asked = {
            "previous": self._is_open(cells, (here - 1).expand(rows, -1)) & (here > 1),
            "first": cells[..., 0] & (here > 0),
            "same": self._is_open(cells, here.expand(rows, -1)),
            "duplicate": (cells & self.same_before[:, queries]).any(-1),
            "induction": self._is_open(cells, self.followers[:, queries]),
            "punctuation": (cells & self.punctuation[:, None, :]).any(-1),
        }
        return torch.stack([choice & asked[name] if name in asked else choice for name in NAMES])

    @staticmethod
    def _is_open(cells: Tensor, key: Tensor) -> Tensor:
        """Whether each query may look at one key: cells [B,Q,K], key [B,Q] -> bool [B,Q]."""
        seen = cells.shape[-1]
        found = cells.gather(-1, key.clamp(0, seen - 1)[..., None])[..., 0]
        return found & (key >= 0) & (key < seen)


def _peak_and_entropy(weights: Tensor) -> Known:
    peak = weights[..., 1:].amax(-1) if weights.shape[-1] > 1 else torch.zeros_like(weights[..., 0])
    return {"peak": peak, "entropy": measures.row_entropy(weights)}
