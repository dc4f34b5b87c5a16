"""What a mask costs a kernel that works on blocks: its blocks, and a table of counts."""

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from viz.heatmap import CachedFigure
from viz.html import table, tag
from viz.inference import GREY, coloured_cells
from viz.palette import ALLOWED

if TYPE_CHECKING:  # it imports torch
    from model.inference.cost import MaskCost

BLOCKS = {N_("empty: skipped"): GREY, N_("partial: computed, then masked"): "#E69F00", N_("full: computed"): ALLOWED}
MOST_DRAWN = 256  # blocks a side
KERNELS = {
    "is_causal": N_("SDPA, is_causal"), "varlen": N_("FlashAttention, varlen and window arguments"),
    "attn_mask": N_("SDPA, boolean attn_mask"), "flex": N_("FlexAttention, mask_mod and BlockMask"),
}  # fmt: skip


def blocks_figure(found: "MaskCost") -> CachedFigure:
    """The blocks that a kernel computes, skips, or computes whole to mask some of their scores; of many, several in a
    cell, which is partial unless they are all alike."""
    blocks = found.blocks
    side = -(-len(blocks) // MOST_DRAWN)
    if side > 1:
        starts = np.arange(0, len(blocks), side)
        least, most = (np.minimum.reduceat(np.minimum.reduceat(blocks, starts, 0), starts, 1),
                       np.maximum.reduceat(np.maximum.reduceat(blocks, starts, 0), starts, 1))  # fmt: skip
        blocks = np.where(least == most, least, 1)
    names = list(map(say, BLOCKS))
    axis = {"showticklabels": False}
    sides = (axis | {"title": {"text": say(title)}} for title in (N_("blocks of keys"), N_("blocks of queries")))
    return coloured_cells(blocks.astype(int), tuple(BLOCKS.values()), names, *sides)


def blocks_key() -> Markup:
    """The colours of the blocks."""
    signs = [tag("span", tag("i", "", class_="swatch", style=f"background: {colour}") + say(name))
             for name, colour in BLOCKS.items()]  # fmt: skip
    return tag("p", Markup(" &ensp; ").join(signs), class_="key")


def cost_table(found: "MaskCost", head_size: int) -> Markup:
    """The counts, what they mean in operations and bytes for one head, and the kernels that take the mask."""
    blocks = len(found.blocks) ** 2
    rows = [
        (say("full blocks"), f"{found.full:,} / {blocks:,}"),
        (say("partial blocks"), f"{found.partial:,} / {blocks:,}"),
        (say("empty blocks"), f"{found.empty:,} / {blocks:,}"),
        (say("scores computed and then masked"), f"{found.share:.1%}"),
        (say("operations of one head of {size}", size=head_size), f"{found.flops(head_size) / 1e9:,.2f} GFLOP"),
        (say("keys and values read, in 2 bytes"), f"{found.key_value_bytes(head_size) / 2**20:,.1f} MiB"),
        (say("the mask as a boolean tensor"), f"{found.dense_bytes / 2**20:,.1f} MiB"),
        *((say(KERNELS[name]), say("yes") if takes else say("no")) for name, takes in found.kernels.items()),
    ]
    return table([[tag("td", name), tag("td", number, class_="number")] for name, number in rows], "numbers")


def cost_sentence(found: "MaskCost") -> str:
    """What a kernel that skips blocks saves."""
    blocks = len(found.blocks) ** 2
    return say("A kernel that skips empty blocks computes {share} of the {tokens} × {tokens} scores; {masked} of these "
               "are masked afterwards.", share=f"{(found.full + found.partial) / blocks:.1%}",
               tokens=f"{found.tokens:,}", masked=f"{found.share:.1%}")  # fmt: skip
