"""Held-out modules, not used to develop the checks and their samples: decoders as others write them, with a fault each.

Every class takes the name of its fault, "" for the correct module. HELD_OUT lists the check that has to find each.
Sizes: B rows, T tokens, H heads, D head width, W width. Masks: True = may attend.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS, CONTEXT = 37, 24, 2, 136


@dataclass(frozen=True)
class HeldOut:
    """A faulty module. law: the check that has to find it. also: what else its mistake breaks. options: of check()."""

    fault: str
    law: str
    make: Callable[[str], nn.Module]
    also: tuple[str, ...] = ()
    options: dict[str, Any] | None = None


def vivid(module: nn.Module, seed: int = 11) -> nn.Module:
    """Return the module with weights so large that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.35, generator=generator)
    return module


def heads(x: Tensor) -> Tensor:
    """Split [B,T,W] into heads [B,H,T,D]."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Return attention's output [B,T,W] for [B,H,T,D]; a row without an allowed key gives 0."""
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~allowed, float("-inf"))
    return (scores.softmax(-1).nan_to_num(0.0) @ v).transpose(1, 2).flatten(2)


# ---- nanoGPT's kind: forward(idx, targets=None) ----------------------------------------------------------------------


class NanoAttention(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        bias = torch.tril(torch.ones(CONTEXT, CONTEXT), diagonal=1 if fault == "diagonal" else 0)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)
        if self.fault == "view":  # no transpose: heads and positions are mixed
            q, k, v = (one.reshape(rows, HEADS, length, -1) for one in (q, k, v))
        else:
            q, k, v = map(heads, (q, k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        allowed = self.bias[:length, :length] == 1
        if self.fault == "denominator":
            weights = scores.softmax(-1) * allowed
        elif self.fault in ("top k of all", "top k"):
            ranked = scores if self.fault == "top k of all" else scores.masked_fill(~allowed, float("-inf"))
            chosen = ranked >= ranked.topk(min(5, length), -1).values[..., -1:]
            weights = scores.masked_fill(~(allowed & chosen), float("-inf")).softmax(-1).nan_to_num(0.0)
        else:
            weights = scores.masked_fill(~self.longer(allowed), float("-inf")).softmax(-1)
        found = (weights @ v).transpose(1, 2).contiguous()
        return self.c_proj(found.view(rows, length, WIDTH))

    def longer(self, allowed: Tensor) -> Tensor:
        """Return a mask with a fault that appears only in rows longer than a tile of 32 tokens."""
        row = torch.arange(len(allowed))
        tile = row[:, None] // 32 == row // 32
        if self.fault == "tiles":  # the first tile on the diagonal is masked, the others are not
            return allowed | (tile & (row[:, None] >= 32))
        if self.fault == "last tile":  # a tile that is not full is not masked
            return allowed | (tile & (row[:, None] >= len(allowed) // 32 * 32)) if len(allowed) > 32 else allowed
        if self.fault == "far":  # keys 96 or more back are dropped
            return allowed & (row[:, None] - row < 96)
        return allowed


class Nano(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.config = fault, SimpleNamespace(block_size=CONTEXT, vocab_size=VOCABULARY, n_layer=2)
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(NanoAttention(fault) for _ in range(2))
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1 if fault == "conv" else 0)
        self.up, self.route = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        vivid(self)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        length = idx.shape[1]
        assert length <= CONTEXT, f"Cannot forward sequence of length {length}, block size is only {CONTEXT}"
        x = self.wte(idx) + self.wpe(torch.arange(length))
        for attention in self.h:
            x = x + attention(F.layer_norm(x, (WIDTH,)))
        x = x + self.mix(x)
        if self.fault == "norm over time":
            x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        if targets is None:
            return self.lm_head(self.ln_f(x[:, [-1], :])), None
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    def mix(self, x: Tensor) -> Tensor:
        """Return a convolution over three tokens plus the output of an expert to which some tokens are routed."""
        across = x.transpose(1, 2)
        mixed = self.conv(across if self.fault == "conv" else F.pad(across, (2, 0))).transpose(1, 2)
        score = self.route(x).squeeze(-1)
        chosen = score > 0
        if self.fault == "expert choice":  # the expert selects the best tokens of the whole row
            chosen = score >= score.topk(max(x.shape[1] // 4, 1), -1).values[:, -1:]
        found = mixed + (chosen * score.sigmoid())[..., None] * self.up(x)
        return found + x.mean(1, keepdim=True) if self.fault == "mean" else found


# ---- GPT-2's kind: masks, positions, a cache -------------------------------------------------------------------------


class Cache:
    """Keys and values of each layer. seen: number of tokens read."""

    def __init__(self, fault: str) -> None:
        self.fault, self.seen = fault, 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def crop(self, length: int) -> None:
        self.keys, self.values = ([one[:, :, :length] for one in some] for some in (self.keys, self.values))
        self.seen = self.seen if self.fault == "crop" else length

    def reorder_cache(self, rows: Tensor) -> None:
        for layer in range(1 if self.fault == "beams" else len(self.keys)):
            self.keys[layer], self.values[layer] = self.keys[layer][rows], self.values[layer][rows]

    def add(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if layer == len(self.keys):
            self.keys, self.values = [*self.keys, k], [*self.values, v]
        elif self.fault == "newest first":
            self.keys[layer] = torch.cat([k, self.keys[layer]], 2)
            self.values[layer] = torch.cat([v, self.values[layer]], 2)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], 2)
            self.values[layer] = torch.cat([self.values[layer], v], 2)
        return self.keys[layer], self.values[layer]


class Layer(nn.Module):
    """Attention, with a sliding window if one is given, and a feed-forward network."""

    def __init__(self, fault: str, window: int | None) -> None:
        super().__init__()
        self.fault, self.window = fault, window
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        if fault == "spare":
            self.q_norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, allowed: Tensor | None = None, cache: Cache | None = None, layer: int = 0) -> Tensor:
        y = self.norm1(x)
        q, k, v = heads(self.q(y)), heads(self.k(y)), heads(self.v(y))
        v = v.detach() if self.fault == "detach" else v
        if cache is not None:
            k, v = cache.add(layer, k, v)
        queries, keys = q.shape[2], k.shape[2]
        far = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        if allowed is None:
            allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool)
        if self.window is not None:
            more = {"wide": 1, "one wide": 1, "narrow": -1}.get(self.fault, 0)
            allowed = allowed & (far < self.window + more)
        if self.fault == "empty slots" and cache is not None:  # a buffer of 40 keys, zeros after those in use
            k, v = (F.pad(one, (0, 0, 0, 40 - keys)) for one in (k, v))
            allowed = F.pad(allowed, (0, 40 - keys), value=True)
        attend = ScaledSoftmax.apply if self.fault == "backward" else torch.softmax
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~allowed, torch.finfo(q.dtype).min)
        x = x + self.o((attend(scores, -1) @ v).transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


class ScaledSoftmax(torch.autograd.Function):
    """A softmax whose backward pass omits the sum over a row."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, axis: int) -> Tensor:
        weights = scores.softmax(axis)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return weights * gradients[0], None


class Served(nn.Module):
    """A decoder with what serving needs: padding, positions, a cache, an explicit mask, the last logits only."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, windows = fault, WINDOWS.get(fault, (None, None))
        self.config = SimpleNamespace(
            vocab_size=VOCABULARY, num_hidden_layers=2, max_position_embeddings=CONTEXT, pad_token_id=0,
            sliding_window=max([one for one in windows if one], default=None),
            layer_types=["sliding_attention" if one else "full_attention" for one in windows],
        )  # fmt: skip
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer(fault, window) for window in windows)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.use_checkpoint = False
        vivid(self)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
    ) -> SimpleNamespace:
        rows, length = input_ids.shape
        cache = past_key_values or (Cache(self.fault) if use_cache else None)
        past = cache.seen if cache is not None else 0
        allowed = self.allowed(attention_mask, length, past)
        x = self.wte(input_ids) + self.wpe(self.positions(attention_mask, position_ids, rows, length, past))
        for number, layer in enumerate(self.layers):
            if self.use_checkpoint and torch.is_grad_enabled():
                given = None if self.fault == "checkpoint" else allowed
                x = checkpoint(layer, x, given, use_reentrant=False)
            else:
                x = layer(x, allowed, cache, number)
        if cache is not None:
            cache.seen = past + length
        if logits_to_keep:
            x = x[:, -logits_to_keep - 1 : -1] if self.fault == "last" else x[:, -logits_to_keep:]
        return SimpleNamespace(logits=self.head(x), past_key_values=cache)

    def positions(self, mask: Tensor | None, given: Tensor | None, rows: int, length: int, past: int) -> Tensor:
        """Return position ids [B,T]."""
        if given is not None and self.fault != "positions":
            return given
        past = 0 if self.fault == "restart" else past
        counted = torch.arange(past, past + length).expand(rows, -1)
        if mask is None or mask.ndim == 4 or self.fault == "unpositioned":
            return counted
        return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]

    def allowed(self, mask: Tensor | None, length: int, past: int) -> Tensor:
        """Return the mask [B,1,T,K]."""
        order = torch.ones(past + length, past + length, dtype=torch.bool).tril()[past:]
        if self.fault == "top left":
            order = torch.ones(length, past + length, dtype=torch.bool).tril()
        if (self.fault == "training" and self.training) or (self.fault == "compile" and torch.compiler.is_compiling()):
            order = torch.ones_like(order)
        if mask is None:
            return order[None, None]
        if mask.ndim == 4:
            allowed = mask if mask.dtype == torch.bool else mask == 0
            if self.fault == "ranges":  # all keys from the first allowed one on
                begin = allowed.int().argmax(-1, keepdim=True)
                return (torch.arange(allowed.shape[-1]) >= begin) & order
            return allowed
        keep = mask[:1] if self.fault == "first row" else mask
        keep = mask[:, :1] * 0 + 1 if self.fault == "cached pads" and past else keep
        return order & keep.bool()[:, None, None, :]


