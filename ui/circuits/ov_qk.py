"""The Circuits page: what one head does on any token, and which heads read other heads, from the weights alone."""

from functools import partial
from typing import Literal

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model.base import Model
from model.circuits import ov_qk
from model.circuits.ov_qk import KINDS, OVCircuit, QKCircuit, composition_of_layer
from model.circuits.weights import tokens_compared
from model.inference.calls import continuation_ids
from model.text import first_line
from serving.job import ModelRef
from ui import page, results, run_view
from ui.controls import A_LINE_EACH
from ui.heads.head import callbacks
from ui.link import TextLink, Whole
from ui.results import cached_figure
from ui.widgets import by_layer, one_of, stoppable
from viz import circuits as pictures
from viz.html import fixed

TOKENS = {"strongest": N_("with the largest effects"), "text": N_("of the text on the left")}
MAX_TOKENS = 24  # maximum number of tokens of the text
HELP = N_(
    "A head's OV circuit says what attending to a token adds to the logits of the next token, its QK circuit which "
    "keys a query token prefers (Elhage et al. 2021). Both are computed from the weights and from each token alone: "
    "its embedding and, for heads of later layers, what the first MLP makes of it. What other heads move there is left "
    "out, so this is one path of many."
)
OV = N_("Logits without the division of the last norm, minus their mean over the vocabulary.")
QK = N_("Scores minus their mean over all keys; with rotary positions, those at distance 0.")
COPYING = N_(
    "OV copying score {copying}: 1 is a head that raises the logits of the tokens it attends to, −1 one that lowers "
    "them (from the eigenvalues of its OV circuit)."
)
NO_COPYING = N_("It has no OV copying score.")
ONLY_LATER = N_("On its own it changes no logit: only later layers read what it writes.")
NOTHING = N_("It changes no logit.")
NONE_COMPARED = N_(
    "None of the first line's tokens is among the first {count:,}, which are compared: the tables show those with the "
    "largest effects."
)
COMPOSITION = N_(
    "‖A·B‖ over ‖A‖·‖B‖ in Frobenius norms, minus 1/√width, which is what random matrices give: B is the earlier "
    "head's OV matrix, A the later one's QK matrix from the query's side (Q), from the key's (K), or its OV matrix "
    "(V). Red: the arcs of the chosen head. It compares weights, and does not say on which texts the path is used."
)


class CircuitsLink(TextLink):
    """The link of the Circuits page."""

    layer: Whole | None = None
    head: Whole | None = None
    circuit_tokens: Literal[*TOKENS] = "strongest"  # type: ignore[valid-type]
    composed: Literal[*KINDS] = "k"  # type: ignore[valid-type]


def show_head(model: Model, text: str, layer: int, head: int) -> str:
    """Draw the two circuits side by side. Returns the page's sentence."""
    chosen = one_of(say("Tokens"), TOKENS, "circuit_tokens", width="content", help=say(HELP))
    count = results.ask(tokens_compared, ModelRef.of(model))
    ids: tuple[int, ...] = ()
    if chosen == "text":
        found = continuation_ids(model, line)[0] if (line := first_line(text)) else []
        different = tuple(dict.fromkeys(token for token in found if token < count))
        ids = different[:MAX_TOKENS]
        if len(ids) < len(different):
            template = N_("Only the first {most} of {count} different tokens of the first line are shown.")
            st.caption(say(template, most=MAX_TOKENS, count=len(different)))
        if not ids:
            st.info(say(NONE_COMPARED, count=count) if found else say(A_LINE_EACH))
    if count < model.vocabulary:
        st.caption(say("Only the first {count:,} of {all:,} tokens are compared.", count=count, all=model.vocabulary))
    ov: OVCircuit = results.ask(ov_qk.ov, ModelRef.of(model), layer, head, ids)
    qk: QKCircuit = results.ask(ov_qk.qk, ModelRef.of(model), layer, head, ids)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("#### " + say("OV: attending to a token"))
        titles = say("token attended to"), say("raises most"), say("lowers most")
        st.html(cached_figure(pictures.circuit_table, ov.tokens, *titles))
        st.caption(say(OV))
    with right:
        st.markdown("#### " + say("QK: where a token attends"))
        titles = say("query token"), say("preferred keys"), say("avoided keys")
        st.html(cached_figure(pictures.circuit_table, qk.tokens, *titles))
        st.caption(say(QK))
    sentence = pictures.profile_sentence(qk.profile)
    st.markdown("#### " + say("Score by distance, from positions alone"))
    page.chart(cached_figure(pictures.profile_figure, qk.profile), "profile", sentence)
    none = NO_COPYING if not ov.silent else ONLY_LATER if layer + 1 < model.num_layers else NOTHING
    copying = say(none) if np.isnan(ov.copying) else say(COPYING, copying=fixed(ov.copying, 2))
    return together([say("<b>{head}</b>.", head=run_view.name_of(model, "self", layer, head)), copying, sentence])


def show_composition(model: Model, layer: int, head: int) -> None:
    """Draw the composition of all pairs of heads, computed layer by layer."""
    st.markdown("#### " + say("Which head reads which"), help=say(COMPOSITION))
    kind = one_of(say("Composition"), pictures.NAMES, "composed", width="content")
    names = run_view.layer_names(model, "self")
    with stoppable(f"composition {model.key}", say("Stopped. Compare the heads again")) as line:
        if line is None:
            return
        found = by_layer(names, lambda number: results.ask(composition_of_layer, ModelRef.of(model), number), line)
    pairs = np.stack(found)[:, KINDS.index(kind)]  # [L,H,L,H]
    numbers = [model.describe().layer_number("self", number) for number in range(model.num_layers)]
    sentence = pictures.composition_sentence(pairs, kind, numbers)
    st.markdown(sentence)
    left, right = st.columns([1.7, 1], gap="large")
    with left:
        clicks = callbacks("arcs", on_pick=lambda layer, head: st.session_state.update(layer=layer, head=head or 0))
        figure = pictures.arcs_figure(pairs, numbers, (layer, head))
        tables = partial(pictures.composition_numbers, pairs, numbers)
        page.chart(figure, "arcs", sentence, callbacks=clicks, tables=tables)
        if note := pictures.arcs_words(pairs):
            st.caption(note)
    right.html(pictures.composition_table(pairs, numbers))
