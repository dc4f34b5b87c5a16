"""The view Carried: what the query takes from each key, and what that does to the next token."""

import streamlit as st

from i18n import N_, say, together
from model.attribution.score_split import carried, direct_effect
from model.errors import NotSupported
from ui.heads import query
from ui.heads.chosen import ChosenHead
from ui.markdown import escaped
from viz.heads.carried import carried_table, effect_table, why_they_differ
from viz.html import signed

ABOUT = N_(
    "|v| is the norm of a key's value vector; weight × |v| is the norm of its weighted value (Kobayashi et al. 2020)."
)
ADDS = N_(
    "*adds*: the norm of what the key adds to the residual stream, after the output projection. Contributions of "
    "different keys may cancel."
)
EFFECT = N_(
    "The head's direct effect on the logits of the token after the query, bypassing all later layers, with the scale "
    "of the final norm frozen; relative to its mean effect on all tokens, {mean}."
)
CAPPED = N_("The model caps its logits; this is before the cap.")


def show(chosen: ChosenHead) -> None:
    """A table of keys, and where the model allows it one of next tokens."""
    keys, asked = chosen.view.keys, (chosen.now.masks, chosen.layer, chosen.head, chosen.query)
    name = f"{chosen.query}: {chosen.view.queries[chosen.query]}"
    found = chosen.ask(carried, *asked)
    with st.container(key="carried_of_query"):
        st.html(why_they_differ(found, name, keys))
        left, right = st.columns([1.5, 1], gap="medium")
    query.hear("carried_of_query", say("Value × weight"), chosen.moves)
    left.html(carried_table(found, keys))
    left.caption(say(ABOUT) if found.added is None else together([say(ABOUT), say(ADDS)]))
    with right:
        try:
            effect = chosen.ask(direct_effect, *asked)
        except NotSupported as error:
            st.caption(say("{clauses}.", clauses=escaped(str(error))))
            return
        st.html(effect_table(effect))
        about = say(EFFECT, mean=signed(effect.mean))
        st.caption(together([about, say(CAPPED)]) if effect.capped else about)
