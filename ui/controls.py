"""The controls of a page that looks at one head. Every choice lives in st.session_state under its name in link.View.

A mask, layer, head or attention that is None there takes the model's own first value once the model is known.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from model import catalog
from model.base import Model
from model.masks import NATIVE, MaskSpec
from model.settings import Settings
from ui import choices, link, models
from ui.examples import EXAMPLES, FIRST
from viz.heatmap import MOST_TICKS
from viz.view import MOST_CELLS

OTHER = "another"
SCOPES = {"model": "re-run the model", "layer": "this layer only"}
SWITCHES = {
    "causal": "On: no token sees a later one. Off: every token sees the whole text.",
    "padding": "On: no token looks at the padding that evens out short lines.",
    "window": "On: in some layers a token sees only its neighbourhood, as this model was trained.",
}
OF_THE_MODEL = ("layer", "head", "attention", *NATIVE)  # choices that another model starts anew


def seed() -> None:
    """Once a session, from the URL: put every choice where its widget will find it."""
    choices.restore("kept", _from_link)


def _from_link() -> dict[str, Any]:
    view = link.read()
    known = view.model in catalog.offered()
    st.session_state.linked_text = view.text
    return view.model_dump() | {
        "model": view.model if known or Settings.from_environment().models else OTHER,
        "other": "" if known else view.model,
        "text": FIRST if view.text is None else view.text,
    }


def choose_model() -> str:
    """The model's name: one of those offered, a hub id or a folder."""
    offered = list(catalog.offered())
    if not Settings.from_environment().models:
        offered.append(OTHER)
    if st.session_state.model not in offered:
        st.session_state.model = offered[0]
    st.selectbox("Model", offered, format_func=_model_title, key="model", on_change=_start_anew)
    if st.session_state.model != OTHER:
        return st.session_state.model
    st.text_input("Hub id or folder", key="other", placeholder="Qwen/Qwen3-0.6B", on_change=_start_anew)
    return st.session_state.other.strip()


def choose_text() -> str:
    """The text, one row a line."""
    st.text_area("Text, one sequence a line", key="text", height=140, on_change=_show_all_positions)
    st.selectbox("Examples", EXAMPLES, index=None, key="example", placeholder="Examples", label_visibility="collapsed",
                 on_change=_take_example)  # fmt: skip
    return st.session_state.text


def choose_row(rows: list[str]) -> int:
    """Which row to look at, from 0, and on which side short rows are padded."""
    st.session_state.row = min(max(st.session_state.row, 1), len(rows))
    if len(rows) > 1:
        numbers = range(1, len(rows) + 1)
        st.selectbox("Row", numbers, format_func=lambda number: f"{number}: {rows[number - 1][:40]}", key="row")
        st.radio("Pad side", ("left", "right"), key="pad", horizontal=True)
    return st.session_state.row - 1


def choose_target(model: Model) -> list[str] | None:
    """An encoder-decoder's target texts, None where the model is to write them; None for all other models."""
    if model.kind != "encoder-decoder":
        return None
    st.text_area("Target text, one a line", key="target", height=80, placeholder="left empty, the model writes it")
    return [line for line in st.session_state.target.splitlines() if line.strip()] or None


def choose_attention(offered: Sequence[str]) -> str:
    """Which of a model's attentions to look at."""
    if st.session_state.attention not in offered:
        st.session_state.attention = offered[min(1, len(offered) - 1)]
    if len(offered) > 1:
        st.segmented_control("Attention", offered, key="attention", required=True)
    return st.session_state.attention


def choose_masks(model: Model) -> tuple[MaskSpec, str]:
    """The mask switches, and whether they re-run the model ("model") or redo this layer only ("layer")."""
    native = model.describe().masks
    names = [name for name in NATIVE if name != "window" or name in native]
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="medium"):
        for name in names:
            mask_switch(model, name)
        st.segmented_control(
            "A lifted mask:", list(SCOPES), format_func=SCOPES.__getitem__, key="scope", required=True, width="content",
            help="Re-run: every layer sees what the layers before made of it. This layer only: queries and keys of the "
            "standard run, the weights redone; predictions stay.",
        )  # fmt: skip
    chosen = {name: st.session_state[name] for name in names}
    return replace(model.standard, **chosen), st.session_state.scope


