"""Attention of networks other than transformers': captured from a forward of any nn.Module, or from a cache made by
TransformerLens.

Sizes: L calls, H heads, Q queries, K keys, D head width.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.overrides import TorchFunctionMode

from mask_check.subject import eval_mode
from model.attention import ScoreTerms, attention_stages
from model.errors import index, items
from model.heads.survey import expect_weights
from model.mask_kinds import NEAR
from unmask.sources import GivenHeads

MAX_CALLS = 512
MAX_BYTES = 2**30  # most bytes of the weights and scores of all heads
ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")  # of F.scaled_dot_product_attention
PATTERN = re.compile(r"blocks\.(\d+)\.attn\.hook_pattern")
NEVER = -1e4  # an additive mask below it blocks
LOST = -1e15  # an additive mask below it swamps a score even in float64


@dataclass(frozen=True, eq=False, repr=False)
class CapturedHeads(GivenHeads):
    """Heads whose masks are known. closed: bool [L,H,Q,K], True = blocked."""

    closed: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0, 0), bool))

    def masks_of(self, layer: int, head: int) -> dict[str, np.ndarray]:
        """Name the masks. "causal": later tokens, if all are blocked; "padding": keys at an end that no query may
        attend to; "sliding": other blocked cells, if all of that distance or more are blocked; else they are
        "drawn"."""
        closed = self.closed[layer, head]
        later = np.triu(np.ones_like(closed), 1)
        causal = later if later.any() and closed[later].all() and not self.across else np.zeros_like(closed)
        unseen = closed.all(0)
        ends = np.logical_and.accumulate(unseen) | np.logical_and.accumulate(unseen[::-1])[::-1]
        padding = np.broadcast_to(ends, closed.shape)
        others = closed & ~causal & ~padding
        far = np.abs(np.subtract.outer(*map(np.arange, closed.shape)))
        far = far >= far[others].min(initial=far.size)
        rest = {"drawn": others} if self.across or (far & ~closed).any() else {NEAR: far}
        masks = {"causal": causal, "padding": padding} | rest
        return {name: mask for name, mask in masks.items() if mask.any()}


def capture(
    module: nn.Module, *inputs: Any, tokens: Sequence[str] | None = None, row: int = 0, **named: Any
) -> CapturedHeads:
    """Run one forward pass, module(*inputs, **named), and capture what each call of F.scaled_dot_product_attention
    computes: a layer for each call, in order; those inside nn.MultiheadAttention are among them.

    The module runs in eval mode and without gradients, and is left as it was. inputs: its arguments; a single list of
    ids is taken as one row, [1,T]. tokens: a label for each position, by default its number. row: the row of the batch.
    Calls of other shapes than the most common one are left out, as the title says. Of a call of three axes, [N,T,D], it
    is one row of N, as one head, even if the module means heads; with enable_gqa they are heads. Raises ValueError
    for anything but a module, if it makes no such call, and for more than 1 GB of weights.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"expected a torch.nn.Module, got {module!r:.80}")
    if len(inputs) == 1 and isinstance(inputs[0], list) and all(isinstance(number, Integral) for number in inputs[0]):
        inputs = (torch.tensor(inputs, dtype=torch.long),)
    calls, fast = _Calls(row), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # a fused kernel for a whole layer makes no such call
    try:
        with eval_mode(module), torch.no_grad(), calls:
            module(*inputs, **named)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    if not calls.found:
        raise ValueError(f"expected calls of scaled_dot_product_attention, {type(module).__name__} made none")
    shape = Counter(call["weights"].shape for call in calls.found).most_common(1)[0][0]
    numbers = [number for number, call in enumerate(calls.found) if call["weights"].shape == shape]
    some = [calls.found[number] for number in numbers]
    left_out = f", {len(some)} of {len(calls.found)} attention calls" if len(some) < len(calls.found) else ""
    rows = max(calls.rows[number] for number in numbers)
    one_head = f", row {row} of {rows} in calls of three axes" if shape[0] == 1 < rows else ""
    queries, keys = _labels(tokens, shape[1:])
    expect_weights([torch.from_numpy(call["weights"]) for call in some])
    return CapturedHeads(
        f"{type(module).__name__}{left_out}{one_head}",
        np.stack([call["weights"] for call in some]),
        queries,
        keys,
        across=shape[1] != shape[2],
        numbers=numbers if left_out else (),
        scores=np.stack([call["scores"] for call in some]),
        qkv=[{name: call[name] for name in "qkv"} for call in some],
        closed=np.stack([call["closed"] for call in some]),
    )


