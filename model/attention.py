"""The attention core: `attend` computes every model's attention, `attention_stages` its single steps for display.

Shapes: B batch rows, H heads, Q query positions, K key positions, D head width.
A mask (`allowed`) is boolean and True means "may attend".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ScoreTerms:
    """The terms that some architectures add between the scaled scores and the softmax. All off by default. softcap:
    scores become softcap·tanh(scores / softcap) (Gemma 2, arXiv:2408.00118). bias: [.., H, Q, K] added to the scores
    (T5's relative positions, arXiv:1910.10683). sinks: one extra score per row, in the softmax's denominator only: rows
    then sum to less than 1. [H] the same for all queries (gpt-oss), or [.., H, Q, 1]."""

    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None


NO_TERMS = ScoreTerms()
BLOCK = 256  # queries per block of a long text


@dataclass(frozen=True)
class AttentionStages:
    """The intermediate results of one attention. All are [.., H, Q, K] except output, which is [.., H, Q, D]."""

    raw: Tensor  # q·k
    scaled: Tensor  # raw·scale, then the architecture's own soft-cap and position bias
    masked: Tensor  # scaled, with `fill` (-inf) in blocked cells
    weights: Tensor  # softmax(masked) over keys; a row with no allowed key is all 0
    output: Tensor  # weights @ v


def attention_stages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    *,
    scale: float | None = None,
    fill: float = float("-inf"),
    terms: ScoreTerms = NO_TERMS,
) -> AttentionStages:
    """Compute scaled dot-product attention step by step (Vaswani et al. 2017, eq. 1).

    q [.., H, Q, D]; k and v [.., H, K, D], or with fewer heads that divide H (grouped-query attention).
    allowed: bool, broadcastable to [.., H, Q, K], True = may attend; None allows everything.
    scale: 1/sqrt(D) unless given. fill: the value written into blocked cells; with -inf their weight is exactly 0.
    Raises ValueError when the mask is not boolean or the shapes do not fit.
    """
    _check(q, k, v, allowed)
    k, v = _share_heads(q, k), _share_heads(q, v)
    raw = q @ k.transpose(-2, -1)  # [.., H, Q, D] @ [.., H, D, K] -> [.., H, Q, K]
    scaled = raw * _scale(q, scale)
    if terms.softcap is not None:
        scaled = terms.softcap * torch.tanh(scaled / terms.softcap)
    if terms.bias is not None:
        scaled = scaled + terms.bias
    masked = scaled if allowed is None else scaled.masked_fill(~allowed, fill)
    weights = _softmax(masked, allowed, terms)
    return AttentionStages(raw, scaled, masked, weights, weights @ v)


def attention_weights(
    q: Tensor, k: Tensor, allowed: Tensor | None, *, scale: float | None = None, terms: ScoreTerms = NO_TERMS
) -> Tensor:
    """Return the weights of `attention_stages` [.., H, Q, K], bitwise equal, in one tensor: to survey many heads."""
    _check(q, k, k, allowed)
    scores = attention_scores(q, k, scale=scale, terms=terms)
    if allowed is not None:
        scores.masked_fill_(~allowed, float("-inf"))
    return _softmax(scores, allowed, terms)


def attention_scores(q: Tensor, k: Tensor, *, scale: float | None = None, terms: ScoreTerms = NO_TERMS) -> Tensor:
    """Return the scaled scores of `attention_stages` [.., H, Q, K], in a tensor that may be modified in place."""
    scores = q @ _share_heads(q, k).transpose(-2, -1)  # [.., H, Q, D] @ [.., H, D, K] -> [.., H, Q, K]
    factor = _scale(q, scale)
    if factor != 1:
        scores.mul_(factor)
    if terms.softcap is not None:
        scores = terms.softcap * torch.tanh(scores / terms.softcap)
    return scores if terms.bias is None else scores + terms.bias


def attend(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, *, scale: float | None = None, terms: ScoreTerms = NO_TERMS
) -> Tensor:
    """Return the output of `attention_stages` [.., H, Q, D], by PyTorch's fused kernels where they support terms."""
    if terms.softcap is not None or terms.sinks is not None:  # no fused kernel supports these
        return attention_stages(q, k, v, allowed, scale=scale, terms=terms).output
    _check(q, k, v, allowed)
    grouped = k.shape[-3] != q.shape[-3]
    if terms.bias is None and _is_lower_triangle(allowed, q.shape[-2], k.shape[-2]):
        # with is_causal the kernel skips the blocked half instead of reading a mask
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
    mask = allowed
    if terms.bias is not None:
        bias = terms.bias.to(q.dtype)
        mask = bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped)
    # only a boolean mask on the CPU is sure to give 0 in a row without an allowed key
    if allowed is not None and (terms.bias is not None or q.device.type != "cpu"):
        output = output.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
    return output


def attend_in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Callable[[slice], Tensor | None] | None,
    *,
    scale: float | None = None,
    terms: ScoreTerms = NO_TERMS,
) -> Tensor:
    """Return the output of `attend`, computed in blocks of queries so that no tensor has Q·K elements: for long texts.
    allowed: returns the mask of the given queries; None: the causal mask alone, with as many queries as keys."""
    if allowed is None and terms is NO_TERMS:
        grouped = k.shape[-3] != q.shape[-3]
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
    position = torch.arange(k.shape[-2], device=q.device)
    parts = []
    for begin in range(0, q.shape[-2], BLOCK):
        some = slice(begin, min(begin + BLOCK, q.shape[-2]))
        mask = position[None] <= position[some, None] if allowed is None else allowed(some)
        bias = None if terms.bias is None else terms.bias[..., some, :] if terms.bias.shape[-2] > 1 else terms.bias
        sinks = terms.sinks[..., some, :] if terms.sinks is not None and terms.sinks.ndim > 1 else terms.sinks
        own = replace(terms, bias=bias, sinks=sinks)
        parts.append(attend(q[..., some, :], k, v, mask, scale=scale, terms=own))
    return torch.cat(parts, dim=-2)


