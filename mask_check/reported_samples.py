"""The patients: modules to try the check on, each with what was wrong with it, and where published software had it."""

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


PATIENTS = (
    SampleModule(
        key="future",
        title=N_("Sees the future as a decoder"),
        law="reach",
        make=SeesTheFuture,
        said=N_("is_decoder, and a bidirectional mask all the same."),
        reported=N_("RoFormer, BigBird, RemBert and MegatronBert with is_decoder, transformers#48745"),
    ),
    SampleModule(
        key="sdpa",
        title=N_("Leaks under sdpa alone"),
        law="kernels",
        make=_leaking_under_sdpa,
        said=N_("Eager is given the mask; for sdpa it is left to a flag that is never set."),
        reported=N_("Doge, transformers#48748"),
    ),
    SampleModule(
        key="flex",
        title=N_("FlexAttention without its block mask"),
        law="kernels",
        make=IgnoresTheBlockMask,
        said=N_("FlexAttention is called, and its block mask never arrives."),
        reported=N_("FlexAttention's FLASH backend, pytorch#188322"),
    ),
    SampleModule(
        key="packed",
        title=N_("Packed documents see each other"),
        law="packing",
        make=PacksTogether,
        said=N_("Positions start again with each document; the mask goes on."),
        reported=N_("transformers#46634, axolotl#3796"),
    ),
    SampleModule(
        key="document-mask",
        title=N_("The mask of the documents is ignored"),
        law="packing",
        make=IgnoresTheDocumentMask,
        said=N_("A mask of the documents is taken, and the causal one used in its place."),
    ),
    SampleModule(
        key="counts-pads",
        title=N_("A pad moves every position"),
        law="padding-left",
        make=CountsPads,
        said=N_("The padding mask is obeyed, but positions are counted over pads too."),
        reported=N_("one pad moved a loss from 4.5 to 13.6, TransformerLens#1610"),
    ),
    SampleModule(
        key="pads",
        title=N_("Looks at pads"),
        law="pad-content",
        make=LooksAtPads,
        said=N_("The padding mask is taken, and forgotten."),
    ),
    SampleModule(
        key="repeated",
        title=N_("Masks repeated in the wrong order"),
        law="padding-left",
        make=RepeatsMasks,
        said=N_("Each row's mask is meant for all of its heads, and `repeat` lays the rows' masks out in turn."),
    ),
    SampleModule(
        key="cached-padding",
        title=N_("Padded prompt, then the cache"),
        law="cache",
        make=ForgetsPaddingWhenCached,
        said=N_(
            "All at once the padding mask is obeyed; a step through the cache takes every cached key for a real token."
        ),
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
        title=N_("Several tokens a step see ahead"),
        law="cache",
        make=ChunkedStepsSeeAhead,
        said=N_("Several tokens in one step see each other both ways, as if the mask began anew at each step."),
    ),
    SampleModule(
        key="wide",
        title=N_("Window one too wide"),
        law="reach",
        make=WindowTooWide,
        said=N_("A window of w that lets a token see w back and itself: one more than it says."),
    ),
    SampleModule(
        key="narrow",
        title=N_("Window one too narrow"),
        law="gradients",
        make=WindowTooNarrow,
        said=N_("A window of w that leaves out the farthest of its tokens."),
    ),
    SampleModule(
        key="training",
        title=N_("No mask in training mode"),
        law="training",
        make=TrainsWithoutMask,
        said=N_("The mask is made in eval mode alone."),
    ),
    SampleModule(
        key="source",
        title=N_("Looks at the source's pads"),
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
        title=N_("A leak that no token shows"),
        law="gradients",
        make=LeaksWhatFewTokensHave,
        said=N_(
            "Reads one number of every later embedding, and that number is the same for all tokens: no "
            "substitute shows it."
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
