"""The controls of a page that looks at one head. Every choice lives in st.session_state under its name in link.View."""

import streamlit as st

from model import catalog
from model.catalog import Model
from model.masks import MaskSpec
from ui import link
from ui.examples import EXAMPLES, FIRST

OTHER = "another"
SCOPES = {"model": "re-run the model", "layer": "this layer only"}


def seed() -> None:
    """Once a session, from the URL: put every choice where its widget will find it."""
    if "seeded" in st.session_state:
        return
    view = link.read()
    known = view.model in catalog.ENTRIES
    st.session_state.update(
        view.model_dump(exclude={"model", "text"}),
        seeded=True,
        model=view.model if known else OTHER,
        other="" if known else view.model,
        text=FIRST if view.text is None else view.text,
        linked_text=view.text,
    )


def choose_model() -> str:
    """The model's name: one of the catalog, or a folder."""
    names = [*catalog.ENTRIES, OTHER]
    st.selectbox("Model", names, format_func=_model_title, key="model", on_change=_forget_head)
    if st.session_state.model != OTHER:
        return st.session_state.model
    st.text_input(
        "Folder of a model", key="other", placeholder="a folder with model.safetensors", on_change=_forget_head
    )
    return st.session_state.other.strip() or "story"


def choose_text() -> str:
    """The text, one row a line."""
    st.text_area("Text, one sequence a line", key="text", height=140)
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


def choose_masks() -> tuple[MaskSpec, str]:
    """The mask switches, and whether they re-run the model ("model") or redo this layer only ("layer")."""
    causal, padding, scope = st.columns([1, 1.05, 1.9], vertical_alignment="center")
    causal.toggle("Causal", key="causal", help="On: no token sees a later one. Off: every token sees the whole text.")
    padding.toggle("Padding", key="padding", help="On: no token looks at the padding that evens out short lines.")
    scope.segmented_control(
        "What a switch does",
        SCOPES,
        format_func=lambda scope: SCOPES[scope],
        key="scope",
        required=True,
        label_visibility="collapsed",
    )
    return MaskSpec(causal=st.session_state.causal, padding=st.session_state.padding), st.session_state.scope


def choose_head(model: Model) -> tuple[int, int]:
    """The layer and head shown large, the nearest that the model has."""
    first = catalog.first_head(model)
    for name, count, default in (("layer", model.num_layers, first[0]), ("head", model.num_heads, first[1])):
        chosen = st.session_state.get(name)
        st.session_state[name] = min(default if chosen is None else chosen, count - 1)
    layer, head = st.columns(2)
    layer.selectbox("Layer", range(model.num_layers), key="layer")
    head.selectbox("Head", range(model.num_heads), key="head")
    return st.session_state.layer, st.session_state.head


def share(model_name: str) -> None:
    """Keep the URL true to the view, and offer links."""
    text = st.session_state.text
    kept = text if text == st.session_state.linked_text else None
    chosen = {name: st.session_state.get(name) for name in link.View.model_fields}
    view = link.View.model_validate(chosen | {"model": model_name, "text": kept})
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
    entry = catalog.ENTRIES[name]
    return entry.title if not entry.megabytes else f"{entry.title} ({entry.megabytes:,} MB)"


def _forget_head() -> None:
    st.session_state.layer = st.session_state.head = None


def _take_example() -> None:
    if st.session_state.example:
        st.session_state.text = EXAMPLES[st.session_state.example]
        st.session_state.row = 1
        st.session_state.example = None
