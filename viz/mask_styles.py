"""Colours, hatchings, names and help texts of the mask kinds, one entry each, in the order of their controls.

model/mask_kinds.py defines what they do. The first six colours are Okabe and Ito's (2008).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from i18n import N_, say, say_all

PERIOD, STROKE = 6, 2  # pixels from line to line of a hatching, and width of a line
_DOWN, _ACROSS = np.indices((PERIOD, PERIOD))
_UP, _BACK = (_ACROSS + _DOWN) % PERIOD, (_ACROSS - _DOWN) % PERIOD


@dataclass(frozen=True, eq=False)
class Style:
    """Look and texts of a mask kind. name: within a sentence. label, help: of its control. All are translatable.

    colour: for light and dark pages; "" if its cells count as another kind's. lines: the hatching, int [PERIOD,PERIOD],
    with ink where the number modulo PERIOD is less than STROKE. hatch: the same as a matplotlib hatch. lifted: the
    sentence on a head whose model's own mask of this kind is off; its {head} is filled in.
    """

    name: str
    label: str
    help: str
    colour: str = ""
    lines: np.ndarray | None = None
    hatch: str = "////"
    lifted: str = ""


STYLES: dict[str, Style] = {
    "causal": Style(
        N_("causal"), N_("Causal"),
        N_("On: no token sees a later one. Off: tokens see later ones, too, where no other mask blocks them."),
        "#E69F00", _UP,
    ),
    "padding": Style(
        N_("padding"), N_("Padding"),
        N_("On: no token attends to the padding of short lines."),
        "#56B4E9", _BACK, "\\\\\\\\",
    ),
    "padding_queries": Style(
        N_("padding"), N_("queries too"),
        N_("Padding attends to nothing either: all cells of its rows are blocked."),
    ),
    "window": Style(
        N_("window"), N_("Window"),
        N_("On: in some layers a token sees only its neighbourhood, as this model was trained."),
        "#009E73", _ACROSS, "||||",
        N_("Without its window, {head} can attend to tokens at any distance, which it never could in training."),
    ),
    "chunk": Style(
        N_("chunk"), N_("Chunk"),
        N_("On: in some layers a token sees only its own chunk of the text, as this model was trained."),
        "#900000", _ACROSS - 2 * _DOWN, "++++",
        N_("Without its chunks, {head} can attend beyond a token's own chunk, which it never could in training."),
    ),
    "image_block": Style(
        N_("image block"), N_("Image block"),
        N_("On: the tokens of an image see each other, later ones too, as this model was trained."),
        "#44BBA4",
        lifted=N_("Without its image block, {head} sees an image's tokens in order, like those of a text."),
    ),
    "documents": Style(
        N_("documents"), N_("Documents"),
        N_("This separator splits the text into documents. No token may attend to another document."),
        "#D55E00", 2 * _ACROSS + _DOWN, "....",
    ),
    "sliding": Style(
        N_("sliding"), N_("Sliding window"),
        N_("With 4, a token may attend to itself and to the 3 tokens on either side; under the causal mask, to the "
           "3 before it."),
        "#0072B2", _DOWN, "----",
    ),
    "stride": Style(
        N_("stride"), N_("Stride"),
        N_("With 2, a token may attend to itself and to every second token from there; with 3, to every third. "
           "Together with a sliding window: a dilated window."),
        "#CC79A7", _ACROSS + 2 * _DOWN, "xxxx",
    ),
    "block_causal": Style(
        N_("block-causal"), N_("Block-causal"),
        N_("With 4, a token may attend to its own block of 4 tokens and to all earlier blocks, as in block "
           "diffusion. Turn Causal off to see more than the causal mask allows."),
        "#8C6D31", 2 * _ACROSS - _DOWN, "\\\\||",
    ),
    "prefix_lm": Style(
        N_("prefix-LM"), N_("Prefix-LM"),
        N_("With 4, the first 4 tokens attend to each other and all later ones are causal, as image tokens in "
           "PaliGemma. Unlike Prefix it opens nothing that a window blocks; turn Causal off to see it."),
        "#90C070", np.maximum(_UP, _BACK), "xx..",
    ),
    "prefix": Style(
        N_("prefix"), N_("Prefix"),
        N_("Opens cells. With 4, the first 4 tokens may all attend to each other, whatever other mask blocks them. "
           "Only the drawing overrides it."),
        "#F0E442",
    ),
    "sinks": Style(
        N_("sinks"), N_("Sinks"),
        N_("Opens cells. With 1, every token may attend to the first one, whatever other mask blocks it. Only the "
           "drawing overrides it."),
        "#B8A1E3",
    ),
    "drawn": Style(
        N_("drawn"), N_("Drawn"),
        N_("The cells drawn on the grid below. Off: the drawing is kept but has no effect."),
        "#912DF5", np.minimum(_UP, _BACK), "oooo",
    ),
}  # fmt: skip


def mask_name(name: str) -> str:
    """Return a mask's name in the user's language. name: its field in MaskSpec."""
    return say(STYLES[name].name)


def mask_names(names: Iterable[str]) -> str:
    """Join several masks' names into one phrase: "causal and padding"."""
    return say_all([mask_name(name) for name in names])