def mask_switch(model: Model, name: str) -> None:
    """The switch of a mask that models are trained with; at first as this model was."""
    if st.session_state[name] is None:
        st.session_state[name] = getattr(model.standard, name)
    st.toggle(name.capitalize(), key=name, help=SWITCHES[name], width="content")


def choose_head(model: Model, layers: int, heads: int) -> tuple[int, int]:
    """The layer and head shown large, the nearest that there are."""
    first = catalog.first_head(model)
    for name, count, default in (("layer", layers, first[0]), ("head", heads, first[1])):
        chosen = st.session_state[name]
        st.session_state[name] = min(default if chosen is None else chosen, count - 1)
    layer, head = st.columns(2)
    layer.selectbox("Layer", range(layers), key="layer")
    head.selectbox("Head", range(heads), key="head")
    return st.session_state.layer, st.session_state.head


def choose_positions(rows: int, columns: int) -> tuple[int, int]:
    """The part of a long text that is shown large, from the first position up to, without, the second.

    All of a short one, and of a rectangle, whose rows and columns are different texts.
    """
    longest = max(rows, columns)
    end = min(max(st.session_state.end or longest, 2), longest)
    begin = min(st.session_state.begin or 0, max(end - 2, 0))
    if longest <= MOST_TICKS or rows != columns:
        return 0, longest
    st.session_state.positions = (begin, end)
    label = "Part of the text shown large"
    help_text = f"Up to {MOST_CELLS} tokens get a cell each; of more, every cell is the largest of several."
    st.slider(label, 0, longest, key="positions", on_change=_take_positions, help=help_text)
    return st.session_state.positions


def share(name: str, model: Model, masks: str | None = None) -> None:
    """Keep the URL true to the view, and offer links. masks: a whole spec in place of causal, padding and window."""
    text = st.session_state.text
    kept = text if text == st.session_state.linked_text else None
    chosen = {field: st.session_state.get(field) for field in link.View.model_fields}
    if len(model.attentions) == 1:
        chosen["attention"] = None
    plain = {mask: None for mask in NATIVE if masks or chosen[mask] == getattr(model.standard, mask)}
    view = link.View.model_validate(chosen | plain | {"model": name or "story", "text": kept, "masks": masks})
    link.write(view)
    with st.popover("Link to this view", icon=":material/link:", width="stretch"):
        st.caption("Without the text: model, head, masks and row.")
        st.code(link.address(view.model_copy(update={"text": None})), language=None, wrap_lines=True)
        if len(text) > link.LONGEST_TEXT:
            st.caption(
                f"A link with the text holds at most {link.LONGEST_TEXT:,} characters; this text has {len(text):,}."
            )
        else:
            st.caption("With the text, readable by whoever gets the link.")
            st.code(link.address(view.model_copy(update={"text": text})), language=None, wrap_lines=True)


def _model_title(name: str) -> str:
    if name == OTHER:
        return "Another model…"
    entry = catalog.ENTRIES.get(name)
    if entry is None:
        return name
    return entry.title if not entry.megabytes else f"{entry.title} ({entry.megabytes:,} MB)"


def _start_anew() -> None:
    st.session_state.update(dict.fromkeys(OF_THE_MODEL))
    models.forget_failure()


def _take_positions() -> None:
    begin, end = st.session_state.positions
    st.session_state.begin, st.session_state.end = begin, max(end, begin + 1)


def _show_all_positions() -> None:
    st.session_state.begin = st.session_state.end = None


def _take_example() -> None:
    if st.session_state.example:
        _show_all_positions()
        st.session_state.text = EXAMPLES[st.session_state.example]
        st.session_state.row = 1
        st.session_state.example = None
