"""The masks that a module's configuration declares.

A layer's mask is bool [T,T], True = may attend (row = query). Influence after all layers is their product: a window of
w in each of L layers reaches L·(w−1) tokens back.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg, msg_list
from mask_check.findings import CannotCheck
from mask_check.subject import text_config
from model.spec import MAX_POSITIONS

LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
DECODER_COUNTS = ("decoder_layers", "num_decoder_layers")  # where the encoder's are counted too
NAMED = 'expected a mask "causal", "full", "window:W", "chunk:C" or "prefix:P"'  # not shown
ONE_LAYER = N_("{mask} of the whole module (of several layers, give one mask for each, with commas between them)")
BLOCKS = tuple(2**power for power in range(2, 10))
MAX_MISSING = 0.05  # share of a pattern's pairs without a leak: their effect may be less than rounding
OWN_PATTERNS = ("attention_window", "attention_type", "attn_layers", "local_radius", "num_hash_functions", "index_topk")


@dataclass(frozen=True)
class LayerMask:
    """One layer's mask. causal: no later tokens. window: keys a query may attend to, itself included, or to each side.

    chunk: attention stays within blocks of this size. prefix: this many first tokens attend to each other both ways.
    """

    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    prefix: int = 0

    def allowed(self, length: int) -> Tensor:
        """Return the mask, bool [T,T]."""
        return self.between(torch.arange(length)[:, None], torch.arange(length)[None, :])

    def between(self, query: Tensor, key: Tensor) -> Tensor:
        """Return bool, in the shape of both together: whether each query position may attend to the key position."""
        mask = query >= key if self.causal else torch.ones_like(query >= key)
        if self.window is not None:  # transformers' encoders count a window to each side, without the token itself
            near = query - key < self.window if self.causal else (query - key).abs() <= self.window
            mask = mask & near
        if self.chunk is not None:
            mask = mask & (query // self.chunk == key // self.chunk)
        return mask | ((query < self.prefix) & (key < self.prefix))

    @property
    def words(self) -> str:
        parts = [msg("causal") if self.causal else msg("both directions")]
        if self.window is not None:
            wide = {"size": self.window}
            parts.append(msg("window {size}", **wide) if self.causal else msg("window {size} to each side", **wide))
        if self.chunk is not None:
            parts.append(msg("chunks of {size}", size=self.chunk))
        if self.prefix:
            parts.append(msg("prefix of {size}", size=self.prefix))
        return msg_list(parts)


@dataclass(frozen=True, eq=False)
class Declared:
    """The masks of all layers, bool [T,T] each. words: their description. exact: whether allowing less is a violation
    too. masks: each layer's for any length, if known. assumed: whether they are causal because none are declared."""

    layers: tuple[Tensor, ...]
    words: str
    exact: bool = True
    masks: tuple[LayerMask, ...] = ()
    assumed: bool = False

    @property
    def reach(self) -> Tensor:
        """bool [T,T]: which token (column) may influence which output (row), residual connections included."""
        reach = itself = torch.eye(len(self.layers[0]), dtype=torch.bool)
        for layer in self.layers:
            reach = ((layer | itself).float() @ reach.float()) > 0
        return reach


Mask = str | Tensor | np.ndarray | Sequence[str] | Sequence[Tensor | np.ndarray] | None


def declare(config: Any, length: int, mask: Mask = None, kind: str | None = None) -> Declared:
    """Return the masks that a module's configuration declares, or those that the user gives.

    mask: None reads the configuration (without one, causal is assumed); "causal", "full", "window:W", "chunk:C" or
    "prefix:P" for every layer, or a list of these, one for each, also with commas; bool [T,T], for all layers together
    or one for each. Raises CannotCheck for more or fewer names than the configuration has layers.
    """
    if isinstance(mask, str) and "," in mask:
        mask = [name.strip() for name in mask.split(",")]
    if isinstance(mask, Tensor | np.ndarray):
        return Declared((_square(mask, length),), msg("a mask given by hand"))
    if isinstance(mask, str):
        layer, count = _parsed(mask), _count(config, kind)
        found = _declared([layer] * (count or 1), length)
        if count is None and layer.window is not None:
            return replace(found, words=msg(ONE_LAYER, mask=found.words), masks=())
        return found
    if isinstance(mask, Sequence) and mask:
        if all(isinstance(name, str) for name in mask):
            if (count := _count(config, kind)) not in (None, len(mask)):
                raise CannotCheck(f"expected a mask for each of {count} layers, got {len(mask)}")  # not shown
            return _declared([_parsed(str(name)) for name in mask], length)
        return Declared(tuple(_square(layer, length) for layer in mask), msg("masks given by hand, one for each layer"))
    if mask is not None:
        raise CannotCheck(f"{NAMED}, or bool [{length}, {length}], got {mask!r}"[:200])  # not shown
    layers = layers_of(config, kind)
    own = any(getattr(config, name, None) is not None for name in OWN_PATTERNS)
    return replace(_declared(layers, length, exact=not own), assumed=config is None)


