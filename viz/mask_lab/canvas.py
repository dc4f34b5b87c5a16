"""The composed mask as one packet of bytes for the component that it is drawn on (components/mask.js).

A cell has two bytes: a bit for each mask that blocks it, and a bit for each opening that covers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.language import N_, say, together
from viz.components.words import words
from viz.hatch import ink
from viz.heatmap import KEY_TITLE, QUERY_TITLE, margin
from viz.packet import packed
from viz.palette import ALLOWED, MARK, OPENER_COLOURS
from viz.room import APART

HINT = N_(
    "Drag on the cells, or beside a row or below a column for all of it. Point at a cell to read why it is blocked."
)
ALT = N_(
    "The composed mask: {queries} queries in rows, {keys} keys in columns. Arrow keys move, with Shift they choose a "
    "rectangle, Enter draws; r draws the whole row, c the column, u undoes, Delete clears."
)
ALT_QUERY = N_("q makes the row's token the query.")
HINT_TO_READ = N_("Point at a cell, or move over the cells with the arrow keys, to read why it is blocked.")
ALT_TO_READ = N_("The composed mask: {queries} queries in rows, {keys} keys in columns. Arrow keys move.")


@dataclass(frozen=True, eq=False)
class MaskView:
    """The masks of one attention over T positions, without what is drawn, and the drawing.

    blockers: for each mask that is on, bool [T,T], True = it blocks the cell, whatever opens it again; at most 8.
    openers: likewise the cells that prefix or sinks open. place: int [T], a position's number among the row's real
    tokens, -1 at padding. strokes: (kind, query, key, last query, last key), in those numbers.
    labels: a token for each position. first: the position of the first row and column.
    """

    blockers: dict[str, np.ndarray]
    openers: dict[str, np.ndarray]
    place: np.ndarray
    strokes: Sequence[tuple[str, int, int, int, int]]
    labels: Sequence[str]
    first: int = 0


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
    """The queries and the keys from a position up to, without, another. epoch: a new one where the page itself set the
    drawing. number: of the last drawing that the page heard of. most: how many strokes a drawing may have;
    0: it is there to look at. query: the position whose row is framed; None where none is chosen on it. below: the
    strokes of a drawing that is switched off.

    The packet has two planes of bytes [Q,K].
    """
    part = slice(*rows), slice(*columns)
    alt = [say(ALT if most else ALT_TO_READ, queries=rows[1] - rows[0], keys=columns[1] - columns[0])]
    header = {
        "rows": _side(view, part[0]),
        "columns": _side(view, part[1]),
        "tokens": int(view.place.max()) + 1,
        "strokes": [list(stroke) for stroke in view.strokes],
        "below": [list(stroke) for stroke in below],
        "masks": [ink(name) for name in view.blockers],
        "openings": [{"name": name, "colour": OPENER_COLOURS[name]} for name in view.openers],
        "drawn": ink("drawn"),
        "allowed": ALLOWED,
        "room": canvas_margin(view, rows, columns),
        "titles": [say(QUERY_TITLE), say(KEY_TITLE)],
        "hint": say(HINT) if most else say(HINT_TO_READ),
        "alt": together(alt if query is None else [*alt, say(ALT_QUERY)]),
        "words": words("mask"),
        "epoch": epoch,
        "number": number,
        "most": most,
        "query": query,
        "mark": MARK,
    }
    planes = [_bits(some, view.place.size)[part] for some in (view.blockers, view.openers)]
    return packed(header, *(plane.tobytes() for plane in planes))


def canvas_margin(view: MaskView, rows: tuple[int, int], columns: tuple[int, int]) -> dict[str, int]:
    """In pixels: that of a head's picture of these queries and keys, but for the colour bar."""
    queries, keys = (view.labels[begin:end] for begin, end in (rows, columns))
    return margin(queries, keys, view.first + rows[0], view.first + columns[0]) | {"r": APART}


def _side(view: MaskView, part: slice) -> dict[str, Any]:
    """What stands along one side of the picture."""
    return {
        "first": view.first + part.start,
        "place": view.place[part].tolist(),
        "labels": list(view.labels[part]),
    }


def _bits(masks: dict[str, np.ndarray], size: int) -> np.ndarray:
    """uint8 [T,T]: bit n is the n-th mask."""
    plane = np.zeros((size, size), np.uint8)
    for bit, mask in enumerate(masks.values()):
        plane |= mask.astype(np.uint8) << bit
    return plane
