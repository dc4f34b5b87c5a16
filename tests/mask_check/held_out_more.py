"""More held-out modules, as in held_out.py: packed documents, encoders, encoder-decoders, images, kernels."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.mask_check.held_out import CONTEXT, VOCABULARY, WIDTH, HeldOut, heads, softmax_attention, vivid


class Mixers(nn.Module):
    """A hybrid of token shift, a convolution, a slowly decaying state and attention. Documents are numbered."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH)
        self.write, self.decay = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 4.0))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        vivid(self)

    def forward(self, tokens: Tensor, document_ids: Tensor | None = None) -> Tensor:
        numbers = torch.zeros_like(tokens) if document_ids is None else document_ids.expand_as(tokens)
        begins = F.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0), value=True)
        x = self.embedding(tokens)
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        x = x + 0.5 * (before if self.fault == "token shift" else before * ~begins[..., None])
        x = x + self.convolved(x, numbers) + self.scanned(x, begins)
        q, k, v = map(heads, self.qkv(F.layer_norm(x, (WIDTH,))).chunk(3, -1))
        row = torch.arange(tokens.shape[1])
        same = numbers[:, :, None] == numbers[:, None, :]
        if self.fault == "later documents":  # a document also sees earlier ones
            same = numbers[:, :, None] >= numbers[:, None, :]
        x = x + softmax_attention(q, k, v, (same & (row[:, None] >= row))[:, None])
        return self.head(F.layer_norm(x, (WIDTH,)))

    def convolved(self, x: Tensor, numbers: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        for back in range(4):
            past = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
            same = F.pad(numbers, (back, 0), value=-1)[:, : x.shape[1]] == numbers
            past = past if self.fault == "documents convolved" else past * same[..., None]
            found = found + past * self.conv.weight[:, 0, 3 - back]
        return found + self.conv.bias

    def scanned(self, x: Tensor, begins: Tensor) -> Tensor:
        state, found, keep = torch.zeros_like(x[:, 0]), [], self.decay.sigmoid()
        for place in range(x.shape[1]):
            if self.fault != "state":
                state = state * ~begins[:, place, None]
            state = keep * state + 0.1 * self.write(x[:, place]).tanh()
            found.append(state)
        return torch.stack(found, 1)


class Lengths(Mixers):
    """A Mixers module whose documents are given by cumulative lengths."""

    def forward(self, tokens: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:  # type: ignore[override]
        row = torch.arange(tokens.shape[1])
        numbers = None if cu_seqlens is None else torch.bucketize(row, cu_seqlens[1:], right=self.fault != "boundary")
        return super().forward(tokens, None if numbers is None else numbers[None])


class Restarts(Mixers):
    """A Mixers module whose documents are given by positions that restart."""

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:  # type: ignore[override]
        numbers = None if position_ids is None or self.fault == "deaf" else (position_ids == 0).cumsum(-1)
        x = super().forward(tokens, numbers)
        row = torch.arange(tokens.shape[1])[None] if position_ids is None else position_ids
        return x + row[..., None].to(x) * 0.03 * torch.arange(VOCABULARY).cos()


class Trunk(nn.Module):
    """A decoder that takes embeddings and returns a tuple."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        vivid(self)

    def forward(self, inputs_embeds: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = map(heads, self.qkv(inputs_embeds).chunk(3, -1))
        found = self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        summed = found.flip(1).cumsum(1).flip(1) if self.fault == "summed from the end" else found.cumsum(1)
        return found.mean(), inputs_embeds + found + 0.1 * summed


class Encoder(nn.Module):
    """A bidirectional encoder like BERT. Some faults leave it causal, as code adapted from a decoder."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.config = SimpleNamespace(
            is_causal=False, vocab_size=VOCABULARY, num_hidden_layers=2, max_position_embeddings=CONTEXT, pad_token_id=0
        )
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.conv, self.head = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.Linear(WIDTH, VOCABULARY)
        vivid(self)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        rows, length = input_ids.shape
        keep = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        x = self.words(input_ids) + self.places((keep.cumsum(-1) - 1).clamp(min=0))
        allowed = keep.bool()[:, None, None, :].expand(-1, 1, length, -1)
        if (self.fault == "one row" and rows == 1) or (self.fault == "no mask" and attention_mask is None):
            allowed = allowed & torch.ones(length, length, dtype=torch.bool).tril()
        for layer in self.layers:
            q, k, v = map(heads, layer(F.layer_norm(x, (WIDTH,))).chunk(3, -1))
            if self.fault == "weak":
                scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 - 3.0 * ~allowed
                x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            else:
                x = x + softmax_attention(q, k, v, allowed)
        real = x if self.fault == "pads convolved" else x * keep[..., None]
        x = x + self.conv(real.transpose(1, 2)).transpose(1, 2)
        if self.fault == "batch":
            x = x - x.mean(0)
        if self.fault == "pooled":
            x = x + x.mean(1, keepdim=True)
        else:
            x = x + (x * keep[..., None]).sum(1, keepdim=True) / keep.sum(1)[:, None, None]
        return {"logits": self.head(x)}


class Pair(nn.Module):
    """An encoder-decoder made of nn.Transformer's layers, with a source and a target."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.config = fault, SimpleNamespace(is_encoder_decoder=True, vocab_size=VOCABULARY)
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        sizes = {"d_model": WIDTH, "nhead": 2, "dim_feedforward": WIDTH, "batch_first": True}
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 1)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        vivid(self)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        source, target = input_ids.shape[1], decoder_input_ids.shape[1]
        pads = None if attention_mask is None else attention_mask == 0
        triangle = nn.Transformer.generate_square_subsequent_mask
        memory = self.encoder(
            self.embedded(input_ids),
            mask=triangle(source) < 0 if self.fault == "causal source" else None,
            src_key_padding_mask=None if self.fault == "source pads read" else pads,
        )
        if self.fault in ("cut", "cut to the target"):
            many = 4 if self.fault == "cut" else target
            memory, pads = memory[:, :many], None if pads is None else pads[:, :many]
            source = memory.shape[1]
        order = torch.full((target, source), float("-inf")).triu(1) if self.fault == "triangle" else None
        found = self.decoder(
            self.embedded(decoder_input_ids),
            memory,
            tgt_mask=triangle(target),
            memory_mask=order,
            memory_key_padding_mask=None if self.fault == "memory pads" or pads is None else pads.float() * -1e9,
        )
        return self.head(found)

    def embedded(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.position(torch.arange(ids.shape[1]))


class Images(nn.Module):
    """A decoder in which the tokens of an image attend to each other in both directions."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.config = fault, SimpleNamespace(image_blocks=True, vocab_size=VOCABULARY, num_hidden_layers=1)
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCABULARY)
        vivid(self)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        x = self.embedding(input_ids) + self.position(torch.arange(input_ids.shape[1]))
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        row = torch.arange(input_ids.shape[1])
        order, image = row[:, None] >= row, types.bool()
        begins = image & ~F.pad(image, (1, 0))[:, :-1]
        number = begins.cumsum(-1)
        block = image[:, :, None] & image[:, None, :] & (number[:, :, None] == number[:, None, :])
        if self.fault == "images read on":  # an image token sees all that follows
            block = image[:, :, None].expand_as(block)
        elif self.fault == "images causal":
            block = torch.zeros_like(block)
        elif self.fault == "image one short":
            block = block & F.pad(block, (0, 1))[..., 1:]
        return self.head(x + softmax_attention(q, k, v, (order | block)[:, None]))


