"""The composed mask as one packet of bytes for the component on which masks are drawn (components/mask.js).

Each cell's state is computed here: the packet lists all verdicts that occur, and which one each cell has.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from i18n import N_, listed, say, say_all, together
from model.heads.view import MaskView
from viz.components import packed, words
from viz.figure_table import MAX_COLUMNS, MAX_ROWS, FigureTable, grid
from viz.hatch import ink
from viz.heatmap import KEY_TITLE, QUERY_TITLE, margin
from viz.html import named, numbered, swatch
from viz.mask_styles import mask_name, mask_names
from viz.palette import ALLOWED, APART, MARK, MASK_COLOURS

HINT = N_(
    "Drag on the cells, or beside a row or below a column for all of it. Point at a cell to read why it is blocked."
)
ALT = N_(
    "The composed mask: queries in rows ({queries}), keys in columns ({keys}). Arrow keys move, with Shift they choose "
    "a rectangle, Enter draws; r draws the whole row, c the column, u undoes, Delete clears."
)
HINT_TO_READ = N_("Point at a cell, or move over the cells with the arrow keys, to read why it is blocked.")
STROKES = ("", "block", "open")  # no stroke, and the kinds that leave a mark ("erase" leaves none)
ALT_TO_READ = N_("The composed mask: queries in rows ({queries}), keys in columns ({keys}). Arrow keys move.")


def canvas_packet(
    view: MaskView,
    *,
    rows: tuple[int, int],
    columns: tuple[int, int],
    epoch: int,
    number: int,
    most: int,
    query: int | None = None,
    below: Sequence[tuple[str, int, int, int, int]] = (),
) -> bytes:
    """Return the mask's packet. rows, columns: the first position and the one after the last. epoch: a counter that
    changes if the page sets the drawing itself. number: of the last drawing that the page received. most: strokes
    allowed, 0 if read-only. query: the position whose row is framed, or None. below: the strokes of a drawing that is
    switched off.

    The packet has a plane, uint16 [Q,K]: which of the header's verdicts each cell has.
    """
    part = slice(*rows), slice(*columns)
    alt = [say(ALT if most else ALT_TO_READ, queries=rows[1] - rows[0], keys=columns[1] - columns[0])]
    verdicts, cells = verdicts_of(view, part)
    header = {
        "rows": _side(view, part[0]),
        "columns": _side(view, part[1]),
        "tokens": int(view.token_indices.max()) + 1,
        "strokes": [list(stroke) for stroke in view.strokes],
        "below": [list(stroke) for stroke in below],
        "masks": [ink(name) for name in (*view.blockers, "drawn")],
        "verdicts": verdicts,
        "allowed": ALLOWED,
        "room": canvas_margin(view, rows, columns),
        "titles": [say(QUERY_TITLE), say(KEY_TITLE)],
        "hint": say(HINT) if most else say(HINT_TO_READ),
        "alt": together(alt if query is None else [*alt, say("q makes the row's token the query.")]),
        "words": words("mask"),
        "epoch": epoch,
        "number": number,
        "most": most,
        "query": query,
        "mark": MARK,
    }
    return packed(header, cells.tobytes())


def verdicts_of(view: MaskView, part: tuple[slice, slice]) -> tuple[list[list[dict[str, Any]]], np.ndarray]:
    """Return the verdicts on each combination of masks in a part, without a stroke, with one that blocks and with one
    that opens; and which combination each cell has, uint16 [Q,K]."""
    blockers, openers = ({name: mask[part] for name, mask in some.items()} for some in (view.blockers, view.openers))
    padding = (view.token_indices < 0)[part[0], None] | (view.token_indices < 0)[None, part[1]]
    masks = [*blockers.values(), *openers.values(), padding]
    bits = sum(mask.astype(np.int64) << bit for bit, mask in enumerate(masks))
    _, first, cells = np.unique(bits, return_index=True, return_inverse=True)
    verdicts = []
    for cell in first.tolist():
        shut, opened = ([name for name, mask in some.items() if mask.flat[cell]] for some in (blockers, openers))
        words = N_("{why}; padding cannot be drawn on") if padding.flat[cell] else "{why}"
        strokes = ("", "", "") if padding.flat[cell] else STROKES
        verdicts.append([_verdict(shut, opened, stroke, words, list(blockers)) for stroke in strokes])
    return verdicts, cells.reshape(padding.shape).astype("<u2")


def verdicts_table(view: MaskView, rows: tuple[int, int], columns: tuple[int, int]) -> FigureTable:
    """Return a table that says of each cell of a part, including strokes, whether it is blocked, and by which masks."""
    down = slice(rows[0], min(rows[1], rows[0] + MAX_ROWS))
    across = slice(columns[0], min(columns[1], columns[0] + MAX_COLUMNS))
    verdicts, cells = verdicts_of(view, (down, across))
    queries, keys = view.token_indices[down], view.token_indices[across]
    strokes = np.zeros(cells.shape, int)
    for kind, query, key, last_query, last_key in view.strokes:
        inside = ((queries >= query) & (queries <= last_query))[:, None] & (keys >= key) & (keys <= last_key)
        strokes[inside] = STROKES.index(kind if kind in STROKES else "")
    words = np.array([[verdict["words"] for verdict in some] for some in verdicts], object)
    names = [numbered(view.labels[begin:end], begin) for begin, end in (rows, columns)]
    return grid(words[cells, strokes], names[0], names[1], say("The composed mask"))


def _verdict(blockers: list[str], openers: list[str], stroke: str, words: str, masks: list[str]) -> dict[str, Any]:
    """Return a cell's state for the canvas. stroke: "block", "open", or "" for none. masks: names, for the indices of
    `hatch`. In the result, words describe the cell; hatch: indices of the masks, or of the drawing after them, that
    block it; opened: the colour of what opens it, or None.
    """
    names, opener = mask_names(blockers), "drawn" if stroke == "open" else next(iter(openers), "")
    shut = [*([] if opener else blockers), *(["drawn"] if stroke == "block" else [])]
    if shut:
        why = say("blocked by {masks}", masks=mask_names(shut))
    elif stroke:
        why = say("drawn open, {masks} would block it", masks=names) if names else say("drawn open")
    elif names:
        opening = mask_names(openers)
        why = say("allowed: {masks} would block it, {openers} open it again", masks=names, openers=opening)
    else:
        why = say("allowed")
    opened = MASK_COLOURS[opener] if not shut and (names or stroke) else None
    return {"words": say(words, why=why), "hatch": [[*masks, "drawn"].index(name) for name in shut], "opened": opened}


def canvas_margin(view: MaskView, rows: tuple[int, int], columns: tuple[int, int]) -> dict[str, int]:
    """Return the margins in pixels: those of a head's picture of these queries and keys, without a colour bar."""
    queries, keys = (view.labels[begin:end] for begin, end in (rows, columns))
    return margin(queries, keys, rows[0], columns[0]) | {"r": APART}


