"""Modules small enough to calculate their outputs on paper."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH = 11, 5


class Mixer(nn.Module):
    """A module with logits_i = Σ_j mix[i,j] · embedding(token_j); embedding(t) is t in its first entry, 0 elsewhere."""

    def __init__(self, mix: Tensor) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        with torch.no_grad():
            self.embedding.weight.zero_()
            self.embedding.weight[:, 0] = torch.arange(VOCABULARY)
        self.mix = mix

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.mix.to(self.embedding.weight) @ self.embedding(input_ids)


class Written(nn.Module):
    """A decoder as people first write it, with one of the usual mistakes or none."""

    def __init__(self, mistake: str = "", *, positions: int = 64, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mistake = mistake
        self.mask_axis = 0 if mistake == "batch_first" else 1
        self.embedding = nn.Embedding(31, width)
        self.position = nn.Embedding(positions, width)
        batch_first = mistake != "batch_first"
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=batch_first)
        self.norm = nn.BatchNorm1d(width, affine=False, track_running_stats=mistake != "batch norm")
        self.head = nn.Linear(width, 31)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x) + self.position(torch.arange(x.shape[1]))
        h = F.dropout(h, 0.1, training=self.training or self.mistake == "dropout")
        h = self.norm(h.transpose(1, 2)).transpose(1, 2)
        first = x.shape[self.mask_axis]
        return self.head(self.layer(h, src_mask=nn.Transformer.generate_square_subsequent_mask(first)))

    def mask_by_length(self) -> "Written":
        """Take the mask's length from axis 1, as for a batch-first input, whichever axis the layer attends over."""
        self.mask_axis = 1
        return self


@dataclass
class NanoConfig:
    block_size: int = 32
    vocab_size: int = 31
    n_layer: int = 1
    n_head: int = 2


class Nano(nn.Module):
    """A model called as nanoGPT is: it returns the last position's logits only, or all of them if targets are given."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = NanoConfig()
        self.causal = causal
        self.wte, self.wpe = nn.Embedding(31, 16), nn.Embedding(32, 16)
        self.qkv, self.lm_head = nn.Linear(16, 48), nn.Linear(16, 31)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        rows, length = idx.shape
        assert length <= self.config.block_size, f"Cannot forward sequence of length {length}"
        x = self.wte(idx) + self.wpe(torch.arange(length))
        q, k, v = (part.view(rows, length, 2, 8).transpose(1, 2) for part in self.qkv(x).split(16, dim=2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class ReadsAhead(nn.Module):
    """A mean over a window of the past and, in rows of more than `above` tokens, over all of each token's block."""

    def __init__(self, block: int = 64, above: int = 64, past: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(31, 16), nn.Linear(16, 31)
        self.block, self.above, self.past = block, above, past

    def forward(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        row = torch.arange(length)
        mask = row[:, None] >= row
        if self.past:
            mask = mask & (row[:, None] - row < self.past)
        if length > self.above:
            mask = mask | (row[:, None] // self.block == row // self.block)
        return self.head(mask.float() / mask.sum(-1, keepdim=True) @ self.embedding(input_ids))


class SmallAttention(nn.Module):
    """One head of causal attention. weights: computes them from scores [B,T,T] and the allowed cells, bool [T,T]."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding, self.position = nn.Embedding(50, 32), nn.Embedding(600, 32)
        self.qkv, self.out, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.3)

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.position.weight[: ids.shape[1]]

    def forward(self, input_ids: Tensor) -> Tensor:
        x, length = self.embed(input_ids), input_ids.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = self.weights(q @ k.mT / 32**0.5, torch.ones(length, length, dtype=torch.bool).tril())
        return self.head(x + self.out(weights @ v))
