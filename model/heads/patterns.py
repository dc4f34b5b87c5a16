"""What heads are known for, measured on one row of a run: of every head the shares of its attention that go to the
token before, to the first token, to itself, to earlier places of the same token, and to what followed it there.

Gathered block by block beside a survey's thumbnails. Sizes: M habits, L layers, H heads, Q queries, K keys.
"""

import torch
from torch import Tensor

from model.heads import measures
from model.trace import Trace

HABITS = ("previous", "first", "itself", "duplicate", "induction")  # across texts "first" alone is there, the rest NaN


class HeadPatternScores:
    """Means over the row's real queries that look at something and that the habit asks about: of "previous" those from
    the third real token on, of all others from the second on, for what has no choice has no habit; of "duplicate" and
    "induction" those whose token came up before. measures.py has the same shares of one head at a time.
    """

    def __init__(self, trace: Trace, row: int) -> None:
        queries, keys = trace.queries, trace.keys
        begin = queries.real(row).start
        self._first = keys.real(row).start
        self._across = queries is not keys
        later = queries.keep[row].clone()
        if not self._across:
            later[begin] = False
        much_later = later.clone()
        much_later[begin : begin + 2] = False
        position, ids = torch.arange(len(later)), queries.ids[row].cpu()
        same_before, follower = measures.same_before(ids), measures.followers(ids)
        self._cells = torch.stack([position - 1, position, follower], -1).clamp(min=0)  # [Q,3]
        self._pairs = (same_before & later[:, None]).nonzero()  # [P,2]: query, an earlier place of its token
        asked = [much_later, later, later, later & same_before.any(-1), later & (follower >= 0)]
        self._asked = torch.stack(asked).float()  # [M,Q]
        self._sums = torch.zeros(len(HABITS), trace.num_layers, trace.num_heads)
        self._counts = torch.zeros_like(self._sums)

    def add(self, layer: int, queries: slice, weights: Tensor, looks: Tensor) -> None:
        """weights [H, queries, K] of a layer; looks: bool [H, queries], the rows that look at something."""
        weights = weights.cpu()
        asked = self._asked[:, None, queries] * looks.cpu()  # [M,H,queries]
        self._sums[:, layer] += (self._values(queries, weights) * asked).sum(-1)
        self._counts[:, layer] += asked.sum(-1)

    def means(self) -> Tensor:
        """[L,H,M], shares from 0 to 1; NaN where no query is asked about."""
        means = (self._sums / self._counts).permute(1, 2, 0).clone()
        if self._across:
            means[..., [place for place, name in enumerate(HABITS) if name != "first"]] = torch.nan
        return means

    def _values(self, queries: slice, weights: Tensor) -> Tensor:
        """[M,H,queries]"""
        first = weights[..., self._first]
        if self._across:
            return first.expand(len(HABITS), *first.shape)
        heads = len(weights)
        cells = self._cells[queries].expand(heads, -1, -1)
        previous, itself, induction = weights.gather(-1, cells).unbind(-1)
        query, key = self._pairs[(self._pairs[:, 0] >= queries.start) & (self._pairs[:, 0] < queries.stop)].unbind(-1)
        duplicate = torch.zeros_like(first).index_add_(1, query - queries.start, weights[:, query - queries.start, key])
        return torch.stack([previous, first, itself, duplicate, induction])
