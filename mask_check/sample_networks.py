"""A small sound decoder and encoder-decoder, called as transformers' are: what the samples are made from.

Everything that a mask can go wrong in is a method of its own, so that a sample replaces one and no more.
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

Stages = Callable[..., AttentionStages]  # called as model.attention.attention_stages is


@dataclass(kw_only=True)
class SmallConfig:
    """Sizes and masks, by transformers' names.

    packs_by: how documents are packed, "position_ids" (those that restart) or "attention_mask" ([B,1,T,T]).
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
    """Keys and values [B,H,K,D] of each layer, and how many tokens were read in all."""

    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    length: int = 0

    def crop(self, length: int) -> None:
        """Forget what was read after the first `length` tokens. Raises ValueError where a window has dropped some."""
        if any(k.shape[-2] < self.length for k, _ in self.layers):
            raise ValueError(msg("expected a cache of all keys"))
        self.layers = [(k[..., :length, :], v[..., :length, :]) for k, v in self.layers]
        self.length = length

    def reorder_cache(self, rows: Tensor) -> None:
        """Take these rows of the batch in place of its own."""
        self.layers = [(k[rows], v[rows]) for k, v in self.layers]


class SmallBlock(Block):
    """A layer whose attention is passed to it as a function."""

    def forward(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:  # type: ignore[override]
        found: Tensor = self.feed_forward(x + attend(x))
        return found


@dataclass
class SmallOutput:
    """logits [B,Q,V]; the cache where one was asked for; an encoder-decoder's states of its source [B,S,W]."""

    logits: Tensor
    past_key_values: SmallCache | None = None
    encoder_last_hidden_state: Tensor | None = None


@dataclass(frozen=True, eq=False)
class MaskInputs:
    """What a mask may depend on. queries [B,Q], keys [B,K]: positions in their own text. keep bool [B,K].

    documents [B,K]: which of a packed row's documents; None where there is one. step: whether earlier keys are cached.
    explicit bool [B,1,Q,K]: a mask that was given whole, and stands for all of these. images [B,K]: the number of the
    image that a token is part of, 0 for text; an image's tokens see each other both ways.
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
    """Make modules created inside have random weights, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
        for parameter in module.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.3)


class SmallDecoder(nn.Module):
    """Learned positions, three kernels, a cache that drops what a window hides, packed documents by their positions."""

    attention_kernels: tuple[str, ...] = ("eager", "sdpa", "flex_attention")
    defaults = SmallConfig()  # each instance gets a copy
    cache = SmallCache

    def __init__(self, config: SmallConfig | None = None, *, stages: Stages = attention_stages, seed: int = 3) -> None:
        """stages: what the eager kernel computes attention with."""
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
        """input_ids [B,Q]; position_ids [B,Q]; attention_mask [B,K], 1 = a real token, cached ones included.

        Or all of the mask, [B,1,Q,K]: bool, True = may attend, or what is added to the scores. token_type_ids [B,Q]: 1
        for tokens of an image. logits_to_keep: of the last so many tokens alone.
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
                places = MaskInputs(
                    counted[:, past:], counted[:, seen], keep[:, seen], documents, past > 0, explicit, images
                )
                made.layers[layer:] = [self.cached(layer, k, v)]
                allowed = self.allowed(layer, places)
                attended: Tensor = self.dropout(block.attention.merge(self.attend(layer, q, k, v, allowed)))
                return attended

            kept = self.gradient_checkpointing and torch.is_grad_enabled()
            x = checkpoint(block, x, attend, use_reentrant=False) if kept else block(x, attend)
        logits = self.unembedding(self.norm(x if logits_to_keep == 0 else self.last(x, logits_to_keep)))
        return SmallOutput(logits, made if use_cache else None)

    def last(self, x: Tensor, count: int) -> Tensor:
        """[B,Q,W] -> [B,count,W]."""
        return x[:, -count:]

    def images_of(self, token_type_ids: Tensor) -> Tensor:
        """[B,Q]: the images are numbered from 1, each a run of tokens."""
        image = token_type_ids == 1
        begins = image & ~F.pad(image, (1, 0))[:, :-1]
        return begins.cumsum(-1) * image

    def embed(self, ids: Tensor) -> Tensor:
        """[B,Q] -> [B,Q,W]."""
        states: Tensor = self.embedding(ids)
        return states

    def explicit(self, mask: Tensor) -> Tensor | None:
        """[B,1,Q,K], bool or added to the scores -> bool, True = may attend."""
        return mask if mask.dtype == torch.bool else mask == 0

    def positions_of(self, keep: Tensor) -> Tensor:
        """[B,K]: counted over real tokens, -1 before the first."""
        return keep.long().cumsum(-1) - 1

    def documents_of(self, position_ids: Tensor) -> Tensor | None:
        """[B,Q]: a document begins where positions do not go on by one."""
        begins = torch.diff(position_ids, dim=-1, prepend=position_ids[:, :1] - 1) != 1
        return begins.cumsum(-1) if bool(begins.any()) else None

    def cached(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values that a later token may attend to: all, or the last w − 1 under a window."""
        window = self.masks[layer].window
        kept = k.shape[-2] if window is None else min(window - 1, k.shape[-2])
        return k[..., k.shape[-2] - kept :, :], v[..., v.shape[-2] - kept :, :]

    def allowed(self, layer: int, places: MaskInputs) -> Tensor:
        """bool [B,1,Q,K], True = may attend."""
        if places.explicit is not None:
            return places.explicit
        allowed = self.order(self.masks[layer], places)[:, None] & self.keep_of(places)[:, None, None, :]
        if places.documents is not None:
            allowed = allowed & (places.documents[:, None, :, None] == places.documents[:, None, None, :])
        if places.images is not None:
            of_query, of_key = places.images[:, None, :, None], places.images[:, None, None, :]
            allowed = allowed | ((of_query == of_key) & (of_query > 0))
        return allowed

    def keep_of(self, places: MaskInputs) -> Tensor:
        """bool [B,K]: the real tokens."""
        return places.keep

    def order(self, mask: LayerMask, places: MaskInputs) -> Tensor:
        """bool [B,Q,K]: the layer's own mask."""
        return mask.between(places.queries[:, :, None], places.keys[:, None, :])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """[B,H,Q,D], by the chosen kernel. A query with no key gives 0 in each."""
        kernel = self.config._attn_implementation
        if kernel == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.for_kernel(allowed))
        if kernel == "flex_attention":
            return self.flex(q, k, v, allowed)
        return self.stages(q, k, v, allowed).output.to(q.dtype)

    def for_kernel(self, mask: Any) -> Any:
        """The mask as given to sdpa or FlexAttention."""
        return mask

    def flex(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        """FlexAttention, not compiled."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # slow to import

        block_mask = create_block_mask(
            lambda b, h, query, key: allowed[b, 0, query, key],
            *(len(q), None, q.shape[-2], k.shape[-2]),
            device=str(q.device),
        )
        return flex_attention(q, k, v, block_mask=self.for_kernel(block_mask))


class SmallPair(SmallDecoder):
    """An encoder-decoder: the encoder's layers see both ways, the decoder's also look at the source."""

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
        """input_ids [B,S] is the source, decoder_input_ids [B,T] what is written."""
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
        """bool, broadcast to [B,1,S,S]: which source tokens the source's own tokens may attend to."""
        return source_keep[:, None, None, :]

    def source_allowed(self, source_keep: Tensor, queries: int) -> Tensor:
        """bool, broadcast to [B,1,Q,S]: which source tokens the target's may attend to."""
        return source_keep[:, None, None, :]