class Kernels(nn.Module):
    """A decoder with two attention kernels, selected by name."""

    attention_kernels = ("eager", "sdpa")

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.config = SimpleNamespace(vocab_size=VOCABULARY, _attn_implementation="eager", num_hidden_layers=1)
        self.embedding, self.qkv = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        vivid(self)

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x, length = self.embedding(input_ids), input_ids.shape[1]
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        allowed = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        if attention_mask is not None:
            allowed = allowed & attention_mask.bool()[:, None, None, :]
        if self.config._attn_implementation == "eager":
            return self.head(x + softmax_attention(q, k, v, allowed))
        scale = 1 / WIDTH**0.5 if self.fault == "scale" else None
        if self.fault == "causal flag":  # is_causal instead of the mask
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)
        return self.head(x + found.transpose(1, 2).flatten(2))


POSITIONS = {"packing": "position_ids"}
HELD_OUT = [
    *(HeldOut(one, "packing", Mixers) for one in ("token shift", "documents convolved", "state", "later documents")),
    *(HeldOut(one, "packing", Lengths) for one in ("boundary", "state", "documents convolved")),
    *(HeldOut(one, "packing", Restarts, options=POSITIONS) for one in ("deaf", "token shift", "state")),
    HeldOut("summed from the end", "reach", Trunk, ("gradients",)),
    *(HeldOut(one, "batch", Encoder) for one in ("one row", "no mask", "batch")),
    *(HeldOut(one, "pad-content", Encoder, ("padding-right", "padding-left")) for one in ("weak", "pads convolved")),
    HeldOut("pooled", "pad-content", Encoder, ("padding-right", "padding-left")),
    *(HeldOut(one, "cross-reach", Pair) for one in ("triangle", "cut", "cut to the target")),
    HeldOut("causal source", "encoder", Pair),
    HeldOut("source pads read", "encoder", Pair, ("cross",)),
    HeldOut("memory pads", "cross", Pair),
    *(HeldOut(one, "images", Images) for one in ("images read on", "images causal", "image one short")),
    *(HeldOut(one, "kernels", Kernels) for one in ("scale", "causal flag")),
]
CORRECT = [("", one) for one in (Mixers, Lengths, Trunk, Encoder, Pair, Images, Kernels)]
