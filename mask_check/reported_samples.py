"""Samples: modules to try the check on, each with what was wrong with it, and where published software had it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from i18n import N_, say
from mask_check.sample_networks import SmallConfig
from mask_check.samples import (
    ChunkedStepsSeeAhead,
    CountsPads,
    CropsItsCache,
    EncodesCausally,
    EncodesPads,
    ForgetsPaddingWhenCached,
    IgnoresTheBlockMask,
    IgnoresTheDocumentMask,
    LeaksUnderSdpa,
    LeaksWhatFewTokensHave,
    LooksAtPads,
    LooksAtSourcePads,
    MixesItsRows,
    PacksTogether,
    RepeatsMasks,
    SeesTheFuture,
    TrainsWithoutMask,
    WindowTooNarrow,
    WindowTooWide,
)


@dataclass(frozen=True, kw_only=True)
class SampleModule:
    """A module to try. law: the law that names what is wrong with it, "" for a sound one.

    said: what it is, and what is wrong with it. reported: where it was, in published software. Patients of one title
    are variants of each other. Sentences are marked by N_, to be said where they are shown; `name` is said.
    """

    key: str
    title: str
    law: str
    make: Callable[[], nn.Module]
    said: str
    variant: str = ""
    reported: str = ""

    @property
    def name(self) -> str:
        """The title, with the variant where there are several, in the reader's language."""
        title = say(self.title)
        return say("{title}: {variant}", title=title, variant=say(self.variant)) if self.variant else title


def _leaking_under_sdpa() -> nn.Module:
    return LeaksUnderSdpa(SmallConfig(_attn_implementation="sdpa"))


REPORTED = (
    SampleModule(
        key="future",
        title=N_("Sees the future as a decoder"),
        law="reach",
        make=SeesTheFuture,
        said=N_("is_decoder is set, but the mask is bidirectional."),
        reported=N_("RoFormer, BigBird, RemBert and MegatronBert with is_decoder, transformers#48745"),
    ),
    SampleModule(
        key="sdpa",
        title=N_("Leaks only with sdpa"),
        law="kernels",
        make=_leaking_under_sdpa,
        said=N_("Eager attention gets the mask; sdpa relies on a flag that is never set."),
        reported=N_("Doge, transformers#48748"),
    ),
    SampleModule(
        key="flex",
        title=N_("FlexAttention without its block mask"),
        law="kernels",
        make=IgnoresTheBlockMask,
        said=N_("FlexAttention is called without its block mask."),
        reported=N_("FlexAttention's FLASH backend, pytorch#188322"),
    ),
    SampleModule(
        key="packed",
        title=N_("Packed documents see each other"),
        law="packing",
        make=PacksTogether,
        said=N_("Positions restart in each document, but the mask does not."),
        reported=N_("transformers#46634, axolotl#3796"),
    ),
    SampleModule(
        key="document-mask",
        title=N_("Document mask ignored"),
        law="packing",
        make=IgnoresTheDocumentMask,
        said=N_("A document mask is accepted, but the causal mask is used instead."),
    ),
    SampleModule(
        key="counts-pads",
        title=N_("A pad shifts every position"),
        law="padding-left",
        make=CountsPads,
        said=N_("The padding mask is obeyed, but positions are counted over pads too."),
        reported=N_("one pad moved a loss from 4.5 to 13.6, TransformerLens#1610"),
    ),
    SampleModule(
        key="pads",
        title=N_("Attends to pads"),
        law="pad-content",
        make=LooksAtPads,
        said=N_("The padding mask is accepted but not applied."),
    ),
    SampleModule(
        key="repeated",
        title=N_("Masks repeated in the wrong order"),
        law="padding-left",
        make=RepeatsMasks,
        said=N_("Each row's mask should apply to all of its heads, but `repeat` interleaves the masks of the rows."),
    ),
    SampleModule(
        key="cached-padding",
        title=N_("Padded prompt, then the cache"),
        law="cache",
        make=ForgetsPaddingWhenCached,
        said=N_("A full run obeys the padding mask, but a cached step treats every cached key as a real token."),
    ),
    SampleModule(
        key="cropped",
        title=N_("Sliding cache, one key short"),
        law="cache",
        make=CropsItsCache,
        said=N_("A sliding cache that drops one key too many once it is past its window."),
    ),
    SampleModule(
        key="chunked-steps",
        title=N_("Several tokens per step see ahead"),
        law="cache",
        make=ChunkedStepsSeeAhead,
        said=N_("Several tokens in one step see each other in both directions, as if the mask restarted at each step."),
    ),
    SampleModule(
        key="wide",
        title=N_("Window one too wide"),
        law="reach",
        make=WindowTooWide,
        said=N_("A window of w in which a token sees w earlier tokens and itself: one more than declared."),
    ),
    SampleModule(
        key="narrow",
        title=N_("Window one too narrow"),
        law="gradients",
        make=WindowTooNarrow,
        said=N_("A window of w that excludes its farthest token."),
    ),
    SampleModule(
        key="training",
        title=N_("No mask in training mode"),
        law="training",
        make=TrainsWithoutMask,
        said=N_("The mask is built only in eval mode."),
    ),
    SampleModule(
        key="source",
        title=N_("Attends to the source's pads"),
        law="cross",
        make=LooksAtSourcePads,
        said=N_("Cross-attention without the source's padding mask."),
    ),
    SampleModule(
        key="encoder-pads",
        title=N_("The encoder attends to pads"),
        law="encoder",
        make=EncodesPads,
        said=N_("The encoder has no padding mask, though cross-attention has one."),
    ),
    SampleModule(
        key="encoder-causal",
        title=N_("A causal encoder"),
        law="encoder",
        make=EncodesCausally,
        said=N_("The encoder is given the decoder's causal mask: a source token never sees a later one."),
    ),
    SampleModule(
        key="hidden",
        title=N_("A leak that no substitute token reveals"),
        law="gradients",
        make=LeaksWhatFewTokensHave,
        said=N_(
            "Reads one number of every later embedding, and that number is the same for all tokens: no substitute "
            "reveals it."
        ),
    ),
    SampleModule(
        key="rows",
        title=N_("Rows of a batch mix"),
        law="batch",
        make=MixesItsRows,
        said=N_("Normalised over the batch: a row's outputs depend on the rows beside it."),
    ),
)
