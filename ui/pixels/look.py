"""Look inside: one pixel of one picture, where every head looks from it, and what the mask does to its prediction."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from i18n import N_, say
from model.heads.view import head_name
from model.pixels import digits
from model.pixels.digits import SAMPLING, DigitsModel
from model.pixels.view import PixelView
from ui import page, run_view
from ui.controls import SCOPE_HELP, SCOPES, only
from ui.pixels import canvases, controls
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets.choices import one_of, select
from viz.numbers import chance, percent, share_table
from viz.pixels import PIXELS, head_packet, heads_packet, largest, level_table, loss_figure, name_of, scale_html
from viz.pixels import sentence as seen_sentence


def choose_picture() -> tuple[np.ndarray, int]:
    """The picture, levels [64], and the class that the model is told."""
    source, state = select(say("Picture"), controls.SOURCES, "pixels_source"), st.session_state
    if source == "drawn":
        st.caption(say("Draw it under *Finish a drawing*."))
        levels, own = canvases.drawing(), state.pixels_finish_class
        own = state.pixels_digit if own == controls.OWN else own
    elif source == "real":
        own, nth = controls.choose_digit(canvases.count_of)
        levels = canvases.real_digit(own, nth)
    else:
        own, seed = controls.choose_digit(None)
        levels = canvases.written((own,), replace(SAMPLING, seed=seed))[0]
    about = say(
        "The first token tells the model what to write. Choose another to see how a wrong class changes the loss."
    )
    label = say("Class token")
    return levels, controls.choose_class(label, "pixels_told", own, N_("the picture's own, {digit}"), about)


def choose_mask() -> tuple[bool, str]:
    about = say("On: no pixel sees a later one. Off: every pixel sees them all.")
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="medium"):
        causal = st.toggle(say("Causal"), key="pixels_causal", help=about, width="content")
        label = say("When a mask is off:")
        return causal, one_of(label, SCOPES, "pixels_scope", disabled=causal, width="content", help=say(SCOPE_HELP))


def run_pair(
    model: DigitsModel, levels: np.ndarray, told: int, causal: bool, scope: str
) -> tuple[PixelView, PixelView]:
    batch, state = digits.encode(levels[None], [told]), st.session_state
    spec, only_layer = model.standard.replace(causal=causal), only(scope, state.pixels_layer)
    both = run_view.run_pair(model, batch, spec, 0, "self", only_layer=only_layer)
    layer, pixel = state.pixels_layer, state.pixels_pixel
    query = pixel + (state.pixels_looker == "itself")

    def seen(one: RunView) -> PixelView:
        return replace(one.ask(digits.seen, layer, query, pixel), mean_leak=one.survey().future)

    now, standard = (one.kept(("pixels", layer, pixel, query), partial(seen, one)) for one in both)
    return now, standard


def show(now: PixelView, standard: PixelView, layer: int, head: int) -> None:
    def pick_head(number: int) -> None:
        st.session_state.pixels_layer, st.session_state.pixels_head = divmod(number, now.weights.shape[1])

    changed = not st.session_state.pixels_causal
    name, zmax = head_name(layer, head), largest(now, standard)
    left, middle, right = st.columns([1, 1.35, 1.15], gap="medium")
    with left:
        canvases.show(cached_figure(heads_packet, now, layer, head, zmax), "pixels_heads", pick_head)
        if changed:
            st.caption(say("**{head}** under the standard masks, the same colours", head=name))
            canvases.show(cached_figure(head_packet, standard, layer, head, zmax), "pixels_standard", _pick_pixel)
    with middle:
        st.caption(say("**{head}**: where it attends", head=name))
        canvases.show(cached_figure(head_packet, now, layer, head, zmax), "pixels_picture", _pick_pixel)
        st.html(scale_html(zmax))
    with right:
        what = say("{pixel}, before it is written", pixel=name_of(now.pixel + 1, ""))
        true = int(now.levels[now.pixel])
        st.html(level_table(now.chances, standard.chances, true, what, changed=changed))
        st.html(share_table(say("measured"), _shares(now, standard, name, layer, head), changed=changed))
    with middle if changed else left:
        st.caption(say("Loss of every pixel: how much each surprises the model"))
        figure = cached_figure(loss_figure, now.losses, standard.losses, tuple(now.levels.tolist()), changed=changed)
        worst = int(now.losses.argmax())
        alt = say("Loss of every pixel, as a picture; the largest is {loss:.2f} nats at {pixel}.",
                  loss=now.losses[worst], pixel=name_of(worst + 1, ""))  # fmt: skip
        page.chart(figure, "pixels_losses", alt)


def sentence(now: PixelView, standard: PixelView, layer: int, head: int, scope: str) -> str:
    return seen_sentence(now, standard, layer, head, layer_only=scope == "layer")


def _shares(now: PixelView, standard: PixelView, name: str, layer: int, head: int) -> list[tuple[str, str, str]]:
    """As share_table takes them: what, now, and under the standard masks."""
    here, true = name_of(now.pixel + 1, ""), int(now.levels[now.pixel])
    rows: list[tuple[str, Callable[[PixelView], str]]] = [
        (say("{head} from here: on later pixels", head=name), lambda one: percent(float(one.leak[layer, head]))),
        (say("{head}, mean of all queries", head=name), lambda one: percent(float(one.mean_leak[layer, head]))),
        (say("all heads, all queries"), lambda one: percent(float(one.mean_leak.mean()))),
        (say("writing {pixel}: on the answer", pixel=here), lambda one: percent(one.answer)),
        (say("true level {level} of {pixel}", level=true, pixel=here), lambda one: chance(float(one.chances[true]))),
        (say("loss, nats/pixel"), lambda one: f"{one.losses.mean():.3f}"),
    ]
    return [(what, value(now), value(standard)) for what, value in rows]


def _pick_pixel(pixel: int) -> None:
    st.session_state.pixels_pixel = min(max(pixel, 0), PIXELS - 1)
