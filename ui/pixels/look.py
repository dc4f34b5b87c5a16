"""Look inside: one pixel of one picture, where every head looks from it, and what the mask does to its prediction."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from i18n import N_, say
from model.heads.view import head_name
from model.pixels import digits
from model.pixels.digits import DigitsModel, Draw
from model.pixels.view import PixelView
from ui import page, run_view
from ui.controls import SCOPES, only
from ui.pixels import choices, pictures
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets.choices import one_of
from viz.numbers import chance, percent
from viz.pixels.numbers import Seen, level_table, loss_figure, sentence, share_table
from viz.pixels.pictures import PIXELS, head_packet, heads_packet, largest, name_of, scale_html


def choose_picture() -> tuple[np.ndarray, int]:
    """The picture, levels [64], and the class that the model is told."""
    st.selectbox(say("Picture"), choices.SOURCES, format_func=lambda one: say(choices.SOURCES[one]),
                 key="pixels_source")  # fmt: skip
    source, state = st.session_state.pixels_source, st.session_state
    if source == "drawn":
        st.caption(say("Draw it under *Finish a drawing*."))
        levels, own = pictures.drawing(), state.pixels_finish_class
        own = state.pixels_digit if own == choices.OWN else own
    elif source == "real":
        own, nth = choices.choose_digit(pictures.count_of)
        levels = pictures.real_digit(own, nth)
    else:
        own, seed = choices.choose_digit(None)
        levels = pictures.written((own,), Draw(seed=seed))[0]
    return levels, choices.choose_class(
        say("Class token"), "pixels_told", own, N_("the picture's own, {digit}"),
        say("The first token tells the model what to write. Choose another to see how a wrong class changes the loss."),
    )  # fmt: skip


def choose_mask() -> tuple[bool, str]:
    """Whether the causal mask is on, and what lifting it redoes."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="medium"):
        st.toggle(
            say("Causal"),
            key="pixels_causal",
            help=say("On: no pixel sees a later one. Off: every pixel sees them all."),
            width="content",
        )
        one_of(
            say("When a mask is off:"),
            SCOPES,
            "pixels_scope",
            disabled=st.session_state.pixels_causal,
            width="content",
            help=say(
                "Re-run: every layer gets the inputs that result from these masks. This layer only: the chosen "
                "layer's weights are recomputed from the standard run's queries and keys; the rest does not change."
            ),
        )
    return st.session_state.pixels_causal, st.session_state.pixels_scope


def run_pair(
    model: DigitsModel, levels: np.ndarray, told: int, causal: bool, scope: str
) -> tuple[PixelView, PixelView]:
    """Now, and under the standard masks."""
    batch = digits.encode(levels[None], [told])
    state = st.session_state
    only_layer = only(scope, state.pixels_layer)
    spec = model.standard.replace(causal=causal)
    both = run_view.run_pair(model, batch, spec, 0, "self", only_layer=only_layer)
    pixel = state.pixels_pixel
    query = pixel + (state.pixels_looker == "itself")
    now, standard = (
        one.kept(("pixels", state.pixels_layer, pixel, query), partial(_seen, one, pixel, query)) for one in both
    )
    return now, standard


def _seen(one: RunView, pixel: int, query: int) -> PixelView:
    found = one.ask(digits.seen, st.session_state.pixels_layer, query, pixel)
    return replace(found, mean_leak=one.survey().future)


def show(now: PixelView, standard: PixelView, layer: int, head: int, picked_head: Callable[[int], None]) -> None:
    """Every head, the chosen one on the picture, and the numbers."""
    changed = not st.session_state.pixels_causal
    name, zmax = head_name(layer, head), largest(now, standard)
    left, middle, right = st.columns([1, 1.35, 1.15], gap="medium")
    with left:
        pictures.show(cached_figure(heads_packet, now, layer, head, zmax), "pixels_heads", picked_head)
        if changed:
            st.caption(say("**{head}** under the standard masks, the same colours", head=name))
            pictures.show(cached_figure(head_packet, standard, layer, head, zmax), "pixels_standard", _pick_pixel)
    with middle:
        st.caption(say("**{head}**: where it attends", head=name))
        pictures.show(cached_figure(head_packet, now, layer, head, zmax), "pixels_picture", _pick_pixel)
        st.html(scale_html(zmax))
    with right:
        st.html(_levels(now, standard, changed))
        st.html(share_table(_shares(now, standard, name, layer, head), changed=changed))
    with middle if changed else left:
        st.caption(say("Loss of every pixel: how much each surprises the model"))
        figure = cached_figure(loss_figure, now.losses, standard.losses, tuple(now.levels.tolist()), changed=changed)
        alt = say("Loss of every pixel, as a picture; the largest is {loss:.2f} nats at {pixel}.",
                  loss=now.losses.max(), pixel=_worst(now))  # fmt: skip
        st.plotly_chart(figure, key="pixels_losses", config=page.CHART, alt=alt)


def _levels(now: PixelView, standard: PixelView, changed: bool) -> str:
    pixel = now.pixel
    what = say("{pixel}, before it is written", pixel=name_of(pixel + 1, ""))
    return level_table(now.chances, standard.chances, int(now.levels[pixel]), what, changed=changed)


def words(now: PixelView, standard: PixelView, layer: int, head: int, scope: str) -> str:
    """The sentence above the pictures."""
    pixel = now.pixel
    scene = Seen(
        name=head_name(layer, head),
        view=now,
        weights=now.weights[layer, head],
        leak=float(now.leak[layer, head]),
        chance=(float(now.chances[now.levels[pixel]]), float(standard.chances[now.levels[pixel]])),
        loss=(float(now.losses.mean()), float(standard.losses.mean())),
        layer_only=scope == "layer",
    )
    return sentence(scene)


def _shares(now: PixelView, standard: PixelView, name: str, layer: int, head: int) -> list[tuple[str, str, str]]:
    both, pixel = (now, standard), now.pixel
    here, true = name_of(pixel + 1, ""), int(now.levels[pixel])

    def row(what: str, values: list[str]) -> tuple[str, str, str]:
        return what, values[0], values[1]

    return [
        row(
            say("{head} from here: on later pixels", head=name), [percent(float(one.leak[layer, head])) for one in both]
        ),
        row(
            say("{head}, mean of all queries", head=name), [percent(float(one.mean_leak[layer, head])) for one in both]
        ),
        row(say("all heads, all queries"), [percent(float(one.mean_leak.mean())) for one in both]),
        row(say("writing {pixel}: on the answer", pixel=here), [percent(one.answer) for one in both]),
        row(
            say("true level {level} of {pixel}", level=true, pixel=here),
            [chance(float(one.chances[true])) for one in both],
        ),
        row(say("loss, nats/pixel"), [f"{one.losses.mean():.3f}" for one in both]),
    ]


def _worst(now: PixelView) -> str:
    return name_of(int(now.losses.argmax()) + 1, "")


def _pick_pixel(pixel: int) -> None:
    st.session_state.pixels_pixel = min(max(pixel, 0), PIXELS - 1)


def picker(heads: int) -> Callable[[int], None]:
    """What a click on one of the small pictures does."""

    def picked(number: int) -> None:
        st.session_state.pixels_layer, st.session_state.pixels_head = divmod(number, heads)

    return picked
