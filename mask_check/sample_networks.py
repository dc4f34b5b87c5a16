"""A small correct decoder and encoder-decoder, called as transformers' are: the samples are made from them.

Every step in which a mask can go wrong is a method of its own, so that a sample overrides only that one.
Sizes: B rows, Q new tokens, K all tokens, H heads, D head width, W width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from i18n import msg
from mask_check.declared import LayerMask, layers_of
from model.attention import AttentionStages, attention_stages
from model.blocks import Block, CrossBlock

Stages = Callable[..., AttentionStages]  # has the signature of model.attention.attention_stages


@dataclass(kw_only=True)
class SmallConfig:
    """Sizes and masks, by transformers' names.

    packs_by: how documents are packed: "position_ids" (those that restart) or "attention_mask" ([B,1,T,T]).
    """

    vocab_size: int = 53
    hidden_size: int = 24
    num_hidden_layers: int = 3
    num_attention_heads: int = 3
    max_position_embeddings: int = 96
    pad_token_id: int = 0
    is_causal: bool = True
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    prefix_length: int = 0
    layer_types: list[str] | None = None
    index_topk: int | None = None
    is_encoder_decoder: bool = False
    packs_by: str | None = "position_ids"
    image_blocks: bool = True
    _attn_implementation: str = "eager"


@dataclass
class SmallCache:
    """A cache: keys and values [B,H,K,D] of each layer, and the number of all tokens read."""

    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    length: int = 0

    def crop(self, length: int) -> None:
        """Keep only the first `length` tokens. Raises ValueError if a window has dropped some of them."""
        if any(k.shape[-2] < self.length for k, _ in self.layers):
            raise ValueError(msg("expected a cache of all keys"))
        self.layers = [(k[..., :length, :], v[..., :length, :]) for k, v in self.layers]
        self.length = length

    def reorder_cache(self, rows: Tensor) -> None:
        """Replace the rows of the batch by these of them."""
        self.layers = [(k[rows], v[rows]) for k, v in self.layers]


class SmallBlock(Block):
    """A layer whose attention is passed to it as a function."""

    def forward(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:  # type: ignore[override]
        found: Tensor = self.feed_forward(x + attend(x))
        return found


@dataclass
class SmallOutput:
    """logits [B,Q,V]; the cache if one was requested; an encoder-decoder's states of its source [B,S,W]."""

    logits: Tensor
    past_key_values: SmallCache | None = None
    encoder_last_hidden_state: Tensor | None = None


@dataclass(frozen=True, eq=False)
class MaskInputs:
    """The inputs of a mask. queries [B,Q], keys [B,K]: positions in their own text. keep bool [B,K].

    documents [B,K]: which of a packed row's documents; None if there is one. step: whether earlier keys are cached.
    explicit bool [B,1,Q,K]: a complete mask, which overrides all of these. images [B,K]: the number of the image that a
    token is part of, 0 for text; tokens of an image attend to each other both ways.
    """

    queries: Tensor
    keys: Tensor
    keep: Tensor
    documents: Tensor | None = None
    step: bool = False
    explicit: Tensor | None = None
    images: Tensor | None = None


