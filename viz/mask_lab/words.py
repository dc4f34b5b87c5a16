"""What a composed mask is in words: its formula, and how many cells each mask blocks. HTML."""

import numpy as np

from viz.mask_lab.canvas import MaskView
from viz.palette import MASK_COLOURS, OPENER_COLOURS


def formula(view: MaskView) -> str:
    """How the masks that are on combine."""
    masks = " ∧ ".join(_name(name, MASK_COLOURS) for name in view.blockers)
    opened = [_name(name, OPENER_COLOURS) for name in view.openers]
    whole = " ∨ ".join([f"({masks})" if len(view.blockers) > 1 and opened else masks or "everything", *opened])
    kinds = {stroke[0] for stroke in view.strokes}
    if "block" in kinds:
        whole = f"({whole})" if opened else whole
        whole += f" ∧ ¬{_name('drawn', MASK_COLOURS)}"
    if "open" in kinds:
        whole = f"({whole}) ∨ {_name('drawn open', {'drawn open': MASK_COLOURS['drawn']})}"
    words = "A cell is blocked if any mask blocks it"
    words += f", unless {' or '.join(view.openers)} opens it again." if opened else "."
    if view.strokes:
        words += f" {_name('drawn', MASK_COLOURS)} has the last word."
    return f'<p class="formula"><b>allowed = {whole}</b> {words}</p>'


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
    parts = [f"<b>{int(taken.sum()):,} of {taken.size:,} cells blocked</b>"]
    if taken.any():
        parts[0] += ": " + _list(first, MASK_COLOURS)
    if first != whole:
        parts.append(
            f"a cell that several masks block counts for the first; each counted alone: {_list(whole, MASK_COLOURS)}"
        )
    opened = {name: count for name, count in _opened(view, taken).items() if count}
    if opened:
        parts.append(f"opened again: {_list(opened, OPENER_COLOURS)}")
    return f'<p class="counts">{"; ".join(parts)}.</p>'


def _opened(view: MaskView, blocked: np.ndarray) -> dict[str, int]:
    """How many cells that some mask blocks each opening opens."""
    shut = np.any([np.zeros_like(blocked), *view.blockers.values()], axis=0)
    left = shut & ~blocked
    found = {}
    for name, cells in view.openers.items():
        found[name] = int((left & cells).sum())
        left &= ~cells
    return found | {"drawn": int(left.sum())}


def _list(numbers: dict[str, int], colours: dict[str, str]) -> str:
    return ", ".join(f"{count:,} {_name(name, colours)}" for name, count in numbers.items())


def _name(name: str, colours: dict[str, str]) -> str:
    return f'<span class="swatch" style="background:{colours[name]}"></span>{name}'
