"""One head of a run, and the masks that rule it, as plain arrays. Sizes: Q queries, K keys, T positions."""

from dataclasses import astuple, dataclass

import numpy as np

from model.masks import MaskSpec, places
from model.trace import Trace


@dataclass(frozen=True, eq=False)
class ShownHead:
    """weights: float32 [Q,K], 0 to 1, blocked cells 0. scaled: float32 [Q,K], the scores before masking.
    blocked: for each mask that is on, bool [Q,K], True = it blocks the cell. available: the masks that it can have.
    key_value_heads: how many the heads of its layer share.
    """

    weights: np.ndarray
    scaled: np.ndarray
    blocked: dict[str, np.ndarray]
    available: frozenset[str]
    key_value_heads: int


@dataclass(frozen=True, eq=False)
class ShownMasks:
    """The masks of one head over T positions, without what is drawn, and the drawing.

    blockers: for each mask that is on, bool [T,T], True = it blocks the cell, whatever opens it again. openers:
    likewise the cells that a mask opens. place: int [T], a position's number among the row's real tokens, -1
    at padding. strokes: (kind, query, key, last query, last key), in those numbers.
    """

    blockers: dict[str, np.ndarray]
    openers: dict[str, np.ndarray]
    place: np.ndarray
    strokes: tuple[tuple[str, int, int, int, int], ...]


def shown_head(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> ShownHead:
    """A head under the run's masks, or (same queries and keys) under others."""
    stages, record = trace.stages(layer, head, row, masks), trace.layers[layer]
    blocked = trace.blocked_by(layer, row, masks, head=head)
    return ShownHead(
        stages.weights.numpy(),
        stages.scaled.numpy(),
        {name: mask.numpy() for name, mask in blocked.items()},
        record.context.available,
        record.k.shape[1],
    )


def shown_masks(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> ShownMasks:
    """The masks to draw on; of the attention of a text to itself."""
    context = trace.layers[layer].context
    blockers, openers = (context.in_row(some, row) for some in context.undrawn(masks, head))
    return ShownMasks(
        {name: ~allowed.numpy() for name, allowed in blockers.items()},
        {name: opened.numpy() for name, opened in openers.items()},
        places(context.keep)[row].cpu().numpy(),
        tuple(astuple(stroke) for stroke in masks.at(context.layer, head, context.standard).drawn),
    )
