"""The section of the Mask Lab about what a stack of layers can see."""

import streamlit as st

from i18n import N_, say, together
from model.heads.reach import shown_reach
from ui import page
from ui.heads import head as head_picture
from ui.run_view import RunView, layer_names
from viz.mask_lab.reach import MOST_CELLS, ReachView, reach_figure, reach_sentence, reach_table

HOW = N_("""
A token keeps its own state from layer to layer (the residual stream), and each layer adds information from the tokens
it may attend to. So after n layers it can depend on every token that a chain of at most n attention steps, one per
layer, leads to. As matrices: the boolean product of the n masks, each with its diagonal set to “may attend”. A sliding
window of W positions has then grown to n · (W − 1) + 1. (Jiang et al. 2023, *Mistral 7B*, section 2, which rounds this
to n · W.) This is what the masks allow, not what the model uses.
""")


def show(now: RunView, layer: int, head: int, chosen: int) -> None:
    """After how many layers each token can know of each other, beside the masks of one layer."""
    if now.run.attention == "cross":
        st.info(say("Reach is defined for self-attention: choose an attention other than “cross”."))
        return
    with st.spinner(say("Computing reach layer by layer …")):
        view = _view(now, layer, head, chosen)
    st.html(reach_sentence(view))
    figure = reach_figure(view, dark=page.is_dark())
    head_picture.show(figure, _alt(view), room="two", key="reach_figure")
    st.html(f'<p class="key">{_key(now, view)}</p>{reach_table(view)}')
    with st.expander(say("How reach is computed")):
        st.markdown(say(HOW))


def _view(now: RunView, layer: int, head: int, chosen: int) -> ReachView:
    found = now.ask(shown_reach, layer, head)
    return ReachView(
        first=found.first,
        window=found.window,
        seen=found.seen,
        layer=layer,
        blocked=found.blocked,
        tokens=list(now.run.keys.pieces[now.row]),
        query=chosen,
        names=layer_names(now.model, now.run.attention),
    )


def _key(now: RunView, view: ReachView) -> str:
    parts = [
        say("Left, yellow: the query may attend to the key. Right, colour: after how many layers it can depend on it.")
    ]
    if (view.first == 0).any():
        parts.append(say("Grey: never."))
    if now.masks.heads:
        parts.append(say("The heads' masks differ: a cell of a layer is open if at least one head may attend."))
    if now.model.describe().other_layers():
        parts.append(say("Layers without attention are not counted, although they may pass information on."))
    if len(view.tokens) > MOST_CELLS:
        step = -(-len(view.tokens) // MOST_CELLS)
        parts.append(say("Each cell shows the soonest of {step}\u00a0×\u00a0{step} pairs of tokens.", step=step))
    return together(parts)


def _alt(view: ReachView) -> str:
    never = int((view.first == 0).sum())
    most = int(view.first.max())
    return say(
        "Reach of {tokens} tokens through {layers} layers. Information needs 1 to {most} layers from key to query; "
        "{never:,} of {pairs:,} pairs are never connected. Query {query} ({token}) can depend on {known} tokens after "
        "1, 2, … layers. Beside it: the masks of {layer} alone.",
        tokens=len(view.tokens), layers=len(view.window), most=most, never=never, pairs=view.first.size,
        query=view.query, token=view.tokens[view.query], layer=view.names[view.layer],
        known=say(", ").join(map(str, view.seen[:, view.query].tolist())),
    )  # fmt: skip
