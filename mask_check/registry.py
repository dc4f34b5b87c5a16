"""All that can be checked without having a model: sound and broken small modules, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from mask_check import more_samples, samples
from mask_check.more_samples import PicksKeys
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput, SmallPair
from mask_check.samples import ReusesBlockedScores
from model.attention import attention_stages
from model.base import CHECKPOINTS
from model.blocks import positions_of
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BUGS
from model.gpt2 import load_transformer


@dataclass(frozen=True)
class SampleModule:
    """A module to try. law: the key of the law that names what is wrong with it, "" for a sound one.

    said: what it is, and what is wrong with it. reported: where it was, in published software. Samples of one title
    are variants of each other. Sentences are marked by N_, to be said where they are shown; `name` is said.
    """

    key: str
    title: str
    make: Callable[[], nn.Module]
    said: str
    law: str = ""
    variant: str = ""
    reported: str = ""

    @property
    def name(self) -> str:
        """The title, with the variant where there are several."""
        title = msg(self.title)
        return msg("{title}: {variant}", title=title, variant=msg(self.variant)) if self.variant else title


def _sound(key: str, title: str, said: str, **config: Any) -> SampleModule:
    return SampleModule(key, title, partial(SmallDecoder, SmallConfig(**config)), said)


WINDOW = N_("A window of 3 in each of 3 layers: a reach of 6.")
PREFIX = N_("The first 6 tokens see each other in both directions.")
SOUND = (
    _sound("sound", N_("Correct: causal"), N_("Causal, as declared.")),
    _sound("sound-window", N_("Correct: sliding window"), WINDOW, sliding_window=3),
    _sound("sound-chunk", N_("Correct: chunks"), N_("Causal within chunks of 5."), attention_chunk_size=5),
    _sound("sound-prefix", N_("Correct: prefix"), PREFIX, prefix_length=6),
    _sound("sound-encoder", N_("Correct: encoder"), N_("Every token sees every other."), is_causal=False),
    SampleModule("sound-top-k", N_("Correct: top k"), PicksKeys, N_("Every query reads the 6 keys of its top k.")),
    SampleModule("sound-pair", N_("Correct: encoder-decoder"), SmallPair, N_("With a source.")),
)


def _published(module: Any) -> SampleModule:
    reported = getattr(module, "reported", "")
    return SampleModule(module.key, module.title, module, module.said, module.law, reported=reported)


BUGS_BY_LAW = {  # the Bug clinic's bugs that lie in an attention, by the law of a whole module that names the mistake
    "reach": ("query-axis", "after-softmax", "inverted", "transposed", "first-layer", "or"),
    "gradients": ("in-place",),
    "padding-left": ("half-added",),
    "pad-content": ("wrong-axis",),
    "kernels": (
        *("view", "unprojected", "float-width", "narrow-output", "diagonal", "if-mask"),
        *("scale-width", "scale-divided", "scale-none", "half-fill"),
    ),
}
BUG_LAWS = {key: law for law, keys in BUGS_BY_LAW.items() for key in keys}
RAISES = ("half-fill", "float-width", "narrow-output", "if-mask")  # PyTorch itself refuses to compute them
SECOND_USE = "in-place"  # the mistake is in what is left of the scores


class Bugged(SmallDecoder):
    """One of the Bug clinic's attentions as the eager kernel, from the bug's first layer on; sdpa is right."""

    attention_kernels = ("eager", "sdpa")

    def __init__(self, bug: Bug) -> None:
        kernel = "sdpa" if bug.key in RAISES else "eager"
        super().__init__(SmallConfig(_attn_implementation=kernel), stages=bug.stages)
        self.first_layer = bug.first_layer

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        if layer < self.first_layer and self.config._attn_implementation == "eager":
            return attention_stages(q, k, v, allowed).output
        return super().attend(layer, q, k, v, allowed)


def _of_bug(bug: Bug) -> SampleModule:
    make = partial(ReusesBlockedScores, bug.stages) if bug.key == SECOND_USE else partial(Bugged, bug)
    return SampleModule(bug.key, bug.title, make, bug.wrong, BUG_LAWS[bug.key], bug.variant, N_("the Bug clinic"))


class UnmaskedTwin(nn.Module):
    """The twin without a causal mask, read with input_ids and an attention_mask, and declared causal: a language model
    is meant to be."""

    def __init__(self) -> None:
        super().__init__()
        self.network = load_transformer(CHECKPOINTS / "twins" / "without_mask")
        size = self.network.config
        self.config = SimpleNamespace(
            vocab_size=size.vocabulary, max_position_embeddings=size.context, num_hidden_layers=size.layers
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:
        """[B,T] -> logits [B,T,V]."""
        keep = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        states, _ = self.network(input_ids, positions_of(keep), keep[:, None, None, :])
        return SmallOutput(self.network.logits(states))


TWIN = SampleModule(
    "twin",
    N_("The twin without a mask"),
    UnmaskedTwin,
    N_("Trained and run without the causal mask, and called a language model."),
    "reach",
    reported=N_("the page Why causal"),
)
CLASSES = [one for file in (samples, more_samples) for one in vars(file).values() if isinstance(one, type)]
PUBLISHED = [_published(one) for one in CLASSES if hasattr(one, "law")]
OF_BUGS = [_of_bug(bug) for bug in BUGS if bug.key in BUG_LAWS]
SAMPLES = {one.key: one for one in (*SOUND, *PUBLISHED, *OF_BUGS, TWIN)}
