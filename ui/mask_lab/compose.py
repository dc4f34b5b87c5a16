"""The masks that a user composes: a switch and a parameter for each kind, and a drawing, which become a MaskSpec.

Choices are in st.session_state under `mask_` names; those of the model's own masks under the names that Explore uses.
"""

import hashlib
import json
from contextlib import nullcontext
from dataclasses import astuple, replace
from typing import Any, Literal
from urllib.parse import quote

import streamlit as st
from pydantic import Field

from i18n import N_, say
from model.base import Model
from model.heads.view import MAX_CELLS, MaskView
from model.mask_kinds import KINDS
from model.mask_lab import mask_code
from model.masks import NATIVE, MaskSpec, Stroke
from model.spec import LONGEST_SEPARATOR, MAX_STROKES, STANDARD, stroke_of
from model.text import TokenBatch
from ui import controls, link
from ui.heads import head as head_picture
from ui.heads import query as query_keys
from ui.heads.head import canvas
from ui.results import cached_figure
from ui.widgets import bound, component_value, one_of, whole
from viz.mask_lab.canvas import canvas_margin, canvas_packet, verdicts_table
from viz.mask_styles import STYLES

WHERE = {"all": N_("all layers"), "layers": N_("some layers"), "head": N_("this head")}

COMPOSED = [name for name in STYLES if name in KINDS and KINDS[name].first is not None]  # with a parameter
JOINED = [name for name, kind in KINDS.items() if kind.joins]
MAX_POSITION = 10_000  # maximum parameter of a mask, in positions
LONGEST_SPELLED = link.LONGEST_LINK - 1_000  # URL-encoded characters of all masks: the rest is for other choices
MAX_DRAWINGS = 20  # links of a session whose drawings are remembered
KEYS = tuple(f"mask_{name}{end}" for name in COMPOSED for end in ("", "_on"))
SCOPE = ("mask_restart", "mask_where", "mask_layers")
DRAWING = ("mask_drawn_on", "mask_drawn", "mask_text", "mask_epoch", "mask_number")
OTHERS = ("shown", "hand_causal", "code_kind", "named_mask")
ALL_KEYS = (*KEYS, *(f"mask_{name}" for name in JOINED), *SCOPE, *DRAWING, *OTHERS)


class LabLink(link.View):
    """The link of the Mask Lab. shown: the weights beside the mask. mask_drawn_on: whether the drawing in the masks
    applies. hand_causal: the causal mask of the head on paper. code_kind: the attention function to export code for."""

    LEFT_OUT = ()
    NOT_INCLUDED = N_("Links do not contain uploaded files or the numbers of Compute by hand.")
    shown: Literal["now", "standard", "change"] = "now"
    mask_drawn_on: bool = Field(True, alias="drawing")
    hand_causal: bool = True
    code_kind: Literal[*mask_code.KINDS] = Field(mask_code.KINDS[0], alias="code")  # type: ignore[valid-type]

    @classmethod
    def first(cls) -> dict[str, Any]:
        chosen, state = super().first(), st.session_state
        state.update(chosen | {"mask_epoch": state.get("mask_epoch", 0), "mask_number": 0})
        linked = state.get("masks")
        try:
            load(MaskSpec.from_json(linked) if linked else MaskSpec(), native=bool(linked))
        except ValueError as error:
            load(MaskSpec(), native=False)
            state.mask_wrong = str(error)
        if f"kept_{cls.__name__}" in state.to_reread:  # Back or Forward
            drawings = state.get("link_drawings", {})
            set_drawing(drawings.get(str(st.query_params.to_dict()), state.mask_drawn))
        state.kept |= {name: state[name] for name in (*NATIVE, "layer", "head")}  # the page may be left at once
        state.mask_drawn_on &= chosen["mask_drawn_on"]
        state.setdefault("named_mask", "")  # typed: in no link
        return {name: state[name] for name in ALL_KEYS}


def load(spec: MaskSpec, *, native: bool = True) -> None:
    """Set every kind of mask, the drawing and the scope from a spec. native: the model's own masks, too.

    Raises ValueError for a spec that this page has no controls for.
    """
    if spec.heads and not len(spec.layers) == len(spec.heads) == 1:
        template = N_("expected masks for all heads or for one head of one layer, got heads {heads} of layers {layers}")
        raise ValueError(say(template, heads=list(spec.heads), layers=list(spec.layers)))
    if spec.positions == "cells":
        template = N_(
            "expected positions counted over the text or each document, got positions of cells: the Padding page shows "
            "those"
        )
        raise ValueError(say(template))
    on = spec.on()
    for name, value in on.items():
        if isinstance(value, int) and value > MAX_POSITION:
            template = N_("{field}: expected a number up to {most:,}, got {number:,}")
            raise ValueError(say(template, field=name, most=MAX_POSITION, number=value))
    for name in COMPOSED:
        st.session_state[f"mask_{name}_on"] = name in on
        st.session_state[f"mask_{name}"] = on.get(name, KINDS[name].first)
    if native:
        st.session_state.update({name: getattr(spec, name) for name in NATIVE})
    st.session_state.update({f"mask_{name}": getattr(spec, name) for name in JOINED})
    st.session_state.mask_restart = spec.positions in COMPOSED
    st.session_state.mask_layers = list(spec.layers)
    st.session_state.mask_where = "head" if spec.heads else "layers" if spec.layers else "all"
    if spec.heads:
        st.session_state.update(layer=spec.layers[0], head=spec.heads[0])
    set_drawing(spec.drawn)


