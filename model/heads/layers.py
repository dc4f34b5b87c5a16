"""All layers of one row: the heads' mean and maximum in each, where a token's information comes from through several
layers (attention rollout and flow), and what the model would predict if it stopped after each (the logit lens).

Rollout and flow (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", arXiv:2005.00928) model a layer
as half the heads' mean attention and half the residual connection, which carries a token's own state. The logit lens
(nostalgebraist 2020) applies the network's own final norm and unembedding to the residual stream after a layer, as if
no layer followed; before the last layer nothing was trained to be decoded like this.
Sizes: L layers, T tokens, P positions, V vocabulary, R groups of queries and C of keys, T unless tokens are merged; a
map's rows are queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from i18n import N_, msg
from model.base import Model
from model.heads.merging import By, Groups, MergedBlocks, merge_groups, merged_labels, merged_masks, merged_weights
from model.heads.reach import layer_masks
from model.heads.view import HeadView
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace

How = Literal["mean", "maximum", "rollout"]
MAX_BYTES = 64 * 2**20  # of a set of maps: 12 layers of 1,182 tokens
MAX_FLOW = 10**8  # L²·T³, to which the time of all flows of one token is about proportional: some 10 s
UNITS = 2**30  # a capacity of 1, for the solver takes integers


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """A map for each layer. maps: float32 [L,R,C], how much query q attends to key k in each layer, or for a rollout by
    the end of each layer. blocked: for each layer and each mask that is on, bool [R,C], True = no head may attend
    there, and it is what blocks the cell for some head; layers under the same masks share them. labels: of its tokens,
    or what they are merged into."""

    maps: np.ndarray
    blocked: tuple[dict[str, np.ndarray], ...]
    labels: list[str]
    merged: bool = False

    def view(self, layer: int) -> HeadView:
        """Return one layer's map as a view without scores. Cells with a value above 0 do not count as blocked."""
        found, labels = self.maps[layer], self.labels
        closed = {name: mask & (found == 0) for name, mask in self.blocked[layer].items()}
        return HeadView(found, np.full_like(found, np.nan), closed, labels, labels, merged=self.merged)

    def blocked_from(self, query: int, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return for each mask bool [L,C], True = it blocks the key from one query. values [L,C]: the keys' values;
        where they are more than 0, nothing counts as blocked."""
        none = np.zeros(values.shape[1], bool)
        names = sorted(set().union(*self.blocked))
        rows = {name: [layer[name][query] if name in layer else none for layer in self.blocked] for name in names}
        return {name: np.stack(masks) & (values == 0) for name, masks in rows.items()}

    def nbytes(self) -> int:
        """Return the memory it takes, in bytes."""
        masks = {id(mask): mask.nbytes for masks in self.blocked for mask in masks.values()}
        return self.maps.nbytes + sum(masks.values())


def layer_maps(trace: Trace, row: int, masks: MaskSpec, how: How, by: By = "tokens") -> LayerMaps:
    """Compute the maps over all heads of one row, under masks. by: what tokens are merged into: in each head, before
    the heads' mean or maximum; for a rollout, in its result. Raises ValueError for cross-attention, and for a text
    whose maps would take over MAX_BYTES."""
    _check_square(trace)
    max_tokens = int((MAX_BYTES / (4 * trace.num_layers)) ** 0.5)
    length = trace.queries.ids.shape[1]
    if length > max_tokens:
        template = N_("expected at most {most:,} tokens over all {layers} layers, got {length:,}: shorten the text")
        raise ValueError(msg(template, most=max_tokens, layers=trace.num_layers, length=length))
    groups, labels = merge_groups(trace, row, by), list(trace.queries.pieces[row])
    if how == "rollout":
        maps = rollout(over_heads(trace, row, masks, "mean"))
        maps = maps if groups is None else merged_weights(maps, *groups)
    else:
        maps = over_heads(trace, row, masks, how, groups)
    labels = labels if groups is None else merged_labels(labels, groups[0])
    blocked: list[dict[str, np.ndarray]] = []
    for layer, open_cells in enumerate(layer_masks(trace, row, masks)):
        each = [trace.blocked_by(layer, row, masks, head=head) for head in range(trace.num_heads if masks.heads else 1)]
        names = sorted(set().union(*each))
        found = [(name, [one[name] for one in each if name in one]) for name in names]
        here = {name: (torch.stack(some).any(0) & ~open_cells).numpy() for name, some in found}
        here = here if groups is None else merged_masks(here, *groups)
        before = blocked[-1] if blocked else {}
        same = {name for name in here.keys() & before.keys() if np.array_equal(here[name], before[name])}
        blocked.append(here | {name: before[name] for name in same})
    return LayerMaps(maps, tuple(blocked), labels, merged=groups is not None)


def token_flow(trace: Trace, row: int, masks: MaskSpec, query: int) -> np.ndarray:
    """Compute `flow` from one query of one row. The flows to several tokens share capacities: their sum has no meaning.
    Raises ValueError for cross-attention, and for more tokens than MAX_FLOW leaves time for."""
    _check_square(trace)
    layers, length = trace.num_layers, trace.queries.ids.shape[1]
    max_tokens = int((MAX_FLOW / layers**2) ** (1 / 3))
    if length > max_tokens:
        template = N_(
            "expected at most {most:,} tokens for attention flow over {layers} layers, got {length:,}: shorten the "
            "text, or take attention rollout, which allows longer texts"
        )
        raise ValueError(msg(template, most=max_tokens, layers=layers, length=length))
    return flow(over_heads(trace, row, masks, "mean"), query)


def over_heads(
    trace: Trace, row: int, masks: MaskSpec, how: Literal["mean", "maximum"], groups: Groups | None = None
) -> np.ndarray:
    """Return the mean or the largest weight of a layer's heads, a block of queries at a time: float32 [L,R,C]."""
    size = trace.queries.ids.shape[1]
    sides = (size, size) if groups is None else tuple(map(len, groups))
    found, merge = np.zeros((trace.num_layers, *sides), np.float32), MergedBlocks(groups, size)
    with torch.inference_mode():
        for layer, queries, block in trace.blocks(row, masks):
            some, weights = merge.add(queries, block)  # [H, queries, C]
            found[layer, some] = (weights.mean(0) if how == "mean" else weights.amax(0)).cpu().numpy()
    return found


def rollout(mean: np.ndarray) -> np.ndarray:
    """Compute rollout, mean [L,T,T] -> float32 [L,T,T]: after layer l, the product of layers l … 0, each with its
    residual connection (the paper's equation 1); rows give the share of a token's state from each token by
    attention."""
    found: list[np.ndarray] = []
    for layer in with_residual(mean):
        found.append(layer @ found[-1] if found else layer)
    return np.stack(found).astype(np.float32)


def flow(mean: np.ndarray, query: int) -> np.ndarray:
    """Compute flow, mean [L,T,T] -> float32 [L,T]: the maximum flow from the query after layer l to each token before
    layer 0, where attention, residual connection included, is the capacity of the edges between the tokens of one layer
    and the next."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    layers, size = with_residual(mean), mean.shape[-1]
    edges: list[Sequence[np.ndarray]] = []
    for number, capacity in enumerate(layers):  # node of token t before layer l: l·T + t
        queries, keys = np.nonzero(capacity)
        edges.append(((number + 1) * size + queries, number * size + keys, capacity[queries, keys]))
    begin, end, capacities = (np.concatenate(part) for part in zip(*edges, strict=True))
    nodes = (len(layers) + 1) * size
    graph = csr_array((np.round(capacities * UNITS).astype(np.int32), (begin, end)), shape=(nodes, nodes))
    found = [
        [maximum_flow(graph, (number + 1) * size + query, key).flow_value / UNITS for key in range(size)]
        for number in range(len(layers))
    ]
    return np.array(found, np.float32)


def with_residual(mean: np.ndarray) -> np.ndarray:
    """Return mean [.., T, T] + the identity, rows scaled to sum to 1. A row without attention becomes the
    identity's."""
    added = mean + np.eye(mean.shape[-1], dtype=mean.dtype)
    return np.asarray(added / added.sum(-1, keepdims=True))


def _check_square(trace: Trace) -> None:
    if trace.queries is not trace.keys:
        raise ValueError(msg("expected an attention of a text to itself, got one from a target to its source"))


TOP = 5  # candidates kept at each position
MAX_POSITIONS = 128  # read at once: each costs L+1 rows of V logits
BLOCK = 128  # positions whose logits are in memory at a time


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The logit lens: what each layer would predict to follow each of P tokens. Reading 0 is of what enters the first
    layer, reading n of what leaves the n-th layer; the last is the model's own prediction. ids: int64 [L+1,P,TOP], the
    most likely first; probabilities: float32, of the same. next_ids: [P], the token that follows in the text, -1 if
    none does; next_probabilities: float32 [L+1,P], NaN if none does. next_ranks: int64 [L+1,P], 1 for the most likely;
    0 if none follows. labels: what to show for an id."""

    ids: np.ndarray
    probabilities: np.ndarray
    next_ids: np.ndarray
    next_probabilities: np.ndarray
    next_ranks: np.ndarray
    labels: dict[int, str]

    def settled(self, index: int) -> int:
        """Return the first reading from which on all rank the model's own prediction first; index: an index below P."""
        same = self.ids[:, index, 0] == self.ids[-1, index, 0]
        return len(same) - int(np.argmin(same[::-1])) if not same.all() else 0


@torch.inference_mode()
def logit_lens(model: Model, batch: TokenBatch, spec: MaskSpec, row: int, positions: Sequence[int]) -> LogitLens:
    """Compute the logit lens at some positions of one row, run under spec. Raises ValueError for none or more than
    MAX_POSITIONS, NotSupported for a model whose residual stream or whose last steps are not available."""
    if not 0 < len(positions) <= MAX_POSITIONS:
        raise ValueError(f"expected 1 to {MAX_POSITIONS} positions, got {len(positions)}")  # not shown
    alone = batch.rows([row])
    read = model.residuals(alone, spec)
    here, real = torch.tensor(positions), alone.real(0)
    following = torch.full((alone.ids.shape[1],), -1)
    following[real.start : real.stop - 1] = alone.ids[0, real.start + 1 : real.stop]
    following[:-1][alone.distinct_ids(0)[1:] < 0] = -1  # image tokens have no id to predict
    wanted = following[here]
    found = []
    for stream in read.streams:
        logits = torch.cat([
            model.readout(read.final(part)).float().cpu() for part in stream[0, here].split(BLOCK)
        ])  # fmt: skip
        shares = logits.softmax(-1)  # [P,V]
        top = shares.topk(min(TOP, shares.shape[-1]))
        chance = shares.gather(-1, wanted.clamp(min=0)[:, None])
        given = logits.gather(-1, wanted.clamp(min=0)[:, None])
        ranks = (1 + (logits > given).sum(-1)).masked_fill(wanted < 0, 0)  # many probabilities are rounded to 0
        found.append((top.indices, top.values, chance[:, 0].masked_fill(wanted < 0, torch.nan), ranks))
    ids, probabilities, chances, next_ranks = (torch.stack(some).numpy() for some in zip(*found, strict=True))
    shown = sorted({*ids.ravel().tolist(), *wanted[wanted >= 0].tolist()})
    labels = {token: model.label(token) for token in shown}
    return LogitLens(ids, probabilities, wanted.numpy(), chances, next_ranks, labels)