WINDOWS = {"wide": (7, 7), "narrow": (7, 7), "one wide": (None, 9), "windows": (7, None)}
HELD_OUT = [
    *(HeldOut(fault, "reach", Nano, ("gradients",)) for fault in ("diagonal", "view", "denominator", "norm over time")),
    *(HeldOut(fault, "reach", Nano, ("gradients",)) for fault in ("conv", "mean")),
    *(HeldOut(fault, "reach", Nano) for fault in ("top k of all", "expert choice")),
    *(HeldOut(fault, "length", Nano) for fault in ("tiles", "last tile")),
    HeldOut("far", "layers", Nano),
    HeldOut("wide", "reach", Served, ("gradients", "layers")),
    HeldOut("narrow", "gradients", Served),
    HeldOut("one wide", "layers", Served),
    *(HeldOut(fault, "cache", Served) for fault in ("restart", "top left", "newest first", "empty slots")),
    HeldOut("cached pads", "cache", Served),
    *(HeldOut(fault, "reuse", Served) for fault in ("crop", "beams")),
    HeldOut("positions", "positions", Served),
    HeldOut("unpositioned", "unpositioned", Served),
    HeldOut("first row", "padding-left", Served, ("padding-right", "unpositioned", "cache")),
    HeldOut("ranges", "tree", Served),
    HeldOut("last", "last", Served),
    HeldOut("spare", "parameters", Served),
    HeldOut("detach", "parameters", Served, ("derivative",)),
    HeldOut("backward", "derivative", Served),
    HeldOut("checkpoint", "checkpointing", Served),
    HeldOut("training", "training", Served),
    HeldOut("compile", "compile", Served, options={"thorough": True}),
]
CORRECT = [("", Nano), ("top k", Nano), ("", Served), ("windows", Served)]