def choose(model: Model) -> MaskSpec:
    """Draw a switch for every mask and, if it is on, its parameter. Returns a spec that applies everywhere;
    ui/mask_lab/lab.py narrows it."""
    native = controls.switches(model)
    with st.container(key="composed", horizontal=True, vertical_alignment="center"):
        for name in native:
            joined = [one for one in JOINED if KINDS[one].joins == name]
            with st.container(**BESIDE) if joined else nullcontext():
                controls.mask_switch(model, name)
                for one in joined if st.session_state[name] else []:
                    st.checkbox(say(STYLES[one].label), key=f"mask_{one}", width="content", help=say(STYLES[one].help))
        chosen: dict[str, Any] = {name: st.session_state[name] for name in native}
        chosen |= {name: chosen[KINDS[name].joins] and st.session_state[f"mask_{name}"] for name in JOINED}
        chosen |= {name: _choose_composed(name) for name in COMPOSED}
        state, style = st.session_state, STYLES["drawn"]
        switch = lambda on: state.update(mask_drawn_on=on, mask_epoch=state.mask_epoch + 1)  # noqa: E731
        look = bound("mask_drawn_on", state.mask_drawn_on, switch) | {"help": say(style.help)}
        st.toggle(say(style.label), width="content", disabled=not state.mask_drawn, **look)
        chosen["drawn"] = drawing()[0]
    split = [name for name in COMPOSED if KINDS[name].splits and chosen[name] and st.session_state.mask_restart]
    return replace(model.standard, **chosen, positions=(split or ["counted"])[0])


def choose_where(names: list[str], layer: int) -> str:
    """Let the user choose where the masks apply; of some layers, by default the one shown. names: of all layers."""
    layers = len(names)
    gone = [one for one in st.session_state.mask_layers if one >= layers]
    if gone:
        st.session_state.mask_layers = [one for one in st.session_state.mask_layers if one < layers]
        st.caption(say("This model has no layer {layers}.", layers=say(", ").join(map(str, gone))))
    elsewhere = say("Elsewhere the model's standard masks apply. Blocking a head's cells is called attention knockout.")
    where = one_of(say("Apply these masks to"), WHERE, "mask_where", help=elsewhere)
    if where == "layers":
        st.session_state.mask_layers = st.session_state.mask_layers or [layer]
        look: Any = {"placeholder": say("Choose layers"), "label_visibility": "collapsed"}
        st.multiselect(say("Layers"), range(layers), key="mask_layers", format_func=names.__getitem__, **look)
    return where


def set_drawing(strokes: tuple[Stroke, ...]) -> None:
    """Set a drawing that does not come from the canvas, which shows it from the next run on."""
    take_drawing(strokes, None, 0)
    st.session_state.mask_epoch += 1  # so that the canvas takes the page's drawing instead of its own


def take_drawing(strokes: tuple[Stroke, ...], text: str | None, number: int) -> None:
    """Store the canvas's drawing on a text; it is on unless empty. number: its number since the page itself set one."""
    taken = {"mask_drawn_on": bool(strokes), "mask_text": text if strokes else None, "mask_number": number}
    st.session_state.update(taken, mask_drawn=strokes)


def note_drawing(strokes: tuple[Stroke, ...]) -> None:
    """Remember the drawing of the link just written: Back and Forward bring the link, which may be without it."""
    drawings, written = st.session_state.setdefault("link_drawings", {}), str(st.session_state.written_link)
    drawings.pop(written, None)  # the latest is last
    drawings[written] = strokes
    if len(drawings) > MAX_DRAWINGS:
        del drawings[next(iter(drawings))]


def drawing() -> tuple[tuple[Stroke, ...], tuple[Stroke, ...]]:
    """Return the strokes of the drawing, and those of one that is switched off; one of the two is empty."""
    strokes = st.session_state.mask_drawn
    return (strokes, ()) if st.session_state.mask_drawn_on else ((), strokes)


def text_key(batch: TokenBatch) -> str:
    """Return a hash that identifies a text, for the drawing on it: that of its tokens, wherever its padding is."""
    rows = [ids[keep].tolist() for ids, keep in zip(batch.ids, batch.keep, strict=True)]
    source = "" if batch.source is None else text_key(batch.source)
    return hashlib.sha256(repr((rows, source)).encode()).hexdigest()


