"""Compare: one head of two models, of two texts, or under two masks, side by side."""

from dataclasses import replace
from functools import partial

import streamlit as st

from i18n import N_, say, together
from ui import page

page.set_up(N_("Compare"))  # first, so that the browser has something to fetch while torch is imported

from model.heads.view import coarser_words, cropped
from ui import compare as choosing
from ui import controls, explain, run_view
from ui.circuits import patching
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import query
from ui.markdown import escaped
from ui.results import cached_figure
from ui.widgets.choices import one_of
from viz.head import difference_figure, head_figure, head_range
from viz.numbers import next_token_table
from viz.sentence import comparable, prediction_sentence, weights_sentence

ABOVE = 220  # pixels over the pictures as the page opens, without the titles in their margins

model, text = controls.open_page(choosing.CompareLink.restore)
reading, row = controls.open_text(model, text)

spec = controls.open_masks(say("Compare"), model, reading.batch, row)
sentence_slot = st.empty()
other, b_reading, b_row, b_spec = model, reading, row, spec
choices = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
with choices, guarded():
    differs = one_of(say("B differs in"), choosing.DIFFERS, "differs", width="content")
    if differs == "masks":
        b_spec = choosing.choose_masks(model)
    elif differs == "text":
        with st.container(width=420):
            b_reading, b_row = choosing.choose_text(model), 0
    elif differs == "model":
        with st.container(width=240):
            other = choosing.choose_model()
        b_spec = choosing.like(spec, model, other)
        b_reading = run_view.tokenize(other, text, st.session_state.pad, None)
        b_row = min(row, len(b_reading.rows) - 1)
share = partial(controls.share, choosing.CompareLink, model, masks=None, section=None, scope="model", zoom=None)
attentions = [name for name in model.attentions if name in other.attentions and name != "cross"]
if not attentions:
    titles = {"one": explain.title_of(model), "other": explain.title_of(other)}
    st.info(say("{one} and {other} have no attention of the same kind: choose another model for B.", **titles))
    share()
    st.stop()
with choices:
    attention = controls.choose_attention(attentions)
    with st.container(width=190):
        layer, head = controls.choose_head(model, *run_view.shape(model, attention))
    b_layer, b_head = choosing.choose_head(other, attention, layer, head)
    query_slot = st.container(width=150)
with guarded(say("Running A and B …")):
    by = st.session_state.by
    a, _ = run_view.run_pair(model, reading.batch, spec, row, attention, by=by)
    b, _ = run_view.run_pair(other, b_reading.batch, b_spec, b_row, attention, by=by)
    views = [a.head(layer, head), b.head(b_layer, b_head)]
with query_slot:
    position = query.choose(a)
share()

heads = a.name(layer, head), b.name(b_layer, b_head)
names = choosing.titles((model, other), heads)
masked = a.masks.padding and b.masks.padding
parts = [(side.real.start, side.real.stop) if masked else (0, len(side.tokens)) for side in (a, b)]
views = [cropped(view, part, part) for view, part in zip(views, parts, strict=True)]
zmax = head_range(*views)
positions = position, choosing.query_of_b(a, b, position)
framed = positions if query.picked() is not None else (None, None)
for column, key, title, name, view, at in zip(
    st.columns(2, gap="small"), "ab", names, heads, views, framed, strict=True
):
    with column:
        with st.container(key=f"above_{key}"):
            st.markdown(f"#### {title}")
        figure = cached_figure(head_figure, view, zmax=zmax, dark=page.is_dark(), query=at)
        alt = explain.head_alt(title if name in title else f"{title}, {name}", view, changed=False)
        moves = query.moves(a, parts[0]) if key == "a" else None
        head_picture.show(figure, alt, room="one", key=f"head_{key}", above=ABOVE, moves=moves)
        if coarser_words(view):
            st.caption(say(coarser_words(view)))
controls.explain_by(say("Activation patching is by tokens."))
left, right = st.columns(2, gap="small")
sentences = [cached_figure(weights_sentence, *views)]
with left:
    if comparable(*views):
        st.markdown("#### B − A")
        figure = cached_figure(difference_figure, views[1], views[0], dark=page.is_dark())
        alt = say("B minus A. {sentence}", sentence=sentences[0])
        head_picture.show(figure, alt, room="one", key="head_difference")
with right, guarded(say("Predicting …")):
    found = [side.predictions(query.predicting(side, at)) for side, at in zip((a, b), positions, strict=True)]
    if found[0] is not None and found[1] is not None:
        st.markdown("#### " + say("The next token"))
        lists = [one.candidates for one in found if one is not None]
        st.html(cached_figure(next_token_table, *lists, changed=True, names=("A", "B")))
        if attention != "encoder":
            both = zip((a, b), positions, strict=True)
            one, other_one = (f"“{escaped(side.tokens[at])}” ({at})" for side, at in both)
            st.caption(say("After {one} in A, after {other} in B.", one=one, other=other_one))
        sentences.append(prediction_sentence(*lists))
sentence_slot.html(page.sentence(together(sentences)))
patching.show(replace(a, by="tokens"), replace(b, by="tokens"), (layer, head), a.last_token(position))