def layers_of(config: Any, kind: str | None = None) -> list[LayerMask]:
    """Return the mask of every layer that a configuration declares in transformers' terms."""
    if config is None:
        return [LayerMask(causal=kind != "encoder")]
    count, config = _count(config, kind), text_config(config, decoder=True)
    parts = getattr(config, "per_layer_config", None)  # of transformers, for layers that differ in more than their type
    of_parts = getattr(config, "num_hidden_layers", None)  # of an encoder-decoder: its encoder's
    if parts is None or count is None or count != of_parts:
        return _layers_of(config, kind, count)
    return [_layers_of(part, kind, count)[number] for number, part in enumerate(parts)]


def _layers_of(config: Any, kind: str | None, count: int | None) -> list[LayerMask]:
    says_no = any(getattr(config, name, None) is False for name in ("is_causal", "causal"))
    both = getattr(config, "use_bidirectional_attention", None) is True or getattr(config, "attn_type", None) == "bi"
    causal = kind != "encoder" and not both and not says_no
    has_window = getattr(config, "use_sliding_window", True) is not False
    window = (getattr(config, "sliding_window", None) or None) if has_window else None
    chunk = getattr(config, "attention_chunk_size", None) or None
    prefix = getattr(config, "prefix_length", None) or 0
    types = getattr(config, "layer_types", None)
    if types is None and getattr(config, "attention_layers", None) is not None:  # gpt_neo
        types = ["sliding" if name == "local" else "full" for name in config.attention_layers]
        window = config.window_size
    if types is None:
        return [LayerMask(causal, window, chunk, prefix)] * (count or 1)
    return [
        LayerMask(
            causal and not str(name).startswith("bidirectional"),
            window if "sliding" in str(name) else None,
            chunk if "chunked" in str(name) else None,
            prefix,
        )
        for name in types
    ]


def farthest(layers: Sequence[LayerMask]) -> int | None:
    """Return how many tokens back influence may reach after all layers; None if only the text's length limits it."""
    if all(layer.window is not None for layer in layers):
        return sum(layer.window - layer.causal for layer in layers if layer.window)
    if all(layer.chunk for layer in layers) and layers[0].chunk:
        return layers[0].chunk - 1
    return None


def _declared(layers: Sequence[LayerMask], length: int, *, exact: bool = True) -> Declared:
    kinds = list(dict.fromkeys(layers))
    of_all = N_("{some} of {all} layers {mask}")
    several = [msg(of_all, some=layers.count(layer), all=len(layers), mask=layer.words) for layer in kinds]
    words = kinds[0].words if len(kinds) == 1 else msg_list(several, N_("; "))
    reach = farthest(layers)
    if reach is not None and len(layers) > 1 and any(layer.window for layer in layers):
        words = msg("{mask} (a reach of {reach} over {all} layers)", mask=words, reach=reach, all=len(layers))
    return Declared(tuple(layer.allowed(length) for layer in layers), words, exact, tuple(layers))


def _parsed(mask: str) -> LayerMask:
    name, _, number = mask.partition(":")
    if name in ("causal", "full") and not number:
        return LayerMask(causal=name == "causal")
    if name in ("window", "chunk", "prefix") and number.isdecimal() and 0 < int(number) <= MAX_POSITIONS:
        size: dict[str, Any] = {name: int(number)}
        return LayerMask(**size)
    raise CannotCheck(f"{NAMED}, got {mask[:40]!r}")


def _count(config: Any, kind: str | None) -> int | None:
    """Return the number of layers that read the text that is checked; of an encoder-decoder its decoder's."""
    own = {} if kind == "encoder" else getattr(config, "__dict__", {})  # without defaults of its class
    text = text_config(config, decoder=True)
    counts = [*map(own.get, DECODER_COUNTS), *(getattr(text, name, None) for name in LAYER_COUNTS)]
    return next((one for one in counts if isinstance(one, int)), None)