@contextmanager
def random_weights(module: nn.Module, seed: int) -> Iterator[None]:
    """Initialize the matrices of a module, created within the context, with reproducible random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
        for parameter in module.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.3)


class SmallDecoder(nn.Module):
    """A decoder with learned positions, three kernels, a cache that drops what a window blocks, and packed
    documents."""

    attention_kernels: tuple[str, ...] = ("eager", "sdpa", "flex_attention")
    defaults = SmallConfig()  # each instance gets a copy
    cache = SmallCache

    def __init__(self, config: SmallConfig | None = None, *, stages: Stages = attention_stages, seed: int = 3) -> None:
        """stages: the function that computes attention in the eager kernel."""
        super().__init__()
        self.config = config or replace(self.defaults)
        self.stages = stages
        size = self.config
        with random_weights(self, seed):
            self.embedding = nn.Embedding(size.vocab_size, size.hidden_size)
            self.position_embedding = nn.Embedding(size.max_position_embeddings, size.hidden_size)
            self.blocks = nn.ModuleList(self.block() for _ in range(size.num_hidden_layers))
            self.dropout = nn.Dropout(0.1)
            self.norm = nn.LayerNorm(size.hidden_size)
            self.unembedding = nn.Linear(size.hidden_size, size.vocab_size, bias=False)
        self.masks = layers_of(self.config, "decoder")
        self.gradient_checkpointing = False

    @property
    def sizes(self) -> dict[str, Any]:
        width, heads = self.config.hidden_size, self.config.num_attention_heads
        return {"width": width, "heads": heads, "mlp_width": 2 * width, "epsilon": 1e-5}

    def block(self) -> nn.Module:
        return SmallBlock(**self.sizes)

    def set_attn_implementation(self, name: str) -> None:
        """Choose the kernel. Raises ValueError for one that is not in attention_kernels."""
        if name not in self.attention_kernels:
            raise ValueError(f"expected one of {', '.join(self.attention_kernels)}, got {name}")  # not shown
        self.config._attn_implementation = name

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: SmallCache | None = None,
        use_cache: bool = False,
        token_type_ids: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> SmallOutput:
        """Return logits. input_ids, position_ids [B,Q]; attention_mask [B,K], 1 = a real token, cached ones included.

        Or a complete mask [B,1,Q,K]: bool, True = may attend, or what is added to the scores. token_type_ids [B,Q]: 1
        for tokens of an image. logits_to_keep: the number of last tokens that get logits, 0 for all.
        """
        rows, many = input_ids.shape
        past = 0 if past_key_values is None else past_key_values.length
        whole = attention_mask is not None and attention_mask.ndim == 4
        explicit = self.explicit(attention_mask) if whole and attention_mask is not None else None
        keep = torch.ones(rows, past + many, dtype=torch.bool, device=input_ids.device)
        if attention_mask is not None and not whole:
            keep = attention_mask.bool()
        documents = None
        if position_ids is not None and attention_mask is None and not use_cache:
            documents = self.documents_of(position_ids)
        counted = self.positions_of(keep) if documents is None or position_ids is None else position_ids  # [B,K]
        positions = counted[:, past:] if position_ids is None else position_ids
        x = self.dropout(self.embed(input_ids) + self.position_embedding(positions.clamp(min=0)))
        images = None if token_type_ids is None else self.images_of(token_type_ids)
        made = self.cache(length=past + many)
        for layer, block in enumerate(cast(Iterable[Block], self.blocks)):

            def attend(x: Tensor, layer: int = layer, block: Block = block) -> Tensor:
                q, k, v = block.attention.project(*[block.attention_norm(x)] * 3)
                if past_key_values is not None:
                    old_k, old_v = past_key_values.layers[layer]
                    k, v = torch.cat([old_k, k], dim=-2), torch.cat([old_v, v], dim=-2)
                seen = slice(past + many - k.shape[-2], None)
                inputs = MaskInputs(
                    counted[:, past:], counted[:, seen], keep[:, seen], documents, past > 0, explicit, images
                )
                made.layers[layer:] = [self.cached(layer, k, v)]
                allowed = self.allowed(layer, inputs)
                attended: Tensor = self.dropout(block.attention.merge(self.attend(layer, q, k, v, allowed)))
                return attended

            recomputed = self.gradient_checkpointing and torch.is_grad_enabled()
            x = checkpoint(block, x, attend, use_reentrant=False) if recomputed else block(x, attend)
        logits = self.unembedding(self.norm(x if logits_to_keep == 0 else self.last(x, logits_to_keep)))
        return SmallOutput(logits, made if use_cache else None)

    def last(self, x: Tensor, count: int) -> Tensor:
        """Select the last tokens: [B,Q,W] -> [B,count,W]."""
        return x[:, -count:]

    def images_of(self, token_type_ids: Tensor) -> Tensor:
        """Number the images, each a run of tokens, from 1: [B,Q]."""
        image = token_type_ids == 1
        begins = image & ~F.pad(image, (1, 0))[:, :-1]
        return begins.cumsum(-1) * image

    def embed(self, ids: Tensor) -> Tensor:
        """Look up the embeddings: [B,Q] -> [B,Q,W]."""
        states: Tensor = self.embedding(ids)
        return states

    def explicit(self, mask: Tensor) -> Tensor | None:
        """Convert an explicit mask [B,1,Q,K], bool or added to the scores, to bool, True = may attend."""
        return mask if mask.dtype == torch.bool else mask == 0

    def positions_of(self, keep: Tensor) -> Tensor:
        """Count positions [B,K] over real tokens, -1 before the first."""
        return keep.long().cumsum(-1) - 1

    def documents_of(self, position_ids: Tensor) -> Tensor | None:
        """Number the documents, [B,Q]: one begins where positions do not increase by 1. None if there is one."""
        begins = torch.diff(position_ids, dim=-1, prepend=position_ids[:, :1] - 1) != 1
        return begins.cumsum(-1) if bool(begins.any()) else None

    def cached(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that later tokens may attend to: all, or the last w − 1 under a window."""
        window = self.masks[layer].window
        count = k.shape[-2] if window is None else min(window - 1, k.shape[-2])
        return k[..., k.shape[-2] - count :, :], v[..., v.shape[-2] - count :, :]

    def allowed(self, layer: int, inputs: MaskInputs) -> Tensor:
        """Return a layer's mask, bool [B,1,Q,K], True = may attend."""
        if inputs.explicit is not None:
            return inputs.explicit
        allowed = self.order(self.masks[layer], inputs)[:, None] & self.keep_of(inputs)[:, None, None, :]
        if inputs.documents is not None:
            allowed = allowed & (inputs.documents[:, None, :, None] == inputs.documents[:, None, None, :])
        if inputs.images is not None:
            of_query, of_key = inputs.images[:, None, :, None], inputs.images[:, None, None, :]
            allowed = allowed | ((of_query == of_key) & (of_query > 0))
        return allowed

    def keep_of(self, inputs: MaskInputs) -> Tensor:
        """Return the real tokens, bool [B,K]."""
        return inputs.keep

    def order(self, mask: LayerMask, inputs: MaskInputs) -> Tensor:
        """Return the layer's own mask, without padding: bool [B,Q,K]."""
        return mask.between(inputs.queries[:, :, None], inputs.keys[:, None, :])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """Compute attention [B,H,Q,D] by the chosen kernel; in each, a query without an allowed key gives 0."""
        kernel = self.config._attn_implementation
        if kernel == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.for_kernel(allowed))
        if kernel == "flex_attention":
            return self.flex(q, k, v, allowed)
        return self.stages(q, k, v, allowed).output.to(q.dtype)

    def for_kernel(self, mask: Any) -> Any:
        """Return the mask as it is passed to sdpa or FlexAttention."""
        return mask

    def flex(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """Compute attention by FlexAttention, not compiled."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # slow to import

        block_mask = create_block_mask(
            lambda b, h, query, key: allowed[b, 0, query, key],
            *(len(q), None, q.shape[-2], k.shape[-2]),
            device=str(q.device),
        )
        return flex_attention(q, k, v, block_mask=self.for_kernel(block_mask))


class SmallPair(SmallDecoder):
    """An encoder-decoder: a bidirectional encoder, and a decoder with cross-attention to the source."""

    attention_kernels = ("eager",)
    defaults = SmallConfig(is_encoder_decoder=True)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList()
        with random_weights(self.encoder, 5):
            self.encoder.extend(Block(**self.sizes) for _ in range(2))

    def block(self) -> nn.Module:
        return CrossBlock(**self.sizes)

    def forward(  # type: ignore[override]  # an encoder-decoder is called with both of its texts
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> SmallOutput:
        """Return logits. input_ids [B,S]: the source; decoder_input_ids [B,T]: the target."""
        ids = input_ids if decoder_input_ids is None else decoder_input_ids
        source_keep = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        keep = torch.ones_like(ids).bool() if decoder_attention_mask is None else decoder_attention_mask.bool()
        source = self.embedding(input_ids) + self.position_embedding(self.positions_of(source_keep).clamp(min=0))
        for block in self.encoder:
            source, _ = block(source, self.source_reach(source_keep))
        x = self.dropout(self.embedding(ids) + self.position_embedding(self.positions_of(keep).clamp(min=0)))
        row = torch.arange(ids.shape[1], device=ids.device)[None]
        for layer, block in enumerate(self.blocks):
            allowed = self.allowed(layer, MaskInputs(row, row, keep))
            x, _, _ = block(x, source, allowed, self.source_allowed(source_keep, ids.shape[1]))
        return SmallOutput(self.unembedding(self.norm(x)), encoder_last_hidden_state=source)

    def source_reach(self, source_keep: Tensor) -> Tensor:
        """Return which source tokens the source's own tokens may attend to: bool, broadcast to [B,1,S,S]."""
        return source_keep[:, None, None, :]

    def source_allowed(self, source_keep: Tensor, queries: int) -> Tensor:
        """Return which source tokens the target's may attend to: bool, broadcast to [B,1,Q,S]."""
        return source_keep[:, None, None, :]
