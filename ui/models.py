"""Models, shared by everybody in the process, read-only, a few at a time."""

from pathlib import Path

import streamlit as st

from model import catalog
from model.base import Model
from model.settings import Settings
from ui.markdown import escaped

TROUBLE = (ValueError, OSError, MemoryError)  # what loading or running a model ends in; OSError: no files to be had


def get(name: str) -> Model:
    """The model, loaded once; shows progress while it comes. Raises what catalog.load raises."""
    with st.spinner(f"Loading {escaped(name)} …", show_time=True):
        bar = st.empty()

        def show(file: str, done: int, total: int) -> None:
            share = min(done / total, 1.0) if total else 0.0
            bar.progress(share, f"{escaped(name)}: {escaped(file)}, {done / 1e6:.0f} of {total / 1e6:.0f} MB")

        catalog.fetch(name, show)
        bar.empty()
        return _load(name, _stamp(name))


def get_or_keep(name: str) -> Model:
    """The model; where it cannot be had, a sentence that says why, and the model that this reader had before."""
    problem = st.session_state.get("failure") if name else "Name a model: its id on the Hugging Face hub, or a folder."
    if problem is None:
        try:
            model = get(name)
        except TROUBLE as error:
            problem = st.session_state.failure = str(error) or type(error).__name__
        else:
            st.session_state.kept_model = name
            return model
    kept = _kept()
    words = escaped(problem.rstrip("."))
    st.error(f"{words}. Until then this page shows the {escaped(kept.name)} model.", icon=":material/error:")
    if name:
        st.button("Try again", on_click=forget_failure)
    return kept


def _kept() -> Model:
    """The model that was shown last; where its files are gone, the one that ships."""
    try:
        return get(st.session_state.setdefault("kept_model", "story"))
    except TROUBLE:
        st.session_state.kept_model = "story"
        return get("story")


def forget_failure() -> None:
    """Let the next rerun try to load the model that could not be had."""
    st.session_state.pop("failure", None)


@st.cache_resource(max_entries=Settings.from_environment().models_in_memory, show_spinner=False)
def _load(name: str, stamp: tuple[int, ...]) -> Model:
    return catalog.load(name)


def _stamp(name: str) -> tuple[int, ...]:
    """Changes when a folder's files do, so that a model saved anew is loaded anew."""
    folder = Path(name).expanduser()
    if name in catalog.offered() or not folder.is_dir():
        return ()
    return tuple(path.stat().st_mtime_ns for path in sorted(folder.glob("*")) if path.is_file())