def for_link(spec: MaskSpec, standard: MaskSpec = STANDARD) -> str | None:
    """Return the spec for a URL: what differs from a MaskSpec with all defaults; None if nothing does, unless these are
    not the model's standard masks (an encoder has no causal one).

    A drawing that is too long for a URL is left out, and the page says so.
    """
    plain = json.loads(MaskSpec().to_json())
    changed = {name: value for name, value in json.loads(spec.to_json()).items() if value != plain[name]}
    text = json.dumps(changed, separators=(",", ":"), ensure_ascii=False) if changed or spec != standard else None
    if text is not None and (len(text) > link.LONGEST_MASKS or len(quote(text)) > LONGEST_SPELLED):
        template = N_(
            "The drawing has too many pieces for a link, so the link leaves it out. *Export the mask* saves it as a "
            "file."
        )
        st.caption(say(template))
        return for_link(replace(spec, drawn=()), standard)
    return text


# A switch and its parameter, in one line
BESIDE: Any = {"horizontal": True, "vertical_alignment": "center", "gap": "xsmall", "width": "content", "wrap": False}


def _choose_composed(name: str) -> int | str:
    on, field, kind, label = f"mask_{name}_on", f"mask_{name}", KINDS[name], say(STYLES[name].label)
    with st.container(**BESIDE):
        st.toggle(label, key=on, help=say(STYLES[name].help), width="content")
        if not st.session_state[on]:
            return kind.off
        if kind.splits:
            st.text_input(label, key=field, max_chars=LONGEST_SEPARATOR, label_visibility="collapsed", width=64)
            about = say("Positions count from 0 in every document.")
            st.checkbox(say("restart"), key="mask_restart", help=about, width="content")
        else:
            st.number_input(label, kind.least, MAX_POSITION, key=field, label_visibility="collapsed", width=72)
    return st.session_state[field]


ABOVE = 280  # pixels above the mask, and above the head beside it, on page load

_component = canvas("mask")


def drawable(begin: int, end: int, query: int) -> tuple[int, int]:
    """Return the positions of [begin, end) that can be drawn on, a cell each, with the query among them if it is in
    there; a caption states what is left out."""
    if end - begin <= MAX_CELLS:
        return begin, end
    before = (query - begin) // MAX_CELLS if begin <= query < end else 0  # whole parts: fixed while the query is in one
    begin = min(begin + before * MAX_CELLS, end - MAX_CELLS)
    template = N_(
        "Positions {first} to {last}: the screen has no room for more. Choose another part of the text above, or "
        "another query."
    )
    st.caption(say(template, first=begin, last=begin + MAX_CELLS - 1))
    return begin, begin + MAX_CELLS


def show_canvas(
    view: MaskView, rows: tuple[int, int], columns: tuple[int, int], text: str, query: int, *, in_scope: bool = True
) -> None:
    """Draw these queries and keys of the mask, each [begin, end). Strokes set compose's drawing, and what is chosen
    with the key q becomes the choice "query".

    text: what the drawing then belongs to, as text_key gives it. The page's strokes are shown even if they do not apply
    yet, because a question is asked first. in_scope: whether the composed masks apply in the layer shown; elsewhere a
    drawing changes nothing, so none is shown and nothing can be drawn.
    """
    strokes, below = (tuple(map(astuple, some)) for some in (drawing() if in_scope else ((), ())))
    drawn = replace(view, strokes=strokes)
    packet = cached_figure(
        canvas_packet,
        drawn,
        rows=rows,
        columns=columns,
        epoch=st.session_state.mask_epoch,
        number=st.session_state.mask_number,
        most=MAX_STROKES if in_scope else 0,
        query=query,
        below=below,
    )
    key = "mask_canvas"
    head_picture.make_room("one", key, canvas_margin(view, rows, columns), ABOVE)
    with st.container(key=f"one_{key}"):
        callbacks = {"on_drawn_change": lambda: take(key, text), "on_query_change": lambda: query_keys.take(key)}
        _component(data=packet, key=key, tables=lambda: [verdicts_table(drawn, rows, columns)], **callbacks)


def take(key: str, text: str) -> None:
    """Set the drawing to what the component with this key sent; anything that is not a drawing is ignored."""
    drawing = component_value(key).get("drawn")
    if not isinstance(drawing, dict) or drawing.get("epoch") != st.session_state.mask_epoch:
        return  # of a drawing that the page has replaced since
    try:
        strokes = tuple(map(stroke_of, drawing["strokes"]))
        MaskSpec(drawn=strokes)
    except (KeyError, TypeError, ValueError):
        return  # not from Unmask's canvas
    number = whole(drawing.get("number"))
    if number is not None:
        take_drawing(strokes, text, number)