def _softmax(masked: Tensor, allowed: Tensor | None, terms: ScoreTerms) -> Tensor:
    if terms.sinks is not None:
        sinks = terms.sinks.view(-1, 1, 1) if terms.sinks.ndim == 1 else terms.sinks
        sink = sinks.to(masked.dtype).expand(*masked.shape[:-1], 1)  # [H,1,1] -> [.., H, Q, 1]
        masked = torch.cat([masked, sink], dim=-1)
    weights = masked.softmax(dim=-1)
    if terms.bias is not None or (allowed is not None and not allowed.any(-1).all()):
        empty = masked.amax(dim=-1, keepdim=True) == float("-inf")  # softmax of a row of -inf is NaN
        weights = weights.masked_fill(empty, 0.0)
    return weights if terms.sinks is None else weights[..., :-1]


def _scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _share_heads(q: Tensor, k: Tensor) -> Tensor:
    """Repeat each key-value head for the query heads that share it: [.., Hkv, K, D] -> [.., H, K, D]."""
    groups = q.shape[-3] // k.shape[-3]
    return k if groups == 1 else k.repeat_interleave(groups, dim=-3)


def _is_lower_triangle(allowed: Tensor | None, queries: int, keys: int) -> bool:
    if torch.compiler.is_compiling():  # a compiled graph cannot branch on a tensor's values
        return False
    if allowed is None or queries != keys or allowed.shape[-2:] != (queries, keys) or allowed.numel() != queries * keys:
        return False
    triangle = torch.ones(queries, keys, dtype=torch.bool, device=allowed.device).tril_()
    return torch.equal(allowed.reshape(queries, keys), triangle)


def _check(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> None:
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            "expected q [.., H, Q, D], k [.., H, K, D] and v [.., H, K, D], "
            f"got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )
    if q.shape[-3] % k.shape[-3] or k.shape[-3] != v.shape[-3]:
        raise ValueError(
            f"expected a number of key-value heads that divides {q.shape[-3]} query heads, "
            f"got {k.shape[-3]} key and {v.shape[-3]} value heads"
        )
    if allowed is None:
        return
    if allowed.dtype != torch.bool:
        raise ValueError(f"expected a boolean mask (True = may attend), got {allowed.dtype}")
    scores = (*q.shape[:-1], k.shape[-2])
    try:
        fits = np.broadcast_shapes(allowed.shape, scores) == scores  # torch's broadcast_shapes takes a second to import
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"expected a mask that broadcasts to {list(scores)}, got {list(allowed.shape)}")


class MultiHeadAttention(nn.Module):
    """Self- or cross-attention: project to heads, `attend`, project back. Width must be a multiple of heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"expected a width that is a multiple of the heads, got width {width} and {heads} heads")
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project to heads: [B,Q,W], [B,K,W], [B,K,W] -> q [B,H,Q,D], k [B,H,K,D], v [B,H,K,D]."""
        return self.split(self.query(queries)), self.split(self.key(keys)), self.split(self.value(values))

    def merge(self, heads_output: Tensor) -> Tensor:
        """Concatenate the heads' outputs and apply the output projection: [B,H,Q,D] -> [B,Q,W]."""
        output: Tensor = self.output(heads_output.transpose(1, 2).flatten(2))
        return output

    def forward(
        self,
        x: Tensor,
        allowed: Tensor | None,
        source: Tensor | None = None,
        past: tuple[Tensor, Tensor] | None = None,
        edit: Callable[[tuple[Tensor, Tensor, Tensor], Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Attend from x [B,Q,W] to itself, or to source [B,K,W]. Return the output [B,Q,W] and (q, k, v) for the trace.

        past: k and v [B,H,P,D] of the positions before x (a key-value cache); they come first in the returned k and v.
        edit: maps (q, k, v) and the heads' outputs [B,H,Q,D] to the outputs that are projected instead.
        """
        keys = x if source is None else source
        q, k, v = self.project(x, keys, keys)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)  # [B,H,P+Q,D]
        output = attend(q, k, v, allowed)
        return self.merge(output if edit is None else edit((q, k, v), output)), (q, k, v)

    def split(self, x: Tensor) -> Tensor:
        """Split into heads: [B,T,W] -> [B,H,T,D]."""
        by_head: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return by_head


class MaskedSelfAttention(MultiHeadAttention):
    """Multi-head attention that also returns its weights: (values [N,K,W], keys [N,K,W], query [N,Q,W], mask) -> (out
    [N,Q,W], attention [N,H,Q,K]). mask: bool or 0/1, broadcastable to [N,H,Q,K], 0 = blocked; None blocks nothing."""

    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__(embed_size, heads)

    def forward(  # type: ignore[override]  # a common teaching signature, not the base's: (values, keys, query, mask)
        self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(query, keys, values)
        stages = attention_stages(q, k, v, None if mask is None else mask != 0)
        return self.merge(stages.output), stages.weights
