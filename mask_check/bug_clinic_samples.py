"""The small decoder with an attention that somebody got wrong; our own Transformer called as transformers' are."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput, Stages
from mask_check.samples import ReusesBlockedScores
from model.attention import AttentionStages, attention_stages
from model.positions import positions_of
from model.transformer import Transformer


class Bugged(SmallDecoder):
    """A wrong attention as the eager kernel; sdpa is right. From `first_layer` on."""

    attention_kernels = ("eager", "sdpa")

    def __init__(self, stages: Stages, *, first_layer: int = 0, kernel: str = "eager") -> None:
        super().__init__(SmallConfig(_attn_implementation=kernel), stages=stages)
        self.first_layer = first_layer

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        if layer < self.first_layer and self.config._attn_implementation == "eager":
            return attention_stages(q, k, v, allowed).output
        return super().attend(layer, q, k, v, allowed)


def in_half(stages: Stages) -> Stages:
    """The same attention computed in float16."""

    def run(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Any) -> AttentionStages:
        found = stages(q.half(), k.half(), v.half(), allowed, **options)
        return AttentionStages(**{name: part.float() for name, part in vars(found).items()})

    return run


def bugged(
    stages: Stages,
    *,
    first_layer: int = 0,
    half: bool = False,
    raises: bool = False,
    second_use: bool = False,
) -> nn.Module:
    """A module with the wrong attention where it shows.

    half: computed in float16. raises: PyTorch refuses to compute it, so that it is only the other kernel. second_use:
    the mistake is in what is left of the scores.
    """
    if second_use:
        return ReusesBlockedScores(stages)
    return Bugged(in_half(stages) if half else stages, first_layer=first_layer, kernel="sdpa" if raises else "eager")


class OwnDecoder(nn.Module):
    """Our decoder-only Transformer, read with input_ids and an attention_mask. causal: whether it is given that mask.

    It declares itself causal either way: a language model is meant to be.
    """

    def __init__(self, network: Transformer, *, causal: bool = True) -> None:
        super().__init__()
        self.network = network
        self.causal = causal
        size = network.config
        self.config = SimpleNamespace(
            vocab_size=size.vocabulary, max_position_embeddings=size.context, num_hidden_layers=size.layers
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:
        """[B,T] -> logits [B,T,V]."""
        keep = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        allowed = keep[:, None, None, :]
        if self.causal:
            allowed = allowed & torch.ones(keep.shape[1], keep.shape[1], dtype=torch.bool).tril()
        states, _ = self.network(input_ids, positions_of(keep), allowed)
        return SmallOutput(self.network.logits(states))
