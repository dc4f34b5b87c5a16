"""Pictures of the Serving page: which call computed which cell, a draft tree, packed documents, blocks of a mask.

Sizes: T positions, N blocks a side.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say, say_count, together
from viz.heatmap import KEY_TITLE, LONGEST_TICK, MOST_TICKS, QUERY_TITLE, CachedFigure, figure
from viz.html import escaped, shortened, table, tag
from viz.numbers import number, percent
from viz.palette import ALLOWED, NOW, STANDARD

if TYPE_CHECKING:  # they import torch
    from model.inference.calls import CallsComparison
    from model.inference.cost import MaskCost
    from model.inference.draft_tree import DraftTree
    from model.inference.packing import PackedLosses

CALLS = (
    "#4A90C2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#8C6D31",
    "#912DF5",
)  # in turn
GREY = "rgba(128,128,128,.28)"
BLOCKS = {N_("empty: skipped"): GREY, N_("partial: computed, then masked"): "#E69F00", N_("full: computed"): ALLOWED}
MOST_DRAWN = 256  # blocks a side
CONVENTIONS = {
    "both": N_("mask and position ids"), "mask": N_("mask only"),
    "positions": N_("position ids only"), "neither": N_("neither"),
}  # fmt: skip
KERNELS = {
    "is_causal": N_("SDPA, is_causal"), "varlen": N_("FlashAttention, varlen and window arguments"),
    "attn_mask": N_("SDPA, boolean attn_mask"), "flex": N_("FlexAttention, mask_mod and BlockMask"),
}  # fmt: skip
SERIES = (STANDARD, "#009E73", "#56B4E9", "#E69F00", NOW)
CALLS_TOP_LEFT = N_(
    "Aligned at the top left, {count} calls leave out {missed} of the cells that one call computes: the largest "
    "difference between logits is {difference}."
)
CALLS_DIFFER = N_(
    "{count} calls give other logits than one call: the largest difference is {difference}. A part of this model does "
    "not carry its state from call to call."
)
TREE_EQUAL = N_(
    "One call verifies {nodes} tokens, and each has the logits of its own branch run alone up to rounding: the largest "
    "difference is {difference}."
)
TREE_DIFFERS = N_(
    "One call verifies {nodes} tokens, but with other logits than each branch run alone: the largest difference is "
    "{difference}."
)
PACKED_APART = N_("Documents packed into one row have the logits of each document alone with: {names}.")
PACKED_MIXED = N_("No convention gives the logits of each document alone.")
PACKED_OTHERS = N_("Largest difference with the others: {names}.")
Part = dict[str, Any]


def calls_figure(found: "CallsComparison", labels: Sequence[str]) -> CachedFigure:
    """The T × T cells of the first layer, each in the colour of the call that computed it."""
    names = [say("call {number}", number=number + 1) for number in range(len(found.calls))]
    return _cells(found.cells, CALLS, names, _tokens(labels, KEY_TITLE), _tokens(labels, QUERY_TITLE))


def kernel_figure(found: "CallsComparison") -> CachedFigure:
    """Each call's rectangle [Q,K] as its kernel sees it, one below the other."""
    tokens, gap = len(found.cells), max(len(found.cells) // 24, 1)
    rows: list[np.ndarray] = []
    start = 0
    for queries, keys in found.calls:
        part = np.full((queries, tokens), -1)
        part[:, :keys] = np.where(found.cells[start : start + queries, :keys] >= 0, len(rows) // 2 + 1, 0)
        rows += [part, np.full((gap, tokens), -1)]
        start += queries
    names = [say("blocked"), *(say("call {number}", number=number + 1) for number in range(len(found.calls)))]
    shown = np.concatenate(rows[:-1])
    colours = (GREY, *(CALLS[number % len(CALLS)] for number in range(len(found.calls))))
    return _cells(shown, colours, names, {"title": {"text": say("keys")}}, {"showticklabels": False})


def calls_table(found: "CallsComparison") -> Markup:
    """A row for each call: its queries and keys, and of the cells of its rectangle those that were computed."""
    rows = [[tag("th", say(name)) for name in (N_("call"), N_("queries"), N_("keys"), N_("computed cells"))]]
    for call, (queries, keys) in enumerate(found.calls):
        computed = int((found.cells == call).sum())
        numbers = f"{call + 1}", f"{queries:,}", f"{keys:,}", f"{computed:,} / {queries * keys:,}"
        rows.append([tag("td", text, class_="number") for text in numbers])
    return table(rows, "numbers")


def calls_sentence(found: "CallsComparison", align: str) -> str:
    """How far the calls are from one call, and what a wrong alignment leaves out."""
    sizes = {"count": f"{len(found.calls):,}", "cells": f"{found.computed:,}", "missed": f"{found.missed:,}"}
    sizes["difference"] = number(found.difference)
    if found.difference <= found.tolerance:
        return say_count(
            "One call computes {cells} cells.",
            "{count} calls compute {cells} cells, each once, and give the logits of one call up to rounding: the "
            "largest difference is {difference}.",
            len(found.calls),
            **sizes,
        )
    return say(CALLS_TOP_LEFT if align == "top-left" else CALLS_DIFFER, **sizes)


def tree_figure(found: "DraftTree", start: str) -> CachedFigure:
    """The tree of tokens, from the text's last token; the accepted path in its own colour."""
    depth, down = [0] * len(found.parents), {-1: 0.0}
    for node, parent in enumerate(found.parents):
        depth[node] = 1 if parent < 0 else depth[parent] + 1
    leaves = [node for node in _depth_first(found.parents) if node not in found.parents]
    down |= {leaf: float(place) for place, leaf in enumerate(leaves)}
    for node in reversed(range(len(found.parents))):
        children = [down[child] for child, parent in enumerate(found.parents) if parent == node]
        down[node] = sum(children) / len(children) if children else down[node]
    roots = [down[node] for node, parent in enumerate(found.parents) if parent < 0]
    down[-1] = sum(roots) / len(roots)
    across = {-1: 0, **dict(enumerate(depth))}
    lines: list[Part] = [
        {"type": "scatter", "mode": "lines", "x": [across[parent], across[node]], "y": [down[parent], down[node]],
         "line": {"color": NOW if node in found.accepted else "#8A8F98", "width": 3 if node in found.accepted else 1},
         "hoverinfo": "skip", "showlegend": False}
        for node, parent in enumerate(found.parents)
    ]  # fmt: skip
    nodes = [-1, *range(len(found.parents))]
    names = [escaped(label) for label in (start, *found.labels)]
    dots: Part = {
        "type": "scatter", "mode": "markers+text", "x": [across[node] for node in nodes],
        "y": [down[node] for node in nodes], "text": names, "textposition": "top center",  # not shown
        "marker": {"size": 9, "color": [NOW if node in found.accepted else STANDARD for node in nodes]},
        "hovertext": [say("position {position}", position=found.positions[node + len(found.positions) - len(depth)])
                      if node >= 0 else say("the text's last token") for node in nodes],
        "hoverinfo": "text", "showlegend": False,
    }  # fmt: skip
    hidden = {"visible": False, "fixedrange": True}
    layout = {"xaxis": hidden | {"range": [-0.5, max(depth) + 0.6]}, "height": 320,
              "yaxis": hidden | {"range": [max(len(leaves) - 0.5, 0.7), -0.9]},
              "margin": {"l": 8, "r": 8, "t": 8, "b": 8}}  # fmt: skip
    return figure([*lines, dots], layout)


def tree_sentence(found: "DraftTree", tolerance: float) -> str:
    """Whether each branch is what it is alone, and what greedy verification accepts."""
    equal = found.difference <= tolerance
    first = say(TREE_EQUAL if equal else TREE_DIFFERS, nodes=len(found.parents), difference=number(found.difference))
    path = escaped("".join(found.labels[node] for node in found.accepted))
    accepted = say("Greedy verification accepts {count} tokens: “{path}”.", count=len(found.accepted), path=path)
    return together([first, accepted])


def mask_figure(allowed: np.ndarray, labels: Sequence[str]) -> CachedFigure:
    """A mask, bool [T,T]."""
    names = [say("blocked"), say("allowed")]
    sides = _tokens(labels, KEY_TITLE), _tokens(labels, QUERY_TITLE)
    return _cells(allowed.astype(int), (GREY, ALLOWED), names, *sides)


def packing_figure(found: "PackedLosses") -> CachedFigure:
    """Each document's mean loss alone and under each convention."""
    names = [say("document {number}", number=number + 1) for number in range(len(found.sizes))]
    series = [(say("alone"), found.alone), *((say(CONVENTIONS[name]), losses) for name, losses in found.packed.items())]
    bars: list[Part] = [
        {"type": "bar", "name": name, "x": names, "y": losses, "marker": {"color": colour}}
        for (name, losses), colour in zip(series, SERIES, strict=True)
    ]
    layout: Part = {
        "barmode": "group",
        "height": 360,
        "margin": {"l": 56, "r": 8, "t": 8, "b": 40},
        "yaxis": {"title": {"text": say("mean loss, nats")}},
        "legend": {"orientation": "h", "y": 1.15},
    }
    return figure(bars, layout)


def packing_sentence(found: "PackedLosses", tolerance: float) -> str:
    """Which conventions keep the documents apart."""
    apart = [say(CONVENTIONS[name]) for name, difference in found.differences.items() if difference <= tolerance]
    others = [
        f"{say(CONVENTIONS[name])} {number(difference)}"
        for name, difference in found.differences.items()
        if difference > tolerance
    ]
    first = say(PACKED_APART, names=listed(apart, N_("; "))) if apart else say(PACKED_MIXED)
    return together([first, say(PACKED_OTHERS, names=listed(others, N_("; ")))] if others else [first])


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
    return _cells(blocks.astype(int), tuple(BLOCKS.values()), names, axis | {"title": {"text": say("blocks of keys")}},
                  axis | {"title": {"text": say("blocks of queries")}})  # fmt: skip


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
        (say("scores computed and then masked"), percent(found.share)),
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
               "are masked afterwards.", share=percent((found.full + found.partial) / blocks),
               tokens=f"{found.tokens:,}", masked=percent(found.share))  # fmt: skip


def _cells(values: np.ndarray, colours: Sequence[str], names: Sequence[str], x: Part, y: Part) -> CachedFigure:
    """Whole numbers as coloured cells, −1 empty; each number has a name, and the colours come again and again."""
    kinds = values % len(colours)
    steps = len(colours)
    scale = [[(step + end) / steps, colours[step]] for step in range(steps) for end in (0, 1)]
    shown = np.where(values >= 0, kinds, np.nan).astype(np.float32)
    text = np.array([*names, ""], dtype=object)[values]
    trace: Part = {
        "type": "heatmap", "z": shown, "zmin": -0.5, "zmax": steps - 0.5, "colorscale": scale, "showscale": False,
        "hovertext": text.tolist(), "hovertemplate": "%{y}, %{x}: %{hovertext}<extra></extra>", "xgap": 0, "ygap": 0,
    }  # fmt: skip
    if len(values) <= MOST_TICKS:
        trace |= {"xgap": 1, "ygap": 1}
    square = {"constrain": "domain", "showgrid": False, "zeroline": False, "ticks": ""}
    layout: Part = {
        "xaxis": square | x, "yaxis": square | y | {"autorange": "reversed", "scaleanchor": "x"},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "height": 470,
    }  # fmt: skip
    for axis in (layout["xaxis"], layout["yaxis"]):
        axis["automargin"] = True
    return figure([trace], layout)


def _tokens(labels: Sequence[str], title: str) -> Part:
    """An axis of tokens, every so many of them labelled."""
    step = -(-len(labels) // MOST_TICKS)
    places = list(range(0, len(labels), step))
    return {
        "tickvals": places,
        "ticktext": [escaped(shortened(labels[place], LONGEST_TICK)) for place in places],
        "title": {"text": say(title)},
    }


def _depth_first(parents: Sequence[int], node: int = -1) -> list[int]:
    """The nodes below one, each before those below it."""
    children = [child for child, parent in enumerate(parents) if parent == node]
    return [one for child in children for one in (child, *_depth_first(parents, child))]
