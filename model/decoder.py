"""Our own decoder-only Transformer with its tokenizer, as a Model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from model.attribution.linearized_run import FrozenDecoder
from model.base import CachedCall, Description, HeadEdit, Model, Residuals, StreamEdit
from model.blocks import Edit, positions_under
from model.hardware import CPU, Hardware, describe_hardware
from model.masks import AllowedCache, MaskContext, Masking, MaskSpec, allowed_by_layer
from model.text import BatchTokenizer, TokenBatch
from model.trace import LayerRecord, Trace, records_of
from model.transformer import Transformer


class DecoderModel(Model):
    """A GPT-2-compatible decoder. tokenizer may be None for a subclass that reads no text."""

    network: Transformer

    def __init__(
        self,
        name: str,
        network: Transformer,
        tokenizer: BatchTokenizer | None,
        *,
        key: str | None = None,
        hardware: Hardware = CPU,
    ) -> None:
        config = network.config
        super().__init__(
            name,
            num_layers=config.layers,
            num_heads=config.heads,
            context=config.context if tokenizer is None else tokenizer.context,
            bytes_per_token=4 * config.width * (3 * config.layers + 1),  # float32: q, k, v of every layer, final states
            key=key,
        )
        self.network, self.hardware = network, hardware
        self._tokenizer = tokenizer
        self.added_after = 0 if tokenizer is None else len(tokenizer.end)

    @property
    def tokenizer(self) -> BatchTokenizer:
        """The tokenizer. Raises ValueError for a model that reads no text."""
        if self._tokenizer is None:
            raise ValueError(f"{self.name} reads no text: it has no tokenizer")
        return self._tokenizer

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        """Tokenize texts. Raises ValueError for targets: only an encoder-decoder has them."""
        if targets is not None:
            raise ValueError(f"{self.name} is no encoder-decoder: it takes texts, no targets")
        return self.tokenizer.encode(texts, pad_side)

    def encode_rendered(self, text: str) -> tuple[TokenBatch, frozenset[int]]:
        return self.tokenizer.encode_rendered(text) if self.chats else super().encode_rendered(text)

    def inputs(self, batch: TokenBatch) -> Tensor:
        """Return the network's input: ids [B,T], or embeddings [B,T,W] instead."""
        return batch.ids.to(self.hardware.device)

    def label(self, token: int) -> str:
        return self.tokenizer.label(token)

    @property
    def vocabulary(self) -> int:
        return 0 if self._tokenizer is None else self._tokenizer.vocabulary

    @property
    def num_ids(self) -> int:
        return self.network.config.vocabulary

    def describe(self) -> Description:
        how = {
            "precision": describe_hardware(self.hardware),
            "context": self.network.config.context,
        }  # may exceed self.context
        return self.described(architecture="GPT-2", masks=("causal", "padding"), **how)

    @torch.inference_mode()
    def run(self, batch: TokenBatch, spec: MaskSpec | None = None, edit: HeadEdit | None = None) -> Trace:
        spec = spec or self.standard
        contexts, allowed = self._masks(batch, spec)
        edits = None if edit is None else [_at(context, edit) for context in contexts]
        states, qkvs = self.network(self.inputs(batch), self._positions(spec, batch), allowed, edits=edits)
        return Trace(batch, spec, records_of(qkvs, contexts), states, self.readout)

    @torch.inference_mode()
    def call(
        self, batch: TokenBatch, positions: Tensor, spec: MaskSpec, cache: Any, masking: Masking = MaskContext.allowed
    ) -> CachedCall:
        """Run as Model.call; the cache is each layer's keys and values."""
        queries, made = positions.shape[1], AllowedCache()
        contexts = [replace(context, queries=queries) for context in self._contexts(batch)]
        allowed = [masking(context, spec, made) for context in contexts]
        ids, positions = self.inputs(batch)[:, -queries:], positions.to(self.hardware.device)
        states, qkvs = self.network(ids, positions, allowed, cache)
        return CachedCall(states, records_of(qkvs, contexts), [(k, v) for _, k, v in qkvs])

    @torch.inference_mode()
    def residuals(
        self, batch: TokenBatch, spec: MaskSpec, edit: HeadEdit | None = None, entering: StreamEdit | None = None
    ) -> Residuals:
        contexts, allowed = self._masks(batch, spec)
        streams = [self.network.embed(self.inputs(batch), self._positions(spec, batch))]
        for layer, (block, context, mask) in enumerate(zip(self.network.blocks, contexts, allowed, strict=True)):
            if entering is not None:
                streams[-1] = entering(layer, streams[-1])
            streams.append(block(streams[-1], mask, edit=None if edit is None else _at(context, edit))[0])
        return Residuals(tuple(streams), self.network.norm)

    def frozen(self, trace: Trace, row: int) -> FrozenDecoder:
        return FrozenDecoder(self.network, trace, row)

    def readout(self, states: Tensor) -> Tensor:
        return self.network.logits(states)

    def _masks(self, batch: TokenBatch, spec: MaskSpec) -> tuple[list[MaskContext], list[Tensor | None]]:
        """Return each layer's mask context, and its mask under spec. Raises ValueError for an invalid scope."""
        spec.check_scope(self.num_layers, self.num_heads)
        contexts = self._contexts(batch)
        return contexts, allowed_by_layer(contexts, spec)

    def _positions(self, spec: MaskSpec, batch: TokenBatch) -> Tensor:
        return positions_under(spec, batch).to(self.hardware.device)

    def _contexts(self, batch: TokenBatch) -> list[MaskContext]:
        keep = batch.keep.to(self.hardware.device)
        one = MaskContext(keep, batch.ids.shape[1], self.num_heads, standard=self.standard, split=batch.split)
        return [replace(one, layer=layer) for layer in range(self.num_layers)]


def _at(context: MaskContext, edit: HeadEdit) -> Edit:
    return lambda qkv, output: edit("self", context.layer, LayerRecord(*qkv, context), output)
