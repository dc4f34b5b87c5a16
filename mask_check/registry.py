"""All that can be checked without having a model: sound and broken small modules, by name."""

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from i18n import N_
from mask_check.reported_samples import REPORTED, SampleModule
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput, SmallPair, Stages
from mask_check.samples import ReusesBlockedScores
from model.attention import AttentionStages, attention_stages
from model.base import CHECKPOINTS
from model.blocks import positions_of
from model.gpt2 import load_transformer
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


LAWS = {  # of the clinic's bugs: the law of a whole module that names the mistake
    "view": "kernels",
    "unprojected": "kernels",
    "float-width": "kernels",
    "narrow-output": "kernels",
    "scale-width": "kernels",
    "scale-divided": "kernels",
    "scale-none": "kernels",
    "query-axis": "reach",
    "after-softmax": "reach",
    "in-place": "gradients",
    "half-fill": "kernels",
    "half-added": "padding-left",
    "inverted": "reach",
    "diagonal": "kernels",
    "transposed": "reach",
    "first-layer": "reach",
    "wrong-axis": "pad-content",
    "or": "reach",
    "if-mask": "kernels",
}
RAISES = ("half-fill", "float-width", "narrow-output", "if-mask")  # PyTorch itself refuses to compute them
SECOND_USE = ("in-place",)  # the mistake is in what is left of the scores


class ClinicBug(Protocol):
    """What of the Bug clinic's bugs is asked here: see model.bug_clinic.case."""

    @property
    def key(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def wrong(self) -> str: ...
    @property
    def function(self) -> Any: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def first_layer(self) -> int: ...


def of_bug(bug: ClinicBug) -> SampleModule:
    """A small decoder with one of the Bug clinic's attentions as its eager kernel."""
    make = partial(
        bugged,
        bug.function,
        first_layer=bug.first_layer,
        half=bug.dtype == torch.float16,
        raises=bug.key in RAISES,
        second_use=bug.key in SECOND_USE,
    )
    return SampleModule(
        key=bug.key,
        title=bug.title,
        variant=bug.variant,
        law=LAWS[bug.key],
        make=make,
        said=bug.wrong,
        reported=N_("the Bug clinic"),
    )


def _twin() -> OwnDecoder:
    return OwnDecoder(load_transformer(CHECKPOINTS / "twins" / "without_mask"), causal=False)


TWIN = SampleModule(
    key="twin",
    title=N_("The twin without a mask"),
    law="reach",
    make=_twin,
    reported=N_("the page Why causal"),
    said=N_("Trained and run without the causal mask, and called a language model."),
)
SOUND = (
    SampleModule(key="sound", title=N_("Correct: causal"), law="", make=SmallDecoder, said=N_("Causal, as declared.")),
    SampleModule(
        key="sound-window",
        title=N_("Correct: sliding window"),
        law="",
        make=partial(SmallDecoder, SmallConfig(sliding_window=3)),
        said=N_("A window of 3 in each of 3 layers: a reach of 6."),
    ),
    SampleModule(
        key="sound-chunk",
        title=N_("Correct: chunks"),
        law="",
        make=partial(SmallDecoder, SmallConfig(attention_chunk_size=5)),
        said=N_("Causal within chunks of 5."),
    ),
    SampleModule(
        key="sound-prefix",
        title=N_("Correct: prefix"),
        law="",
        make=partial(SmallDecoder, SmallConfig(prefix_length=6)),
        said=N_("The first 6 tokens see each other in both directions."),
    ),
    SampleModule(
        key="sound-encoder",
        title=N_("Correct: encoder"),
        law="",
        make=partial(SmallDecoder, SmallConfig(is_causal=False)),
        said=N_("Every token sees every other."),
    ),
    SampleModule(
        key="sound-pair", title=N_("Correct: encoder-decoder"), law="", make=SmallPair, said=N_("With a source.")
    ),
)


def everyone(bugs: Iterable[ClinicBug]) -> dict[str, SampleModule]:
    """All by their names: the sound ones, the reported ones, and the Bug clinic's bugs that lie in an attention."""
    of_bugs = [of_bug(bug) for bug in bugs if bug.key in LAWS]
    return {one.key: one for one in (*SOUND, *REPORTED, *of_bugs, TWIN)}