def _square(mask: Any, length: int) -> Tensor:
    found = torch.as_tensor(mask) if isinstance(mask, Tensor | np.ndarray) else None
    if found is None or found.dtype != torch.bool or found.shape != (length, length):
        got = type(mask).__name__ if found is None else f"{found.dtype} {list(found.shape)}"
        raise CannotCheck(f"expected a mask bool [{length}, {length}] (True = may attend), got {got}")  # not shown
    return found.cpu()


def cause_of(
    pairs: list[tuple[int, int]], declared: Declared, *, tried: Collection[int] = (), earlier_read: bool = True
) -> str:
    """Return the likely cause of leaks, "" if no pattern is known. pairs (output, token): all leaks of the short row,
    or in a longer row those of the tokens `tried`. earlier_read: whether any output reads an earlier token."""
    layers, length = len(declared.layers), len(declared.layers[0])
    ahead = [token - output for output, token in pairs]
    if not ahead:
        return ""
    short, leaks, max_ahead = not tried, {*pairs}, max(ahead)
    closed = (~declared.reach).triu(1).nonzero().tolist()
    later = {(output, token) for output, token in closed if short or token in tried}

    def nearly_all(expected: set[tuple[int, int]]) -> bool:
        return bool(expected) and len(expected - leaks) <= MAX_MISSING * len(expected)

    band = {(output, token) for output, token in later if token - output <= max_ahead}
    ends = leaks & later == band < later  # exactly the pairs beyond a distance do not leak: not because of rounding
    to_the_end = not ends and (short or length - 1 in tried)  # else the tokens tried may lie within one block
    but_first = {pair for pair in later if pair[0]}
    if length > 3 and to_the_end and earlier_read and leaks <= but_first < later and nearly_all(but_first):
        return msg(
            "All outputs but the first read all later tokens. Likely cause: a causal mask after an operation over the "
            "whole row, such as a mean or a norm of its queries or keys."
        )
    if length > 2 and to_the_end and nearly_all(later):
        if not earlier_read:
            return msg(
                "All later tokens are read, and no earlier one. Likely cause: the mask is transposed, or inverted "
                "(True means may attend in scaled_dot_product_attention, blocked in nn.MultiheadAttention)."
            )
        return msg(
            "All later tokens are read. Likely cause: no causal mask (is_causal is not set, or attn_mask is None); "
            "blocked scores too close to 0, such as -10; a row in which every key is blocked with a finite value, "
            "whose softmax is uniform; or an operation over the whole row, such as a mean, a norm or a softmax before "
            "the mask."
        )
    if short and length > 2 and set(pairs) == {(0, token) for token in range(1, length)}:
        return msg(
            "Output 0 reads all later tokens, and no other output reads a later one. Likely cause: every key of its "
            "row is blocked, its own too (diagonal=0 in torch.triu), with a finite value: its softmax is uniform."
        )
    diagonal = all(len(set(axis)) > 1 for axis in zip(*pairs, strict=True))  # several outputs, and several tokens
    nearest = {(token - 1, token) for token in tried or range(length) if token and not declared.reach[token - 1, token]}
    if diagonal and min(ahead) > 0 and max_ahead <= layers and nearest <= leaks:
        return msg(
            "Likely cause: off by one, the mask's diagonal lies one position too far right (diagonal=1), or a "
            "convolution is padded on both sides."
        )
    past = [token for token in tried or range(length) if token > max_ahead]  # in blocks, multiples of a size apart
    if min(ahead) > 0 and max_ahead > 1 and 0 < gcd(*(j - past[0] for j in past)) <= max_ahead and nearly_all(band):
        words = N_(
            "Outputs read the next {count} tokens, and none after them. Likely cause: over all layers, the masks' "
            "diagonals lie {count} positions too far right, or convolutions are padded on both sides."
        )
        return msg(words, count=max_ahead)
    if min(ahead) > 0:
        same = [size for size in BLOCKS if all(output // size == token // size for output, token in pairs)]
        border = short or any(same and token and token % same[0] == 0 for token in tried)  # else none could cross one
        several = same and border and len({token // same[0] for _, token in pairs}) > 1
        if several and same[0] < length and max_ahead > layers:
            return msg("All of them lie within blocks of {size} tokens: what is shared in a block?", size=same[0])
    farthest = max((output - token for output, token in declared.reach.nonzero().tolist()), default=0)
    if diagonal and max(ahead) < 0 and farthest < -max(ahead) and farthest + layers >= -min(ahead):
        return msg("Likely cause: off by one, the window is one token too wide (<= instead of <).")
    return ""
