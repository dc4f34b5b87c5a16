"""All that can be checked without having a model: sound and broken small modules, by name."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

import torch

from i18n import N_
from mask_check.bug_clinic_samples import OwnDecoder, bugged
from mask_check.reported_samples import PATIENTS, SampleModule
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallPair
from model.base import CHECKPOINTS
from model.gpt2 import load_transformer

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
    """What of the Bug clinic's bugs is asked here: see model.bug_clinic.bug."""

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
    SampleModule(key="sound", title=N_("Sound: causal"), law="", make=SmallDecoder, said=N_("Causal, as it says.")),
    SampleModule(
        key="sound-window",
        title=N_("Sound: sliding window"),
        law="",
        make=partial(SmallDecoder, SmallConfig(sliding_window=3)),
        said=N_("A window of 3 in each of 3 layers: a reach of 6."),
    ),
    SampleModule(
        key="sound-chunk",
        title=N_("Sound: chunks"),
        law="",
        make=partial(SmallDecoder, SmallConfig(attention_chunk_size=5)),
        said=N_("Causal within chunks of 5."),
    ),
    SampleModule(
        key="sound-prefix",
        title=N_("Sound: prefix"),
        law="",
        make=partial(SmallDecoder, SmallConfig(prefix_length=6)),
        said=N_("The first 6 tokens see each other both ways."),
    ),
    SampleModule(
        key="sound-encoder",
        title=N_("Sound: encoder"),
        law="",
        make=partial(SmallDecoder, SmallConfig(is_causal=False)),
        said=N_("Every token sees every other."),
    ),
    SampleModule(
        key="sound-pair", title=N_("Sound: encoder-decoder"), law="", make=SmallPair, said=N_("With a source.")
    ),
)


def everyone(bugs: Iterable[ClinicBug]) -> dict[str, SampleModule]:
    """All by their names: the sound ones, the reported ones, and the Bug clinic's bugs that lie in an attention."""
    of_bugs = [of_bug(bug) for bug in bugs if bug.key in LAWS]
    return {one.key: one for one in (*SOUND, *PATIENTS, *of_bugs, TWIN)}
