"""The key-value cache: the keys and values of earlier positions, steps that compute the newest position alone, and
their cost, with a cache and without: multiply-adds from the shapes, and measured seconds.

A step makes a new trace that is longer by one position; the model stores nothing. For our own Transformer alone.
Sizes: L layers, H heads, K positions, D head width, W width, V vocabulary; one text, so B is 1.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from statistics import median

import torch
from torch import Tensor

from i18n import msg
from model.base import CachedCall, Model
from model.blocks import Heads, KeysValues, positions_of
from model.decoder import DecoderModel
from model.masks import MaskContext, MaskSpec
from model.text import TokenBatch, labelled_batch
from model.trace import LayerRecord, Trace
from model.transformer import Transformer, TransformerConfig

MAX_IN_FLOAT64 = 20_000_000  # parameters


@dataclass(frozen=True, eq=False)
class CacheComparison:
    """Cached steps compared with one full run of the same text, T positions, the last N of which were cached steps.
    logits, probabilities [N]: the largest difference at each cached position. rows [N,L,H]: that in each head's row.
    size: the largest logit there in the full run. guesses: the most likely next token, cached and by the full run.
    cached, full [L,H,T]: the newest row by the cached step and by the full run. allowed: bool [1,T], the last step's
    mask, and square: bool [T,T], the full run's; both of layer 0. cache_bytes: of the cache before the last step."""

    logits: Tensor
    probabilities: Tensor
    rows: Tensor
    size: float
    guesses: tuple[int, int]
    cached: Tensor
    full: Tensor
    allowed: Tensor
    square: Tensor
    cache_bytes: int


def network_of(model: Model) -> Transformer | None:
    """Return the model's network if it is our own Transformer, which alone can take cached steps here; else None."""
    return model.network if isinstance(model, DecoderModel) else None


def batch_of(model: Model, *rows: Sequence[int], pad_side: str = "right") -> TokenBatch:
    """Return rows of ids as a batch, padded on one side to the longest."""
    return labelled_batch(rows, model.label, 0, pad_side)


def cache_of(trace: Trace, length: int | None = None) -> list[KeysValues]:
    """Return the keys and values [1,H,K,D] of each layer for a run's first `length` positions, all unless given."""
    some = slice(0, length)
    return [(layer.k[:, :, some], layer.v[:, :, some]) for layer in trace.layers]


def read_after(
    model: Model, ids: Tensor, positions: Tensor, pairs: Sequence[KeysValues] = (), spec: MaskSpec | None = None
) -> CachedCall:
    """Run tokens [B,Q] at positions [B,Q] after those with the given keys and values. Raises as Model.call."""
    rows, before = len(ids), pairs[0][0].shape[2] if pairs else 0
    whole = torch.cat([ids.new_zeros(rows, before), ids], dim=1)
    batch = TokenBatch(whole, torch.ones_like(whole, dtype=torch.bool), ((),) * rows)
    return model.call(batch, positions, spec or model.standard, model.cache_of(list(pairs)) if pairs else None)


@torch.inference_mode()
def step(model: Model, cache: list[KeysValues], token: int, spec: MaskSpec | None = None) -> tuple[Tensor, list[Heads]]:
    """Compute the position after the cache's alone: one query attends to the cached keys and to its own. Returns its
    states [1,1,W], and for each layer q [1,H,1,D], and k, v [1,H,K,D] with those of the cache. spec: the model's
    standard masks unless given. Raises ValueError for a model without our Transformer, a full context or an id outside
    the vocabulary."""
    if network_of(model) is None:
        raise ValueError(f"expected a model that runs on Unmask's Transformer, got {model.name}")
    done = read_after(model, torch.tensor([[token]]), torch.tensor([[cache[0][0].shape[2]]]), cache, spec)
    return done.states, [(record.q, record.k, record.v) for record in done.records]


def with_next_token(model: Model, trace: Trace, token: int) -> Trace:
    """Return the trace with one more position, by a cached step: existing rows stay, one row is computed."""
    batch = batch_of(model, (*trace.batch.ids[0].tolist(), token))
    states, heads = step(model, cache_of(trace), token, trace.spec)
    layers = tuple(
        LayerRecord(torch.cat([old.q, q], dim=2), k, v, _context(old, batch))
        for old, (q, k, v) in zip(trace.layers, heads, strict=True)
    )
    return replace(trace, batch=batch, layers=layers, states=torch.cat([trace.states, states], dim=1))


