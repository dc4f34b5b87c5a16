"""What a composed mask is in words: its formula, and how many cells each mask blocks. HTML."""

import numpy as np

from i18n import say, say_all, together
from viz.html import named, swatch
from viz.mask_lab.canvas import MaskView
from viz.mask_styles import mask_name
from viz.palette import MASK_COLOURS


def formula(view: MaskView) -> str:
    """How the masks that are on combine."""
    masks = " ∧ ".join(named(name) for name in view.blockers)
    opened = [named(name) for name in view.openers]
    whole = " ∨ ".join([f"({masks})" if len(view.blockers) > 1 and opened else masks or say("everything"), *opened])
    kinds = {stroke[0] for stroke in view.strokes}
    if "block" in kinds:
        whole = f"({whole})" if opened else whole
        whole += f" ∧ ¬{named('drawn')}"
    if "open" in kinds:
        drawn_open = say("drawn open")
        whole = f"({whole}) ∨ {swatch(MASK_COLOURS['drawn'])}{drawn_open}"
    openings = say_all([mask_name(name) for name in view.openers], last="or")
    words = [
        say("A cell is blocked if any mask blocks it, unless {openings} opens it again.", openings=openings)
        if opened
        else say("A cell is blocked if any mask blocks it.")
    ]
    if view.strokes:
        words.append(say("{drawn} has the last word.", drawn=named("drawn")))
    allowed = say("allowed")
    return f'<p class="formula"><b>{allowed} = {whole}</b> {together(words)}</p>'


def counts(blocked: dict[str, np.ndarray], view: MaskView) -> str:
    """ "412 of 784 cells blocked: 378 causal, 34 padding", a cell that several block counted for the first; then
    what each blocks by itself, where that is more, and what was opened again.

    blocked: for each mask, bool [T,T], True = it blocks the cell in the end.
    """
    taken = np.zeros((view.place.size, view.place.size), bool)
    first, whole = {}, {}
    for name, mask in blocked.items():
        first[name], whole[name] = int((mask & ~taken).sum()), int(mask.sum())
        taken |= mask
    first, whole = ({name: count for name, count in some.items() if count} for some in (first, whole))
    counted = {"count": int(taken.sum()), "total": taken.size}
    parts = [
        say("<b>{count:,} of {total:,} cells blocked</b>: {masks}.", **counted, masks=_list(first))
        if taken.any()
        else say("<b>{count:,} of {total:,} cells blocked</b>.", **counted)
    ]
    if first != whole:
        alone = _list(whole)
        parts.append(
            say("A cell that several masks block counts for the first; each counted alone: {masks}.", masks=alone)
        )
    opened = {name: count for name, count in _opened(view, taken).items() if count}
    if opened:
        parts.append(say("Opened again: {openings}.", openings=_list(opened)))
    return f'<p class="counts">{together(parts)}</p>'


def _opened(view: MaskView, blocked: np.ndarray) -> dict[str, int]:
    """How many cells that some mask blocks each opening opens."""
    shut = np.any([np.zeros_like(blocked), *view.blockers.values()], axis=0)
    left = shut & ~blocked
    found = {}
    for name, cells in view.openers.items():
        found[name] = int((left & cells).sum())
        left &= ~cells
    return found | {"drawn": int(left.sum())}


def _list(numbers: dict[str, int]) -> str:
    parts = [say("{count:,} {mask}", count=count, mask=named(name)) for name, count in numbers.items()]
    return say(", ").join(parts)
