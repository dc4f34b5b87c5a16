"""A text longer than the cache, read as a stream: only the first tokens ("sinks") and the last ones stay in the cache.

Before each call the keys and values in between are dropped, so that at most sinks + window positions are in memory
(StreamingLLM: Xiao et al. 2024, arXiv:2309.17453, whose evict_for_space does the same). Two caches of the same size are
compared: with the sinks, and with the last tokens alone.

Positions: if the model depends only on distances (rotary, ALiBi), a token's position is the one in the cache, as in
StreamingLLM: the sinks are run again just before the window, which has moved on. If positions are absolute, a key keeps
the one at which it was computed: a token's position is the one in the text, and after the last position, numbers begin
again behind the sinks. Sizes: T tokens of the text, s sinks, w window, Q tokens of a call, K positions in the cache, L
layers, H heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import CachedCall, Model
from model.blocks import KeysValues
from model.errors import NotSupported, index
from model.hardware import rounding
from model.inference.calls import SHIFT_ROUNDING, TRIED, check_predicts, continuation_ids, open_ended
from model.kv_cache import read_after
from model.mask_kinds import KINDS, LOCAL
from model.trace import target_losses

MAX_STREAMED = 4_096
MAX_CACHE_BYTES = 64 * 2**20  # of both caches together
BEYOND = N_(
    "expected at most {context:,} tokens: beyond its context this model rotates by other angles or by none, and keys "
    "in the cache would not fit"
)


@dataclass(frozen=True, eq=False)
class StreamedText:
    """The state of a stream.

    ids: of all T tokens. relative: whether the model depends only on distances between positions. done: tokens read.
    losses: float32 [2,T], nats, with sinks and without; NaN at the first token and where it has not been read.
    cache_bytes: of one cache after each call. kept: the tokens in the cache with sinks. weights: float32 [L·H,K+1], the
    newest token's attention with sinks; the last column is that to learned sinks (gpt-oss), so that rows sum to 1.
    hidden: how many of the first tokens in that cache the model's own masks hide from the newest token in every layer.
    caches: keys and values [2,Hkv,K,D] of each layer; empty at the end.
    """

    ids: tuple[int, ...] = field(repr=False)
    window: int
    sinks: int
    step: int
    relative: bool
    done: int
    losses: np.ndarray = field(repr=False)
    cache_bytes: list[int] = field(repr=False)
    kept: list[int] = field(repr=False)
    weights: np.ndarray = field(repr=False)
    hidden: int = field(repr=False)
    caches: list[KeysValues] = field(repr=False)

    @property
    def over(self) -> bool:
        """Whether the whole text has been read."""
        return self.done == len(self.ids)

    @property
    def learned(self) -> bool:
        """Whether the model has learned sinks."""
        return bool(self.weights.size and self.weights[:, -1].any())

    @property
    def means(self) -> np.ndarray:
        """The mean losses with sinks and without, float32 [2], of the tokens from position sinks + window on; NaN
        before one of them has been read."""
        past = self.losses[:, self.sinks + self.window : self.done]
        return past.mean(axis=1) if past.size else np.full(2, np.nan, np.float32)

    def numpy(self) -> np.ndarray:
        """Return the losses with sinks and without: float32 [2,T]."""
        return self.losses


def ids_of(model: Model, text: str, count: int, rendered: bool = False) -> tuple[int, ...]:
    """Return `count` ids of a text that may be longer than the model's context; a shorter text is repeated. rendered: a
    chat template wrote it."""
    batch = open_ended(model, text, rendered)
    ids, rest = batch.ids[0].tolist(), batch.cut[0]
    while len(ids) < count:
        more, rest = continuation_ids(model, rest or text, rendered)
        ids += more
    return tuple(ids[:count])


def has_chunks(model: Model) -> bool:
    """Whether the model's own mask has borders at fixed positions, which tokens cross as others leave the cache."""
    return any(name in LOCAL and KINDS[name].borders for name in model.describe().masks)


@torch.inference_mode()
def stream(
    model: Model,
    ids: Sequence[int],
    *,
    window: int = 60,
    sinks: int = 4,
    step: int = 8,
    so_far: StreamedText | None = None,
    seconds: float = float("inf"),
) -> StreamedText:
    """Read a text in calls of `step` tokens, for `seconds` but at least one call. so_far: the state to continue from.

    Raises ValueError for sizes that do not fit, for a model that predicts no next token, and what Model.call raises.
    """
    began, now = monotonic(), so_far
    if now is None:
        check_predicts(model)
        tokens = index("number of tokens", len(ids), MAX_STREAMED + 1, first=2)  # not shown
        sinks = index("number of sinks", sinks, model.context, first=0)  # not shown
        window = index("window", window, model.context - sinks + 1, first=1)
        step = index("number of tokens in a call", step, window + 1, first=1)  # not shown
        losses, weights = np.full((2, tokens), np.nan, np.float32), np.empty((0, 1), np.float32)
        relative = _relative(model, ids, min(model.context, tokens))
        if relative and not _relative_beyond(model, ids, tokens):
            raise ValueError(msg(BEYOND, context=model.context))
        now = StreamedText(tuple(ids), window, sinks, step, relative, 0, losses, [], [], weights, 0, [])
    while not now.over:
        now = _next_call(model, now)
        if monotonic() - began > seconds:
            break
    return now


