"""A survey of all heads of one row of a run, in one pass over their weights: thumbnails, and shares of attention.

Sizes: L layers, H heads, Q queries, K keys, S and S' the sides of a thumbnail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import N_, msg
from model.errors import index
from model.heads import measures
from model.heads.merging import By, Groups, MergedBlocks, merge_groups, merged_blocked
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.trace import Thumbnails, Trace

HEAD_PATTERNS = ("previous", "first", "itself", "duplicate", "induction")  # in cross-attention all but "first" are NaN
SHARES = (*HEAD_PATTERNS, "future", "padding")
MIN_TO_MARK = 3  # queries that a pattern needs for heads to be marked with it


class AttentionShares:
    """Each head's shares of attention (0 to 1) by SHARES, collected block by block: means over the row's real queries
    that have any weight and that a share counts: for "previous" those from the third real token on, for all other
    patterns from the second on, since one key alone is no choice; for "duplicate" and "induction" those whose token
    occurred before. "future" and "padding", on later tokens and on padding, do not overlap: padding that comes later
    counts as padding."""

    def __init__(self, trace: Trace, row: int, masks: MaskSpec) -> None:
        queries, keys = trace.queries, trace.keys
        begin, real = queries.real(row).start, queries.keep[row].cpu()
        self._first, self._keep = keys.real(row).start, keys.keep[row].cpu()
        self._across = queries is not keys
        on = {name for record in trace.layers for name in record.context.on(masks)}
        opened = any(KINDS[name].opens for name in on) or masks.drawn or masks.layers or masks.heads
        self._never_later = masks.causal and not opened  # all later cells are exactly 0: nothing to sum
        self._has_later = ["causal" in record.context.available for record in trace.layers]
        later = real.clone()
        if not self._across:
            later[begin] = False
        much_later = later.clone()
        much_later[begin : begin + 2] = False
        position, ids = torch.arange(len(later)), queries.distinct_ids(row)
        self._ids = ids if trace.layers[0].context.is_long else None  # duplicates are found block by block
        repeats, follower = measures.repeats(ids), measures.followers(ids)
        self._cells = torch.stack([position - 1, position, follower], -1).clamp(min=0)  # [Q,3]
        same_before = measures.same_before(ids) & later[:, None] if self._ids is None else torch.zeros(0, 2)
        self._pairs = same_before.nonzero()  # [P,2]: query, an earlier position of its token
        counted = [much_later, later, later, later & repeats, later & (follower >= 0), real, real]
        self._counted = torch.stack(counted).float()  # [M,Q]
        self._sums = torch.zeros(len(SHARES), trace.num_layers, trace.num_heads)
        self._counts = torch.zeros_like(self._sums)

    def add(self, layer: int, queries: slice, weights: Tensor) -> None:
        """Add weights [H, queries, K] of a layer, on the CPU."""
        counted = self._counted[:, None, queries] * (weights.amax(-1) > 0)  # [M,H,queries]
        values = torch.cat([self._patterns(queries, weights), self._leak(layer, queries, weights)])
        self._sums[:, layer] += (values * counted).sum(-1)
        self._counts[:, layer] += counted.sum(-1)

    def rare(self) -> frozenset[str]:
        """Return the patterns that count fewer than MIN_TO_MARK queries of the row."""
        counts = self._counted.sum(-1).tolist()
        return frozenset(name for name, count in zip(HEAD_PATTERNS, counts, strict=False) if count < MIN_TO_MARK)

    def means(self) -> dict[str, np.ndarray]:
        """Return each share's mean, float32 [L,H]; NaN where no query counts; "future" also where tokens have no
        order."""
        means = self._sums / self._counts
        if self._across:
            means[[index for index, name in enumerate(HEAD_PATTERNS) if name != "first"]] = torch.nan
        return dict(zip(SHARES, means.numpy(), strict=True))

    def _patterns(self, queries: slice, weights: Tensor) -> Tensor:
        """Return the weights of the patterns, [5,H,queries]."""
        first = weights[..., self._first]
        if self._across:
            return first.expand(len(HEAD_PATTERNS), *first.shape)
        cells = self._cells[queries].expand(len(weights), -1, -1)
        previous, itself, induction = weights.gather(-1, cells).unbind(-1)
        if self._ids is not None:
            some = torch.arange(queries.start, queries.stop)
            same = (self._ids[some, None] == self._ids[None]) & (torch.arange(len(self._ids)) < some[:, None])
            return torch.stack([previous, first, itself, (weights * same).sum(-1), induction])
        query, key = self._pairs[(self._pairs[:, 0] >= queries.start) & (self._pairs[:, 0] < queries.stop)].unbind(-1)
        duplicate = torch.zeros_like(first).index_add_(1, query - queries.start, weights[:, query - queries.start, key])
        return torch.stack([previous, first, itself, duplicate, induction])

    def _leak(self, layer: int, queries: slice, weights: Tensor) -> Tensor:
        """Return the weights on later tokens and on padding, [2,H,queries]."""
        leak = weights.new_zeros(2, *weights.shape[:2])
        if not self._has_later[layer]:
            leak[0] = torch.nan
        elif not self._never_later:
            begin = queries.start + 1  # columns before it are later for no query
            position = torch.arange(queries.start, queries.stop)[:, None]
            later = (torch.arange(begin, len(self._keep)) > position) & self._keep[begin:]
            leak[0] = (weights[..., begin:] * later).sum(-1)
        if not self._keep.all():
            leak[1] = weights @ (~self._keep).to(weights.dtype)
        return leak


MAX_BYTES = 593_856  # of all thumbnails and shares: 12 × 12 heads, thumbnails of 64 × 64
LARGEST, SMALLEST = 64, 4  # sides of a thumbnail


@dataclass(frozen=True, eq=False)
class Survey:
    """The survey of one row. thumbnails: float32 [L,H,S,S'], the largest weight of each patch. blocked: bool [L, H or
    1, S, S'], patches that are blocked as a whole. shares: by SHARES, float32 [L,H], see AttentionShares. rare:
    patterns with too few queries to mark a head with."""

    thumbnails: np.ndarray
    blocked: np.ndarray
    shares: dict[str, np.ndarray]
    rare: frozenset[str] = frozenset()

    @property
    def marked(self) -> dict[str, np.ndarray]:
        """The shares that heads are marked with."""
        return {name: share for name, share in self.shares.items() if name not in self.rare}

    @property
    def future(self) -> np.ndarray:
        return self.shares["future"]

    @property
    def padding(self) -> np.ndarray:
        return self.shares["padding"]

    def with_layer(self, layer: int, other: "Survey") -> "Survey":
        """Return this survey with one layer replaced by the other's."""

        def pick(own: np.ndarray, others: np.ndarray) -> np.ndarray:
            mixed, others = (some.copy() for some in np.broadcast_arrays(own, others))
            mixed[layer] = others[layer]
            return mixed

        shares = {name: pick(own, other.shares[name]) for name, own in self.shares.items()}
        return Survey(pick(self.thumbnails, other.thumbnails), pick(self.blocked, other.blocked), shares, self.rare)


def thumbnail_size(layers: int, heads: int) -> int:
    """Return the largest side of a thumbnail, a byte a pixel, that MAX_BYTES allow for this many heads."""
    pixels = MAX_BYTES // (layers * heads) - 4 * len(SHARES)
    return max(min(LARGEST, int(max(pixels, 0) ** 0.5)), SMALLEST)


@torch.inference_mode()
def survey(trace: Trace, row: int = 0, masks: MaskSpec | None = None, by: By = "tokens") -> Survey:
    """Survey every head of a row under the run's masks, or (same queries and keys) under others, a block of queries at
    a time. by: what the thumbnails' tokens are merged into; the shares are always of tokens."""
    groups = merge_groups(trace, row, by)
    sides = None if groups is None else (len(groups[0]), len(groups[1]))
    thumbnails = Thumbnails(trace, thumbnail_size(trace.num_layers, trace.num_heads), sides)
    shares = AttentionShares(trace, row, masks or trace.spec)
    merge = MergedBlocks(groups, trace.layers[0].q.shape[2])
    for layer, some, weights in trace.blocks(row, masks):
        thumbnails.add(layer, *merge.add(some, weights))
        shares.add(layer, some, weights.cpu())
    blocked = _blocked(trace, row, masks, groups, *thumbnails.result.shape[2:])
    return Survey(thumbnails.result.numpy(), blocked, shares.means(), shares.rare())


def blocked_thumbnail(blocked: np.ndarray, tall: int, wide: int) -> np.ndarray:
    """Reduce blocked cells, bool [Q,K] -> bool [tall,wide]: True where all of a patch is blocked. Patches as in torch's
    adaptive pooling: patch i of n over Q cells goes from floor(i·Q/n) to ceil((i+1)·Q/n)."""
    rows = np.stack([blocked[begin:end].all(0) for begin, end in _edges(blocked.shape[0], tall)])
    return np.stack([rows[:, begin:end].all(1) for begin, end in _edges(blocked.shape[1], wide)], axis=1)


def _blocked(trace: Trace, row: int, masks: MaskSpec | None, groups: Groups | None, tall: int, wide: int) -> np.ndarray:
    """Return the blocked patches, [L, H or 1, tall, wide]; layers and heads under the same masks share the work."""
    made: dict[bytes, np.ndarray] = {}
    spec = masks or trace.spec
    heads = range(trace.num_heads) if spec.heads else range(1)
    kinds = {head in spec.heads: head for head in heads}  # one head of each kind

    def blocked_in(layer: int, head: int) -> np.ndarray:
        context = trace.layers[layer].context
        if context.is_long:
            rows, columns = groups or (np.arange(context.queries), np.arange(context.keep.shape[1]))
            at = [*rows.tolist(), context.queries]
            slices = [slice(at[first], at[last]) for first, last in _edges(len(rows), tall)]
            parts = (context.of(some).allowed_in_row(spec, row, head).numpy() for some in slices)
            closed = (np.logical_and.reduceat(~part.any(0, keepdims=True), columns, axis=1) for part in parts)
            return np.concatenate([blocked_thumbnail(one, 1, wide) for one in closed])  # one part in memory at a time
        allowed = trace.allowed(layer, row, spec, head=head)
        key = np.packbits(allowed.numpy()).tobytes()
        if key not in made:
            made[key] = blocked_thumbnail(merged_blocked(~allowed.numpy(), groups), tall, wide)
        return made[key]

    every = [{kind: blocked_in(layer, head) for kind, head in kinds.items()} for layer in range(trace.num_layers)]
    return np.array([[of_kind[head in spec.heads] for head in heads] for of_kind in every])


def _edges(cells: int, parts: int) -> list[tuple[int, int]]:
    return [(part * cells // parts, -(-(part + 1) * cells // parts)) for part in range(parts)]


@dataclass(frozen=True, eq=False)
class StepMeasures:
    """The measures of a row of a run. loss: the mean over the row's tokens in nats, NaN where none is predicted.
    shares: by SHARES, float32 [L,H], 0 to 1, see AttentionShares."""

    loss: float
    shares: dict[str, np.ndarray]


@torch.inference_mode()
def step_measures(trace: Trace, row: int, masks: MaskSpec, predicts: bool) -> StepMeasures:
    """Measure a row of a run. predicts: whether its logits are of next tokens."""
    shares = AttentionShares(trace, row, masks)
    for layer, some, weights in trace.blocks(row, masks):
        shares.add(layer, some, weights.cpu())
    loss = float(trace.losses(row).nanmean()) if predicts else float("nan")
    return StepMeasures(loss, shares.means())


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes of a run's weights. thumbnails: float32 [L,H,S,S'], the largest absolute change in each patch.
    largest: float32 [L,H], of each head, 0 to 1."""

    thumbnails: np.ndarray
    largest: np.ndarray


@torch.inference_mode()
def changes(trace: Trace, other: Trace, row: int, other_row: int, by: By = "tokens") -> Changes:
    """Subtract the weights of a row of another run from a row's, a block of queries at a time. by: what tokens are
    merged into. Raises ValueError for runs of other shapes or on other tokens."""
    shapes = [[(*record.q.shape[1:3], record.k.shape[2]) for record in one.layers] for one in (trace, other)]
    if shapes[0] != shapes[1]:
        template = N_(
            "expected two runs of the same shape, got {one} and {other}: run the same text with both models; if "
            "only one of them adds a start token, subtract the arrays without that token: numpy()[..., 1:, 1:]"
        )
        sizes = N_("{layers} × {heads} × {queries} × {keys} (layers, heads, queries, keys)")
        described = []
        for run in (trace, other):
            lengths = {"queries": run.queries.ids.shape[1], "keys": run.keys.ids.shape[1]}
            described.append(msg(sizes, layers=run.num_layers, heads=run.num_heads, **lengths))
        raise ValueError(msg(template, one=described[0], other=described[1]))
    texts = ((one.batch.ids, one.queries.ids, one.keys.ids) for one in (trace, other))
    if not all(torch.equal(ids[row], others[other_row]) for ids, others in zip(*texts, strict=True)):
        template = N_("expected two runs on the same tokens, got different ones: use the same text and tokenizer")
        raise ValueError(msg(template))
    groups, size = merge_groups(trace, row, by), trace.layers[0].q.shape[2]
    sides = None if groups is None else (len(groups[0]), len(groups[1]))
    thumbnails = Thumbnails(trace, thumbnail_size(trace.num_layers, trace.num_heads), sides)
    ours, theirs = MergedBlocks(groups, size), MergedBlocks(groups, size)
    for (layer, some, weights), (_, _, others) in zip(trace.blocks(row), other.blocks(other_row), strict=True):
        (rows, merged), (_, other_merged) = ours.add(some, weights), theirs.add(some, others)
        thumbnails.add(layer, rows, (merged - other_merged).abs())
    found = thumbnails.result.numpy()
    return Changes(found, found.max((2, 3)))


def every_weight(trace: Trace, row: int) -> np.ndarray:
    """Return all weights, float32 [L,H,Q,K]: large for a long text."""
    blocks: list[list[torch.Tensor]] = [[] for _ in trace.layers]
    for layer, _, weights in trace.blocks(row):
        blocks[layer].append(weights.cpu())
    return torch.stack([torch.cat(some, dim=1) for some in blocks]).numpy()


def weights_from_attentions(attentions: Any, row: int, *, across: bool = False) -> np.ndarray:
    """Convert transformers' `attentions` to the weights of a row, float32 [L,H,Q,K]: from a tensor [B,H,Q,K] for each
    layer, or from `generate` such a tuple for each step, whose queries follow each other; or from an output that holds
    either. across: whether the keys are another text, the same at each step. Raises ValueError otherwise."""
    steps, generated = _steps(attentions)
    weights = []
    for step in steps:
        tensors = [torch.as_tensor(one).detach().float().cpu() for one in step]
        if generated and not across and all(one.ndim for one in tensors):  # a sliding layer holds its last keys
            held = max(one.shape[-1] for one in tensors)
            tensors = [F.pad(one, (held - one.shape[-1], 0)) for one in tensors]
        shapes = {tuple(one.shape) for one in tensors}
        if len(shapes) > 1 or tensors[0].ndim != 4:
            raise ValueError(f"expected one shape [B,H,Q,K] for all layers, got {sorted(shapes)}")  # not shown
        weights.append(torch.stack([one[index("row", row, len(tensors[0]))] for one in tensors]))
    if len({part.shape[:2] for part in weights}) > 1:
        raise ValueError("expected as many layers and heads at every step, got others")  # not shown
    expect_weights(weights)
    return _join_steps(weights, across=across).numpy()


def _steps(attentions: Any) -> tuple[Sequence[Sequence[Tensor | np.ndarray]], bool]:
    """Return the tensors of each layer for each step of generate, or for the one step of a forward pass, and whether
    they are generate's."""
    found = getattr(attentions, "attentions", attentions)
    if found is attentions and getattr(attentions, "decoder_attentions", None) is not None:
        raise ValueError(
            "expected one attention of an encoder-decoder, its output's decoder_attentions, cross_attentions (with "
            f"keys=…) or encoder_attentions, got {type(attentions).__name__}"  # not shown
        )
    if getattr(attentions, "beam_indices", None) is not None:
        wanted = "expected greedy or sampled steps, got those of a beam search: generate with num_beams=1"  # not shown
        raise ValueError(wanted)
    generated = _is_tuple(found) and all(map(_is_tuple, found))
    steps = found if generated else [found]
    if not all(_is_tuple(step) and all(isinstance(one, Tensor | np.ndarray) for one in step) for step in steps):
        got = type(found).__name__
        if isinstance(found, Sequence) and not isinstance(found, str) and len(found):
            got = f"{len(found)} of {type(found[0]).__name__}"
        raise ValueError(
            "expected a tuple of a tensor [B,H,Q,K] for each layer, or generate's tuple of such tuples "
            "(output_attentions=True, and attention that gives its weights: attn_implementation='eager'), "
            f"got {got}"  # not shown
        )
    return steps, generated


def expect_weights(some: Sequence[Tensor]) -> None:
    """Raise ValueError for weights that no softmax gives."""
    if not all(bool(((part >= 0) & (part <= 1 + 1e-3)).all()) for part in some):
        raise ValueError("expected weights from 0 to 1, after the softmax, got others")  # not shown


def _join_steps(steps: list[torch.Tensor], *, across: bool) -> torch.Tensor:
    """Join steps [L,H,Q,K], each with the queries that follow those before, as one [L,H,Q,K]. Keys that a step did not
    have get weight 0: later ones, and those that a sliding cache had dropped."""
    whole = steps[-1]
    if len(steps) == 1 or (not across and whole.shape[2] > 1 and whole.shape[2] == whole.shape[3]):
        return whole  # without a cache each step repeats the whole text
    total = sum(step.shape[2] for step in steps)
    keys = max(step.shape[3] for step in steps) if across else total
    result = torch.zeros(*whole.shape[:2], total, keys)
    done = 0
    for step in steps:
        queries, held = step.shape[2:]
        end = held if across else done + queries
        if held > end:
            raise ValueError(
                f"expected {end} keys at most after {end} tokens, got {held}: a static cache, or another text, whose "
                "labels are keys=…"  # not shown
            )
        result[:, :, done : done + queries, end - held : end] = step
        done += queries
    return result


def thumbnails(weights: np.ndarray) -> np.ndarray:
    """Reduce weights, float32 [L,H,Q,K] -> [L,H,S,S']: the largest weight of each patch."""
    layers, heads, queries, keys = weights.shape
    size = thumbnail_size(layers, heads)
    return F.adaptive_max_pool2d(torch.from_numpy(weights), (min(queries, size), min(keys, size))).numpy()


def _is_tuple(some: Any) -> bool:
    return isinstance(some, tuple | list) and len(some) > 0
