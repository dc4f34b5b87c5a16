"""The Serving page: which call computed which cell, a draft tree, packed and streamed texts, and a mask's blocks.

Sizes: T positions, N blocks per side.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say, say_all, say_count, together
from viz.charts import BLOCKED, LEGEND, MARGIN, MAX_SIDE, coloured_cells, labelled, of_tokens, scatter, upright
from viz.heatmap import CachedFigure, Part, figure
from viz.html import escaped, headings, number_rows, swatch, table, tag, td
from viz.numbers import number, percent
from viz.palette import ALLOWED, NOW, SEQUENTIAL_SCALE, STANDARD

if TYPE_CHECKING:  # these modules import torch
    from model.inference.calls import CallsComparison, PackedLosses
    from model.inference.cost import MaskCost
    from model.inference.draft_tree import DraftTree
    from model.inference.streaming import StreamedText


CALLS = ("#4A90C2", "#E69F00", "#009E73", "#CC79A7", "#8C6D31", "#912DF5")  # of the calls; they repeat
HIGHLIGHT = "#E69F00"
SMOOTHED = 32  # largest number of tokens in the moving average of the loss
ALL_TICKS = 10  # with fewer keys, each has a tick
LEAF_HEIGHT = 26  # pixels: the height of a leaf of the tree, a dot and its token
CONVENTIONS = {
    "both": N_("mask and position ids"), "mask": N_("mask only"),
    "positions": N_("position ids only"), "neither": N_("neither"),
}  # fmt: skip
SERIES = (STANDARD, "#009E73", "#56B4E9", "#E69F00", NOW)
CALLS_WRONG = N_(
    "With this alignment {count} calls leave out {missed} of the first layer's cells that one call computes, and "
    "compute {extra} that it does not: the largest difference between logits is {difference}."
)
CALLS_LATER = N_(
    "With this alignment {count} calls compute the cells of one call in the first layer, but others in later layers: "
    "the largest difference between logits is {difference}."
)
ONE_CALL = N_("One call computes every cell ({cells} in the first layer).")
CALLS_EQUAL = N_(
    "{count} calls compute {cells} cells of the first layer, each once, and give the logits of one call up to "
    "rounding: the largest difference is {difference}."
)
SHARED = N_(
    "The second continuation reads the cached tokens ({prefix}) instead of computing their cells ({saved} in the first "
    "layer) again."
)
CALLS_DIFFER = N_(
    "{count} calls give other logits than one call: the largest difference is {difference}. A part of this model does "
    "not carry its state from call to call."
)
CALLS_NEARLY = N_(
    "{count} calls give almost the logits of one call: the largest difference is {difference}, {share} of the largest "
    "logit."
)
STATE_LOSS_SHARE = 0.01  # of the largest logit: a state that is not carried between calls makes a larger difference
TREE_EQUAL = N_(
    "Verified in one call, every node of the tree (nodes: {nodes}) has the logits of its own branch run alone up to "
    "rounding: the largest difference is {difference}."
)
TREE_DIFFERS = N_(
    "Verified in one call, nodes of the tree (nodes: {nodes}) have other logits than their own branch run alone: the "
    "largest difference is {difference}."
)
STREAMED_SINKS = N_(
    "{done} tokens were read with a cache of {size} tokens (sinks: {sinks}), at most {held} MiB. From position {size} "
    "on, the mean loss is {with_sinks} nats with sinks and {without} with the last {size} tokens alone."
)
STREAMED = N_(
    "{done} tokens were read with a cache of the last tokens (size: {size}), at most {held} MiB. From position {size} "
    "on, the mean loss is {without} nats."
)
RELATIVE = N_("Tokens are numbered by their places in the cache: in this model only distances count.")
CHUNKED = N_("Tokens, and the chunks of its mask, are numbered by their places in the cache.")
HIDDEN = N_(
    "In every layer, the model's own mask hides the first {hidden} of the {kept} tokens in the cache from the newest "
    "one, all sinks among them."
)
IN_TEXT = N_("Tokens keep their positions in the text: this model's positions are absolute, and part of cached keys.")
ABSOLUTE = N_(
    "This model's positions are absolute, and part of cached keys: tokens keep their positions in the text, and after "
    "the first {context} numbering restarts after the sinks."
)
ABSOLUTE_ALONE = N_(
    "This model's positions are absolute, and part of cached keys: tokens keep their positions in the text, and after "
    "the first {context} numbering restarts from 0."
)
PACKED_APART = N_("Documents packed into one row have the logits of each document alone with: {names}.")
BLOCKS = {N_("empty: skipped"): BLOCKED, N_("partial: computed, then masked"): "#E69F00", N_("full: computed"): ALLOWED}
LAST_CALL = N_("Each cell shows {step} × {step} cells: the last call that computes any of them.")
MAX_DRAWN = 256  # blocks per side
KERNELS = {
    "is_causal": N_("SDPA, is_causal"), "varlen": N_("FlashAttention, varlen and window arguments"),
    "attn_mask": N_("SDPA, boolean attn_mask"), "flex": N_("FlexAttention, mask_mod and BlockMask"),
}  # fmt: skip


def calls_figure(found: "CallsComparison", labels: Sequence[str]) -> CachedFigure:
    """Draw the T × T cells of the first layer, each in the colour of the call that computed it."""
    names = [say("call {number}", number=number + 1) for number in range(len(found.calls))]
    return coloured_cells(found.cells, CALLS, names, *of_tokens(labels), coarse=LAST_CALL)


def kernel_figure(found: "CallsComparison") -> CachedFigure:
    """Draw each call's rectangle [Q,K] as its kernel sees it, one below the other."""
    tokens, gap = len(found.cells), max(len(found.cells) // (12 * len(found.calls)), 1)
    rows: list[np.ndarray] = []
    start = 0
    for queries, keys in found.calls:
        part = np.full((queries, tokens), -1, np.int16)
        seen = np.r_[: keys - queries, start : start + queries]  # a second continuation: the prefix and itself
        computed = found.cells[start : start + queries][:, seen] == len(rows) // 2
        part[:, :keys] = np.where(computed, len(rows) // 2 + 1, 0)
        rows += [part, np.full((gap, tokens), -1, np.int16)]
        start += queries
    names = [say("blocked"), *(say("call {number}", number=number + 1) for number in range(len(found.calls)))]
    colours = (BLOCKED, *(CALLS[number % len(CALLS)] for number in range(len(found.calls))))
    across = {"title": {"text": say("keys")}} | ({"dtick": 1} if tokens < ALL_TICKS else {})  # else ticks between keys
    shown = np.concatenate(rows[:-1])
    return coloured_cells(shown, colours, names, across, {"showticklabels": False}, coarse=LAST_CALL)


def calls_table(found: "CallsComparison") -> Markup:
    """Return a table of the calls: queries and keys of each, and how many cells of its rectangle were computed."""
    rows = [headings(map(say, (N_("call"), N_("queries"), N_("keys"), N_("computed cells of the first layer"))))]
    for call, (queries, keys) in enumerate(found.calls):
        computed = int((found.cells == call).sum())
        numbers = f"{call + 1}", f"{queries:,}", f"{keys:,}", f"{computed:,} / {queries * keys:,}"
        rows.append([td(text, "number") for text in numbers])
    return table(rows)


def calls_sentence(found: "CallsComparison", second: bool) -> str:
    """Say how far the calls' result is from that of one call, and what a wrong alignment leaves out or adds. second:
    whether there is a second continuation."""
    sizes = {"count": len(found.calls), "cells": f"{found.computed:,}", "missed": f"{found.missed:,}",
             "extra": f"{found.extra:,}", "difference": number(found.difference)}  # fmt: skip
    if found.missed or found.extra or found.twice:
        return say(CALLS_WRONG, **sizes)
    if found.later:
        return say(CALLS_LATER, **sizes)
    if found.difference > found.tolerance:
        share = found.difference / found.size
        first = say(CALLS_DIFFER if share > STATE_LOSS_SHARE else CALLS_NEARLY, **sizes, share=percent(share))
    else:
        first = say(CALLS_EQUAL if len(found.calls) > 1 else ONE_CALL, **sizes)
    prefix = found.calls[0][1]
    saved = f"{int((found.cells[:prefix, :prefix] >= 0).sum()):,}"
    return together([first, say(SHARED, prefix=prefix, saved=saved)]) if second else first


def tree_figure(found: "DraftTree", start: str, chosen: int) -> CachedFigure:
    """Draw the tree of draft tokens, from the text's last token; the accepted path has its own colour, and the chosen
    node (-1 for none) and those that it attends to have a ring."""
    depth, down = [0] * len(found.parents), {-1: 0.0}
    for node, parent in enumerate(found.parents):
        depth[node] = 1 if parent < 0 else depth[parent] + 1
    leaves = [node for node in _depth_first(found.parents) if node not in found.parents]
    down |= {leaf: float(row) for row, leaf in enumerate(leaves)}
    for node in reversed(range(len(found.parents))):
        children = [down[child] for child, parent in enumerate(found.parents) if parent == node]
        down[node] = sum(children) / len(children) if children else down[node]
    roots = [down[node] for node, parent in enumerate(found.parents) if parent < 0]
    down[-1] = sum(roots) / len(roots)
    across = {-1: 0, **dict(enumerate(depth))}
    looks = {"color": "#8A8F98", "width": 1}, {"color": NOW, "width": 3}
    lines = []
    for node, parent in enumerate(found.parents):
        x, y = [across[parent], across[node]], [down[parent], down[node]]
        lines.append(scatter(x, y, "", mode="lines", line=looks[node in found.accepted]))
    nodes = [-1, *range(len(found.parents))]
    names = [escaped(label) for label in (start, *found.labels)]
    dots: Part = {
        "type": "scatter", "mode": "markers+text", "x": [across[node] for node in nodes],
        "y": [down[node] for node in nodes], "text": names, "textposition": "top center",  # not shown
        "marker": {"size": 11, "color": [NOW if node in found.accepted else STANDARD for node in nodes],
                   "line": {"color": HIGHLIGHT, "width": _rings(found, chosen)}},
        "hovertext": [_node_tooltip(found, node) if node >= 0 else say("the text's last token") for node in nodes],
        "customdata": [[node] for node in nodes], "hoverinfo": "text",
    }  # fmt: skip
    hidden = {"visible": False, "fixedrange": True}
    height = max(320, LEAF_HEIGHT * (len(leaves) + 1))
    layout = {"xaxis": hidden | {"range": [-0.5, max(depth) + 0.6]}, "height": height, "showlegend": False}
    layout |= {"yaxis": hidden | {"range": [max(len(leaves) - 0.5, 0.7), -0.9]}, "margin": MARGIN}
    return figure([*lines, dots], layout)


def tree_mask_figure(found: "DraftTree", labels: Sequence[str], chosen: int) -> CachedFigure:
    """Draw the call's mask; draft tokens that the chosen node attends to have their own colour in its row. Hovering a
    row draws rings in the tree around the nodes that it attends to."""
    shown, start, first = found.allowed.astype(int), found.start, max(len(found.allowed) - MAX_SIDE, 0)
    shown[start + chosen, [start + node for node in found.seen(chosen)]] *= 2
    names = [say("blocked"), say("allowed"), say("seen by the chosen token")]
    sides = of_tokens([*labels, *found.labels][first:])
    rows = [_rings(found, node) for node in (*[-1] * start, *range(len(found.parents)), chosen)]  # last: no hover
    meta = {"rings": {"of": "tree", "rows": rows[first:]}}
    colours = BLOCKED, ALLOWED, HIGHLIGHT
    return coloured_cells(shown[first:, first:], colours, names, *sides, first=first, meta=meta)


def _node_tooltip(found: "DraftTree", node: int) -> str:
    words, start = N_("position {position}; sees the text and {path}"), found.start
    seen = int(found.allowed[start + node, :start].sum())
    if seen < start:  # in a window
        words = N_("position {position}; sees {seen} of the {count} tokens of the text and {path} (first layer)")
    path = escaped(" ".join(found.labels[one] for one in found.seen(node)))
    return say(words, position=found.positions[start + node], seen=seen, count=start, path=path)


def _rings(found: "DraftTree", node: int) -> list[int]:
    """Return the widths of the rings around the text's last token (0) and each node: 0 unless `node` attends to it."""
    seen = found.seen(node)
    return [0, *(3 if one in seen else 0 for one in range(len(found.parents)))]


def tree_table(found: "DraftTree", other: "DraftTree") -> Markup:
    """Return a table of what one call yields, and how far each choice of positions is from running each branch alone.
    other: the same tree with the other positions."""
    by = {one.by: one.difference for one in (found, other)}
    rows = [
        (say("draft tokens"), str(len(found.parents))),
        (say("accepted by greedy verification"), str(len(found.accepted))),
        (say("tokens that the call yields"), str(found.tokens_per_call)),
        (say("largest difference, positions by depth"), number(by["depth"])),
        (say("largest difference, positions by row (wrong)"), number(by["row"])),
    ]
    return table(number_rows(rows))


def tree_sentence(found: "DraftTree") -> str:
    """Say whether each branch gets the same logits as alone, and what greedy verification accepts."""
    equal = found.difference <= found.tolerance
    first = say(TREE_EQUAL if equal else TREE_DIFFERS, nodes=len(found.parents), difference=number(found.difference))
    path = escaped("".join(found.labels[node] for node in found.accepted))
    count = len(found.accepted)
    accepted = say_count("Greedy verification accepts {count} token: “{path}”.",
                         "Greedy verification accepts {count} tokens: “{path}”.", count, path=path)  # fmt: skip
    return together([first, accepted if count else say("Greedy verification accepts no token.")])


def packing_figure(found: "PackedLosses") -> CachedFigure:
    """Draw each document's mean loss alone and under each convention."""
    names = [say("document {number}", number=number + 1) for number in range(len(found.sizes))]
    series = [(say("alone"), found.alone), *((say(CONVENTIONS[name]), losses) for name, losses in found.packed.items())]
    bars: list[Part] = [
        {"type": "bar", "name": name, "x": names, "y": losses, "marker": {"color": colour}}
        for (name, losses), colour in zip(series, SERIES, strict=False)
    ]
    look = {"barmode": "group", "height": 360, "margin": MARGIN | {"l": 56, "b": 40}, "legend": LEGEND}
    return figure(bars, look | {"yaxis": {"title": {"text": say("mean loss, nats")}}})


def packing_sentence(found: "PackedLosses") -> str:
    """Say which conventions keep the documents from attending to each other."""
    named = [(say(CONVENTIONS[name]), difference) for name, difference in found.differences.items()]
    equal = listed((name for name, difference in named if difference <= found.tolerance), N_("; "))
    others = listed((f"{name} {number(far)}" for name, far in named if far > found.tolerance), N_("; "))
    said = [say(PACKED_APART, names=equal) if equal else say("No convention gives the logits of each document alone.")]
    if others:
        words = N_("Largest difference with the others: {names}.") if equal else N_("Largest differences: {names}.")
        said.append(say(words, names=others))
    if len(named) < len(CONVENTIONS):
        said.append(say("Position ids are left out: this model computes its own."))
    if short := [f"{document}" for document, size in enumerate(found.sizes, 1) if size == 1]:
        said.append(say_count("Document {documents} has one token, and so no loss.",
                              "Documents {documents} have one token each, and so no loss.",
                              len(short), documents=say_all(short)))  # fmt: skip
    return together(said)


def stream_figure(found: "StreamedText") -> CachedFigure:
    """Draw the moving average of the loss along the text, and the cache's size beside that of a cache of all tokens."""
    begin = found.sinks + found.window
    tokens, span = np.arange(1, len(found.ids)), max(min(SMOOTHED, len(found.ids) // 8), 1)
    names = [say("with sinks ({sinks})", sinks=found.sinks), say("the last tokens alone ({window})", window=begin)]
    lines: list[Part] = []
    for name, losses, colour in [*zip(names, found.losses, (STANDARD, NOW), strict=True)][not found.sinks :]:
        mean = np.convolve(losses[1:], np.ones(span) / span)[span - 1 : len(tokens)].astype(np.float32)
        lines.append(_line(tokens[span - 1 :], mean, name, {"color": colour, "width": 2}))
    ends = np.minimum(np.arange(1, len(found.cache_bytes) + 1) * found.step, len(found.ids))
    held = np.array(found.cache_bytes) / 2**20
    each = held[0] / ends[0] if len(held) else 0.0
    for name, size, colour, dash in ((say("cache"), held, "#009E73", "solid"),
                                     (say("cache of the whole text"), each * ends, "#8A8F98", "dot")):  # fmt: skip
        line = _line(ends, size.astype(np.float32), name, {"color": colour, "dash": dash})
        lines.append(line | {"yaxis": "y2"})
    layout: Part = {
        "height": 400, "margin": MARGIN | {"l": 56, "b": 40}, "hovermode": "x", "legend": LEGEND,
        "xaxis": {"title": {"text": say("tokens read")}, "range": [0, len(found.ids)], "anchor": "y2"},
        "yaxis": {"title": {"text": say("loss, nats, mean of {count}", count=span)}, "domain": [0.4, 1]},
        "yaxis2": {"title": {"text": "MiB"}, "domain": [0, 0.28], "rangemode": "tozero"},
        "shapes": [upright(begin, color="#8A8F98", dash="dash", width=1) | {"yref": "paper"}],
    }  # fmt: skip
    return figure(lines, layout)


def sinks_figure(found: "StreamedText", labels: Sequence[str], heads: Sequence[str]) -> CachedFigure:
    """Draw the newest token's attention in every head to the cached tokens. labels: of these. heads: names."""
    shown = found.weights if found.learned else found.weights[:, :-1]
    names = [*labels, *([say("learned sink")] if found.learned else [])]
    bar, hover = {"thickness": 10, "title": {"text": say("weight")}}, "%{y}, %{x}: %{z:.3f}<extra></extra>"
    trace: Part = {"type": "heatmap", "z": shown, "y": list(heads), "hovertemplate": hover}
    trace |= {"zmin": 0, "zmax": 1, "colorscale": SEQUENTIAL_SCALE, "colorbar": bar}
    across = labelled(names, N_("key in the cache"))
    if found.learned:  # the learned sink is always labelled
        across["tickvals"][-1], across["ticktext"][-1] = len(labels), names[-1]
    layout: Part = {
        "height": 400, "margin": MARGIN,
        "xaxis": {"automargin": True, "ticks": "", "tickangle": -90} | across,
        "yaxis": {"automargin": True, "autorange": "reversed", "title": {"text": say("head")}},
    }  # fmt: skip
    return figure([trace], layout)


def stream_alt(found: "StreamedText") -> str:
    """Return alternative text for stream_figure and sinks_figure."""
    words = N_("The loss of {done} tokens, what the cache takes, and the newest token's attention to {kept} keys.")
    return say(words, done=f"{found.done:,}", kept=f"{len(found.kept):,}")


def stream_sentence(found: "StreamedText", context: int, *, chunked: bool) -> str:
    """Say how sinks change the loss, how large the cache is, and which positions tokens have. context: the model's, in
    tokens. chunked: whether its mask has chunks."""
    size = found.sinks + found.window
    if found.done <= size:
        return say("{done} of {count} tokens have been read, and no key has been dropped: the cache can store {size}.",
                   done=f"{found.done:,}", count=f"{len(found.ids):,}", size=f"{size:,}")  # fmt: skip
    with_sinks, without = (f"{mean:.2f}" for mean in found.means)
    held = number(max(found.cache_bytes) / 2**20)
    numbers = {"size": f"{size:,}", "sinks": found.sinks, "with_sinks": with_sinks, "without": without, "held": held}
    first = say(STREAMED_SINKS if found.sinks else STREAMED, done=f"{found.done:,}", **numbers)
    again = ABSOLUTE if found.sinks else ABSOLUTE_ALONE
    where = (CHUNKED if chunked else RELATIVE) if found.relative else again if found.done > context else IN_TEXT
    hides = 0 < found.sinks <= found.hidden
    hidden = [say(HIDDEN, hidden=f"{found.hidden:,}", kept=f"{len(found.kept):,}")] if hides else []
    return together([first, say(where, context=f"{context:,}"), *hidden])


def _line(x: Any, y: Any, name: str, line: Part) -> Part:
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": line}


def _depth_first(parents: Sequence[int], node: int = -1) -> list[int]:
    """Return the descendants of a node in depth-first order, each before its own descendants."""
    children = [child for child, parent in enumerate(parents) if parent == node]
    return [one for child in children for one in (child, *_depth_first(parents, child))]


def blocks_figure(found: "MaskCost") -> CachedFigure:
    """Draw which blocks a kernel computes, skips, or computes in part. Above MAX_DRAWN blocks per side, a cell stands
    for several blocks, and is partial unless all are the same."""
    blocks = found.blocks
    side = -(-len(blocks) // MAX_DRAWN)
    if side > 1:
        starts = np.arange(0, len(blocks), side)
        least, most = (how.reduceat(how.reduceat(blocks, starts, 0), starts, 1) for how in (np.minimum, np.maximum))
        blocks = np.where(least == most, least, 1)
    axis = {"showticklabels": False}
    sides = (axis | {"title": {"text": say(title)}} for title in (N_("blocks of keys"), N_("blocks of queries")))
    return coloured_cells(blocks.astype(int), tuple(BLOCKS.values()), list(map(say, BLOCKS)), *sides)


def blocks_key() -> Markup:
    """Return the key to the colours of the blocks."""
    signs = (tag("span", swatch(colour) + say(name)) for name, colour in BLOCKS.items())
    return tag("p", Markup(" &ensp; ").join(signs), class_="key")


def cost_table(found: "MaskCost", head_size: int) -> Markup:
    """Return a table of block counts, operations and bytes of one head, and the kernels that accept the mask."""
    blocks = len(found.blocks) ** 2
    rows = [
        (say("full blocks"), f"{found.full:,} / {blocks:,}"),
        (say("partial blocks"), f"{found.partial:,} / {blocks:,}"),
        (say("empty blocks"), f"{found.empty:,} / {blocks:,}"),
        (say("scores computed and then masked"), percent(found.share)),
        (say("operations of one head of {size}", size=head_size), f"{number(found.flops(head_size) / 1e9)} GFLOP"),
        (say("keys and values read, in 2 bytes"), f"{number(found.key_value_bytes(head_size) / 2**20)} MiB"),
        (say("the mask as a boolean tensor"), f"{number(found.dense_bytes / 2**20)} MiB"),
        *((say(KERNELS[name]), say("yes") if takes else say("no")) for name, takes in found.kernels.items()),
    ]
    return table(number_rows(rows))


def cost_sentence(found: "MaskCost") -> str:
    """Say what a kernel that skips blocks saves, in shares of the scores of all blocks, which may exceed the text."""
    blocks, side = len(found.blocks) ** 2, len(found.blocks) * found.block
    words = N_(
        "A kernel that skips empty blocks computes {share} of the {tokens} × {tokens} scores; {masked} of these are "
        "masked afterwards."
    )
    shares = {"share": percent((found.full + found.partial) / blocks), "masked": percent(found.share)}
    padded = N_("The number of tokens, {tokens}, is rounded up to {whole}, in whole blocks.")
    beyond = [say(padded, tokens=f"{found.tokens:,}", whole=f"{side:,}")] if side > found.tokens else []
    return together([say(words, tokens=f"{side:,}", **shares), *beyond])
