"""The chosen head in one row of views, one at a time: the others are neither computed nor sent."""

from importlib import import_module

import streamlit as st

from i18n import N_, say
from model.heads.view import HeadView
from ui.heads import query
from ui.heads.chosen import ChosenHead
from ui.run_view import RunView
from ui.widgets.choices import one_of
from viz.heads.colours import Colours

VIEWS = {  # each a module beside this one, imported when it is chosen, with show(chosen)
    "tokens": N_("Tokens"),
    "arcs": N_("Arcs"),
    "bars": N_("Bars"),
    "carried": N_("Value × weight"),
    "why": N_("Why this cell"),
    "numbers": N_("Numbers"),
}


def show(now: RunView, views: list[HeadView], layer: int, head: int, name: str, part: tuple[int, int]) -> None:
    """The row, and the view that is chosen in it. views: the whole head now and, if it differs, as standard; where it
    does not, the tokens may stand beside the heatmap, in whose column this is called."""
    shown = one_of(say("This head as"), VIEWS, "view", label_visibility="collapsed")
    chosen = ChosenHead(now, views[0], views[-1], layer, head, name, part, query.moves(now, part))
    import_module(f".{shown}", __package__).show(chosen)


def colours() -> Colours:
    """What the heatmap's colours mean: chosen in the view Numbers."""
    state = st.session_state
    return Colours(state.palette, state.colours_to, state.brightness)