def cut(model: Model, trace: Trace, length: int) -> Trace:
    """Return the trace of the first `length` positions. Correct only if later positions change nothing before them."""
    batch, some = batch_of(model, tuple(trace.batch.ids[0, :length].tolist())), slice(0, length)
    layers = tuple(
        LayerRecord(old.q[:, :, some], old.k[:, :, some], old.v[:, :, some], _context(old, batch))
        for old in trace.layers
    )
    return replace(trace, batch=batch, layers=layers, states=trace.states[:, some])


def common_prefix_length(trace: Trace, ids: tuple[int, ...]) -> int:
    """Return the length in tokens of the common beginning of the trace's text and ids."""
    pairs = zip(trace.batch.ids[0].tolist(), ids, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(trace.batch.ids.shape[1], len(ids)))


def trace_by_cached_steps(model: Model, trace: Trace, ids: tuple[int, ...]) -> Trace:
    """Derive the trace of ids from that of another text: their common beginning is kept, the rest are cached steps.
    Raises ValueError if they begin differently."""
    same = common_prefix_length(trace, ids)
    if same == 0:
        raise ValueError("expected texts that begin with the same token")
    if same < trace.batch.ids.shape[1]:
        trace = cut(model, trace, same)
    for token in ids[same:]:
        trace = with_next_token(model, trace, token)
    return trace


def generated_trace(model: Model, ids: tuple[int, ...], old: Trace | None, prompt: int) -> Trace:
    """Return the trace of a text under the standard masks: one cached step after the old one if that is enough, else
    after a full run. prompt: how many of the ids were not generated one by one."""
    if old is None or common_prefix_length(old, ids) < max(len(ids) - 1, 1):
        old = model.run(batch_of(model, ids[: max(len(ids) - 1, prompt)]), model.standard)
    return trace_by_cached_steps(model, old, ids)


@torch.inference_mode()
def compare(model: Model, ids: tuple[int, ...], start: int, spec: MaskSpec | None = None) -> CacheComparison:
    """Compare a full run of ids[:start], then a cached step for each id after it, with a full run of all ids. Raises
    ValueError unless 0 < start < T, and as step."""
    if not 0 < start < len(ids):
        raise ValueError(f"expected a start from 1 to {len(ids) - 1}, got {start}")
    full, trace = (model.run(batch_of(model, some), spec) for some in (ids, ids[:start]))
    logits, probabilities, rows, size = [], [], [], 0.0
    for position in range(start, len(ids)):
        before = sum(tensor.nbytes for pair in cache_of(trace) for tensor in pair)
        trace = with_next_token(model, trace, ids[position])
        cached, whole = _row(trace, position), _row(full, position)
        rows.append((cached - whole[..., : position + 1]).abs().amax(-1))
        ours, theirs = (model.readout(one.states[0, position]).cpu().double() for one in (trace, full))
        size = max(size, float(theirs.abs().max()))
        logits.append((ours - theirs).abs().max())
        probabilities.append((ours.softmax(-1) - theirs.softmax(-1)).abs().max())
    return CacheComparison(
        logits=torch.stack(logits),
        probabilities=torch.stack(probabilities),
        rows=torch.stack(rows),
        size=size,
        guesses=(int(ours.argmax()), int(theirs.argmax())),
        cached=cached,
        full=whole,
        allowed=trace.allowed(0)[-1:],
        square=full.allowed(0),
        cache_bytes=before,
    )


def fits_float64(model: Model) -> bool:
    return network_of(model) is not None and model.parameters <= MAX_IN_FLOAT64


def compare_in_float64(model: Model, ids: tuple[int, ...], start: int) -> CacheComparison:
    """Run `compare` under the standard masks with a copy of the model in float64, to tell rounding from error."""
    if not isinstance(model, DecoderModel):
        raise ValueError(f"expected a model that runs on Unmask's Transformer, got {model.name}")
    network = deepcopy(model.network).cpu().double()  # some devices have no float64
    return compare(DecoderModel(model.name, network, model.tokenizer), ids, start)


def _context(old: LayerRecord, batch: TokenBatch) -> MaskContext:
    """Return the layer's mask context for a text of another length."""
    keep = batch.keep.to(old.context.keep.device)
    return replace(old.context, keep=keep, queries=batch.ids.shape[1], split=batch.split)


def _row(trace: Trace, position: int) -> Tensor:
    """Return one row of every head: [L,H,T]."""
    some = slice(position, position + 1)
    return torch.stack([layer.weights(trace.spec, 0, some)[:, 0].cpu() for layer in trace.layers])


# The cost of a step


@dataclass(frozen=True, eq=False)
class OldRows:
    """The largest differences in the T-1 old rows of a text between a run without its newest token and one with it.
    rows [T-1]: in any head's weights of that row, including the newest token's column. weights [L]: the same by layer.
    cache [L]: in the keys and values, which a cache holds. logits [T-1]: at each old position."""

    rows: Tensor
    weights: Tensor
    cache: Tensor
    logits: Tensor