def from_transformer_lens(
    cache: Mapping[str, Any], tokens: Sequence[str] | None = None, *, row: int = 0
) -> CapturedHeads:
    """Return the attention in a TransformerLens ActivationCache, or any mapping of its names:
    blocks.N.attn.hook_pattern [B,H,Q,K] or [H,Q,K] of each layer; hook_q, hook_k, hook_v [B,T,H,D] and hook_attn_scores
    if present.

    Cells whose score is not finite or below -1e4 are blocked; without scores, later tokens if all their weights are 0.
    tokens: a label for each position, as model.to_str_tokens. Raises ValueError for a cache without patterns.
    """
    matches = [PATTERN.fullmatch(name) for name in getattr(cache, "keys", tuple)() if isinstance(name, str)]
    layers = sorted(int(match[1]) for match in matches if match)
    if not layers:
        raise ValueError("expected blocks.N.attn.hook_pattern of each layer in the cache, found none")

    def arrays(layer: int, names: Sequence[str]) -> dict[str, np.ndarray]:
        full = {name: f"blocks.{layer}.attn.hook_{name}" for name in names}
        return {name: _array(hook, cache[hook], row) for name, hook in full.items() if hook in cache}

    parts = [arrays(layer, ("pattern", "attn_scores")) for layer in layers]
    shapes = {part["pattern"].shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"expected one shape [H,Q,K] for the patterns of all layers, got {sorted(shapes)}")
    weights = np.stack([part["pattern"] for part in parts])
    expect_weights([torch.from_numpy(weights)])
    _expect_room(weights.size)
    scores = np.stack([part["attn_scores"] for part in parts]) if all("attn_scores" in part for part in parts) else None
    later = np.triu(np.ones(weights.shape[2:], bool), 1)
    if scores is not None:
        closed = ~np.isfinite(scores) | (scores < NEVER)
    else:
        closed = np.broadcast_to(later & (not weights[..., later].any()), weights.shape)
    qkv = [{name: array.swapaxes(0, 1) for name, array in arrays(layer, "qkv").items()} for layer in layers]
    queries, keys = _labels(tokens, weights.shape[2:])
    numbers = layers if layers != list(range(len(layers))) else ()
    about: dict[str, Any] = {"across": len(queries) != len(keys), "numbers": numbers, "scores": scores, "qkv": qkv}
    return CapturedHeads("TransformerLens", weights, queries, keys, closed=closed, **about)