def _relative(model: Model, ids: Sequence[int], tokens: int) -> bool:
    """Whether the same tokens give the same logits at the last of `tokens` positions as at the first."""
    count = min(TRIED, len(ids) - 1)
    here = torch.tensor([ids[:count]])
    first = read_after(model, here, torch.arange(count)[None])
    moved = read_after(model, here, torch.arange(tokens - count, tokens)[None])
    logits, others = model.readout(first.states), model.readout(moved.states)
    least = rounding(moved.states.dtype, SHIFT_ROUNDING) * float(logits.abs().max())
    return float((logits - others).abs().max()) <= least


def _relative_beyond(model: Model, ids: Sequence[int], tokens: int) -> bool:
    """Whether `_relative` also holds for positions beyond the context."""
    try:
        return _relative(model, ids, tokens)
    except NotSupported:  # its angles are a table that ends at the context
        return False


def _next_call(model: Model, now: StreamedText) -> StreamedText:
    """Read the next tokens, after dropping the tokens that they replace in the cache."""
    end = min(now.done + now.step, len(now.ids))
    here = list(range(now.done, end))
    kept, pairs = now.kept, now.caches
    if excess := max(len(kept) + len(here) - now.sinks - now.window, 0):
        pairs = [(_dropped(k, now.sinks, excess), _dropped(v, now.sinks, excess)) for k, v in pairs]
        kept = kept[: now.sinks] + kept[now.sinks + excess :]
        if now.relative and now.sinks:  # recompute their keys at the positions just before the window
            first = kept[now.sinks] if len(kept) > now.sinks else now.done
            sinks, positions = torch.tensor([now.ids[: now.sinks]]), torch.arange(first - now.sinks, first)[None]
            moved = model.keys_values(read_after(model, sinks, positions).cache)
            for (keys, _), (new, _) in zip(pairs, moved, strict=True):
                keys[0, :, : now.sinks] = new[0]
    ids = torch.tensor([now.ids[now.done : end]] * 2)
    positions = torch.tensor([here] * 2)
    if not now.relative:  # after the last position, restart behind the sinks
        again = now.sinks + (positions - now.sinks) % (model.context - now.sinks)
        positions = torch.where(positions < model.context, positions, again)
    done = read_after(model, ids, positions, pairs)
    pairs = model.keys_values(done.cache)
    size = sum(one[0].nbytes for pair in pairs for one in pair)
    if size > MAX_CACHE_BYTES // 2:
        most = MAX_CACHE_BYTES // 2 * len(kept + here) // size
        template = N_("expected at most {most:,} tokens in this model's cache: choose fewer sinks, or a smaller window")
        raise ValueError(msg(template, most=most))
    given = torch.tensor(now.ids[now.done + 1 : end + 1], dtype=torch.long)
    logits = model.readout(done.states)[:, : len(given)].float().cpu()
    losses = now.losses.copy()
    for row in range(2):
        losses[row, now.done + 1 : end + 1] = target_losses(logits[row], given).numpy()
    now = replace(now, done=end, losses=losses, cache_bytes=[*now.cache_bytes, size], kept=kept + here)
    seen = torch.stack([one.context.allowed_in_row(model.standard, 0)[-1] for one in done.records]).any(0)
    hidden = int(seen.int().argmax())  # the newest token attends at least to itself
    return replace(now, weights=_newest(model, done), hidden=hidden, caches=[] if now.over else pairs)


def _newest(model: Model, done: CachedCall) -> np.ndarray:
    """Return the last query's weights in the first row, and the rest that goes to learned sinks: float32 [L·H,K+1]."""
    last = slice(done.states.shape[1] - 1, None)
    weights = torch.cat([one.weights(model.standard, 0, last)[:, 0] for one in done.records])
    learned = any(one.terms.sinks is not None for one in done.records)
    rest = 1 - weights.sum(-1, keepdim=True) if learned else torch.zeros_like(weights[:, :1])
    return torch.cat([weights, rest], dim=1).cpu().numpy()


def _dropped(held: Tensor, sinks: int, excess: int) -> Tensor:
    """Drop keys or values from [2,H,K,D]: those after the sinks in the first row, the first ones in the other. Returns
    a copy, so that the dropped ones are freed."""
    return torch.stack([torch.cat([held[0, :, :sinks], held[0, :, sinks + excess :]], dim=1), held[1, :, excess:]])
