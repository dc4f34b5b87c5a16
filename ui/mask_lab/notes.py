"""Notes of the Mask Lab on what is easily missed: open later tokens, where masks apply, masks without effect."""

from dataclasses import replace

import numpy as np

from i18n import N_, listed, say
from model.heads.view import HeadView, MaskView, mask_changes_cells
from model.mask_kinds import KINDS
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView, layer_names
from viz.mask_styles import mask_name


def notes(now: RunView, layer: int, head: int, mask: MaskView, view: HeadView) -> list[str]:
    """Return the notes on a head. view: the whole head under this mask."""
    spec = now.masks
    found = [*cached_figure(_later, mask, view)]  # cached: T × T cells
    if spec.layers and layer not in spec.layers:
        names = layer_names(now.model, now.run.attention)
        template = N_(
            "These masks apply to {layers}. {layer}, which is shown, is under the standard masks; to draw, show a "
            "layer that they apply to."
        )
        found.append(say(template, layers=say(", ").join(names[one] for one in spec.layers), layer=names[layer]))
    return found + _idle(now, layer, head)


def _idle(now: RunView, layer: int, head: int) -> list[str]:
    """Return a note on the masks that the user has turned on and that change nothing in this row, of any kind, the
    drawing included. Each is judged without those already found idle: of two that block the same cells, one alone is
    idle."""
    if not now.masks.holds_in(layer, head):
        return []
    chosen, found = now.masks.on(), []
    for name, value in chosen.items():
        if value == getattr(now.model.standard, name) or KINDS[name].joins:  # rows of padding are not considered
            continue
        if not now.ask(mask_changes_cells, layer, head, name):
            found.append(say(KINDS[name].phrase, size=escaped(value) if isinstance(value, str) else value))
            now = replace(now, masks=now.masks.replace(**{name: KINDS[name].off}))
    if now.masks.drawn and not now.ask(mask_changes_cells, layer, head, "drawn"):
        found.append(say("drawing"))
    template = N_("On, but changing no cell of this row's real tokens in {head}: {masks}.")
    return [say(template, head=now.name(layer, head), masks=listed(found))] if found else []


def _later(mask: MaskView, view: HeadView) -> list[str]:
    """Return notes on the kinds of masks that open cells which the causal mask blocks."""
    template = N_(
        "The causal mask is on, but some later tokens are open because of {mask}: “{query}” ({at}) may attend to "
        "“{key}” ({key_at})."
    )
    found = []
    for name, opened in mask.openers.items() if "causal" in mask.blockers else ():  # an encoder has no causal mask
        cells = np.argwhere(np.triu(opened & ~view.any_blocked(), 1))
        if len(cells) and not KINDS[name].own:
            at, key_at = (int(one) for one in cells[0])
            cell = {"query": escaped(view.queries[at]), "key": escaped(view.keys[key_at])}
            found.append(say(template, mask=mask_name(name), at=at, key_at=key_at, **cell))
    return found