class _Calls(TorchFunctionMode):
    """A mode that records what each call of F.scaled_dot_product_attention computes for a row. found: arrays by
    name. rows: of each call of three axes, else 1."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.found: list[dict[str, np.ndarray]] = []
        self.rows: list[int] = []
        self._row, self._cells = row, 0

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            self._note(*args, **kwargs)
        if function is F.multi_head_attention_forward:
            plain = F.scaled_dot_product_attention  # called inside, where this mode is off

            def noted(*args: Any, **kwargs: Any) -> Tensor:
                self._note(*args, **kwargs)
                return plain(*args, **kwargs)

            with patch.object(F, "scaled_dot_product_attention", noted):
                # With weights no such call is made, and attn_mask alone applies; without them is_causal overrides it
                causal = bool(kwargs.get("is_causal")) and not kwargs.get("need_weights", True)
                function(*args, **(kwargs | {"need_weights": False, "is_causal": causal}))
        return function(*args, **kwargs)

    def _note(self, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(ARGUMENTS, args, strict=False)) | kwargs
        if len(self.found) == MAX_CALLS:
            raise ValueError(f"expected at most {MAX_CALLS} attention calls, got more")
        own = 3 if given.get("enable_gqa") else 2  # axes that are not broadcast
        rows = torch.broadcast_shapes(*(given[name].shape[:-own] for name in ARGUMENTS[:3]))
        rows = rows or (1,) * (own - 2)  # [H,T,D] -> [1,H,T,D]
        given |= {name: given[name].expand(*rows, *given[name].shape[-own:]) for name in ARGUMENTS[:3]}
        self.rows.append(len(given["query"]) if given["query"].ndim == 3 else 1)
        q, k, v = (_select_row(given[name], self._row).float() for name in ARGUMENTS[:3])
        self._cells += len(q) * q.shape[1] * k.shape[1]
        _expect_room(self._cells)
        allowed, bias = _allowed(given, self._row)
        with torch.autocast("cpu", enabled=False):  # the module's own autocast would round these to bfloat16
            stages = attention_stages(q, k, v, allowed, scale=given.get("scale"), terms=ScoreTerms(bias=bias))
        arrays = {"weights": stages.weights, "scores": stages.scaled, "closed": ~allowed, "q": q, "k": k, "v": v}
        self.found.append({name: array.numpy() for name, array in arrays.items()})


def _allowed(given: dict[str, Any], row: int) -> tuple[Tensor, Tensor | None]:
    """Return which cells [H,Q,K] are allowed, and what is added to their scores."""
    full, mask = (*given["query"].shape[:-1], given["key"].shape[-2]), given.get("attn_mask")
    open_cells = torch.ones(full[-2:], dtype=torch.bool)
    allowed = _select_row((open_cells.tril() if given.get("is_causal") else open_cells).expand(full), row)
    if mask is None:
        return allowed, None
    if isinstance(mask, CausalBias):  # which holds no numbers
        mask = open_cells.tril(full[-1] - full[-2] if mask.variant == CausalVariant.LOWER_RIGHT else 0)
    mask = _select_row(mask.expand(full), row)
    if mask.dtype == torch.bool:
        return allowed & mask, None
    seen = allowed & (mask > NEVER)
    none = ~seen.any(-1, keepdim=True)  # a query whose every key has -1e9 or so attends to them all
    largest = mask.masked_fill(~allowed, -math.inf).amax(-1, keepdim=True)
    allowed = seen | (none & allowed & (mask > -math.inf) & (mask - largest > NEVER))
    if mask.dtype == torch.float64:  # scores are not lost beside -1e9 in it, but beside -1e300
        mask = mask - largest.masked_fill(~none | (largest < LOST), 0)
        mask = mask.clamp(min=torch.finfo(torch.float32).min)
    bias = mask.float().masked_fill(~allowed, 0)
    return allowed, bias if bias.any() else None


def _select_row(tensor: Tensor, row: int) -> Tensor:
    """Select a row, on the CPU: [B,H,Q,D] -> [H,Q,D]; [B,Q,D], of one head, and [Q,D] -> [1,Q,D]."""
    tensor = tensor.detach().cpu()
    if tensor.ndim == 2:
        return tensor[None]
    rows = tensor.flatten(0, -4) if tensor.ndim > 4 else tensor
    selected = rows[index("row", row, len(rows))]
    return selected if selected.ndim == 3 else selected[None]


def _array(name: str, values: Any, row: int) -> np.ndarray:
    """Return one row of a tensor [B,..] of four axes, or the whole of one of three, as float32."""
    if getattr(values, "ndim", None) not in (3, 4):
        got = list(values.shape) if hasattr(values, "ndim") else type(values).__name__
        raise ValueError(f"expected {name} of three axes, or four with rows, got {got}")
    tensor = torch.as_tensor(values).detach().float().cpu()
    return (tensor[index("row", row, len(tensor))] if tensor.ndim == 4 else tensor).numpy()


def _expect_room(cells: int) -> None:
    if 4 * 3 * cells > MAX_BYTES:  # three arrays
        raise ValueError(
            f"expected at most {MAX_BYTES / 1e9:.1f} GB of weights and scores, got more: take a shorter text"
        )


def _labels(tokens: Sequence[str] | None, sizes: Sequence[int]) -> list[list[str]]:
    """Return the labels of each axis, given its size."""
    if not min(sizes):
        raise ValueError("expected one token or more, got none")
    labels = None if tokens is None else list(map(str, items("tokens as a list of labels", tokens)))
    for size in sizes:
        if labels is not None and len(labels) != size:
            raise ValueError(f"expected {size} labels, got {len(labels)}")
    return [labels or list(map(str, range(size))) for size in sizes]