@torch.inference_mode()
def old_rows(model: Model, ids: tuple[int, ...], spec: MaskSpec) -> OldRows:
    """Run ids without and with the last one, and compare. Raises ValueError for fewer than two."""
    if len(ids) < 2:
        raise ValueError(msg("expected at least 2 tokens, got {count}", count=len(ids)))
    old = slice(0, len(ids) - 1)
    before, after = model.run(batch_of(model, ids[:-1]), spec), model.run(batch_of(model, ids), spec)
    rows, cache = [], []
    for one, other in zip(before.layers, after.layers, strict=True):
        now = other.weights(spec, 0, old)  # [H,T-1,T]
        then = torch.nn.functional.pad(one.weights(spec, 0, old), (0, 1))
        rows.append((now - then).abs().amax((0, 2)).cpu())
        changes = other.k[:, :, old] - one.k, other.v[:, :, old] - one.v
        cache.append(max(float(change.float().abs().max()) for change in changes))
    by_layer = torch.stack(rows)  # [L,T-1]
    logits = model.readout(after.states[0, old]) - model.readout(before.states[0])
    return OldRows(by_layer.amax(0), by_layer.amax(1), torch.tensor(cache), logits.float().abs().amax(-1).cpu())


MAX_MEASURED = 12  # steps timed per text
ROUNDS = 7


@dataclass(frozen=True)
class StepTiming:
    """The seconds of the step that reads `length` tokens and predicts the next, done once in full and once cached."""

    length: int
    full: float
    cached: float


@dataclass(frozen=True)
class Cost:
    """The cost of one step over several tries, in seconds. full, cached: the fastest, which is the step itself, since
    other load can only add to it; usual: the median of those in full, which shows what load usually added."""

    length: int
    full: float
    cached: float
    usual: float


def multiply_adds(config: TransformerConfig, queries: int, keys: int) -> int:
    """Count the multiply-adds of one run that computes `queries` positions over `keys` positions, and the last one's
    logits: in each layer the projections to q, k, v and back, 4·Q·W², the two products of attention, 2·Q·K·W, including
    blocked cells, and the two of the MLP, 2·Q·W·M; at the end W·V."""
    width, mlp_width = config.width, config.mlp_width or 4 * config.width
    layer = 4 * queries * width**2 + 2 * queries * keys * width + 2 * queries * width * mlp_width
    return config.layers * layer + width * config.vocabulary


def plan(tokens: int) -> list[int]:
    """Return the lengths to time, from 2 to all of a text's tokens: at most MAX_MEASURED, evenly spread, both ends
    included; the list is repeated ROUNDS times, so that temporary load slows all lengths equally."""
    count = max(min(MAX_MEASURED, tokens - 1), 0)
    return sorted({2 + round(index * (tokens - 2) / max(count - 1, 1)) for index in range(count)}) * ROUNDS


def measure(model: Model, whole: Trace, length: int) -> StepTiming:
    """Time the step that reads the first `length` tokens of a text. whole: a run of all of them under the standard
    masks. Raises ValueError for a model without our Transformer."""
    network = network_of(model)
    if network is None:
        raise ValueError(f"expected a model that runs on Unmask's Transformer, got {model.name}")  # not shown
    ids = tuple(whole.batch.ids[0, :length].tolist())
    batch, cache = batch_of(model, ids), cache_of(whole, length - 1)
    triangle = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    inputs = [one.to(whole.states.device) for one in (batch.ids, positions_of(batch.keep), triangle)]

    def full() -> None:
        states, _ = network(*inputs)
        network.logits(states[0, -1]).cpu()  # waits for a GPU to finish

    def one() -> None:
        network.logits(step(model, cache, ids[-1])[0][0, 0]).cpu()

    return StepTiming(length, _seconds(full), _seconds(one))


def costs(tries: Iterable[StepTiming]) -> list[Cost]:
    """Return a cost for each length, the shortest first."""
    found, by_length = [], attrgetter("length")
    for length, group in groupby(sorted(tries, key=by_length), by_length):
        full, cached = zip(*((one.full, one.cached) for one in group), strict=True)
        found.append(Cost(length, min(full), min(cached), median(full)))
    return found


def times_match_counts(found: list[Cost]) -> bool:
    """Whether the measured times agree with the counts: the fastest full step of the longest text is slower than the
    median one of the shortest, and than any cached one."""
    return len(found) > 1 and found[-1].full > max(found[0].usual, *(one.cached for one in found))


@torch.inference_mode()
def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