def _side(view: MaskView, part: slice) -> dict[str, Any]:
    return {"first": part.start, "place": view.token_indices[part].tolist(), "labels": list(view.labels[part])}


def formula(view: MaskView) -> str:
    """Return a formula for the combination of the masks that are on, as HTML."""
    masks = " ∧ ".join(named(name) for name in view.blockers)
    opened = [named(name) for name in view.openers]
    whole = " ∨ ".join([f"({masks})" if len(view.blockers) > 1 and opened else masks or say("everything"), *opened])
    kinds = {stroke[0] for stroke in view.strokes} - {"erase"}
    if "block" in kinds:
        whole = f"({whole})" if opened else whole
        whole += f" ∧ ¬{named('drawn')}"
    if "open" in kinds:
        drawn_open = say("drawn open")
        whole = f"({whole}) ∨ {swatch(MASK_COLOURS['drawn'])}{drawn_open}"
    openings = say_all([mask_name(name) for name in view.openers], last="or")
    unless = N_("A cell is blocked if any mask blocks it, unless {openings} opens it again.")
    words = [say(unless, openings=openings) if openings else say("A cell is blocked if any mask blocks it.")]
    words += [say("{drawn} overrides everything.", drawn=named("drawn"))] if kinds else []
    allowed = say("allowed")
    return f'<p class="formula"><b>{allowed} = {whole}</b> {together(words)}</p>'


def counts(blocked: dict[str, np.ndarray], view: MaskView) -> str:
    """Say how many cells are blocked, "412 of 784. By mask: 378 causal, 34 padding": a cell that several masks block
    counts for the first. Then how many each blocks on its own, if that is more, and how many were opened again.

    blocked: for each mask, bool [T,T], True = it blocks the cell in the final mask.
    """
    taken = np.zeros((view.token_indices.size, view.token_indices.size), bool)
    first, whole = {}, {}
    for name, mask in blocked.items():
        first[name], whole[name] = int((mask & ~taken).sum()), int(mask.sum())
        taken |= mask
    left = np.any([np.zeros_like(taken), *view.blockers.values()], axis=0) & ~taken
    opened = {}
    for name, cells in view.openers.items():
        opened[name] = int((left & cells).sum())
        left &= ~cells
    opened["drawn"] = int(left.sum())
    by_mask, alone, openings = (
        listed(say("{count:,} {mask}", count=count, mask=named(name)) for name, count in some.items() if count)
        for some in (first, whole, opened)
    )
    parts = [say("<b>Cells blocked: {count:,} of {total:,}</b>.", count=int(taken.sum()), total=taken.size)]
    parts += [say("By mask: {masks}.", masks=by_mask)] if by_mask else []
    words = N_("A cell that several masks block is counted under the first one; each mask on its own: {masks}.")
    parts += [say(words, masks=alone)] if alone != by_mask else []
    parts += [say("Opened again: {openings}.", openings=openings)] if openings else []
    return f'<p class="counts">{together(parts)}</p>'
