"""Models, shared by everybody in the process, read-only, a few at a time."""

from pathlib import Path

import streamlit as st

from model import catalog
from model.catalog import Model
from model.gpt2 import CheckpointError
from model.hub import NotAvailable

MODELS_IN_MEMORY = 3


def get(name: str) -> Model:
    """The model, loaded once; shows progress while it comes. Raises what catalog.load raises."""
    with st.spinner(f"Loading {name} …", show_time=True):
        bar = st.empty()

        def show(file: str, done: int, total: int) -> None:
            share = min(done / total, 1.0) if total else 0.0
            bar.progress(share, f"{name}: {file}, {done / 1e6:.0f} of {total / 1e6:.0f} MB")

        catalog.fetch(name, show)
        bar.empty()
        return _load(name, _stamp(name))


def get_or_story(name: str) -> tuple[Model, str | None]:
    """The model, or the built-in one and a sentence that says why."""
    try:
        return get(name), None
    except (NotAvailable, CheckpointError, MemoryError, OSError) as error:
        return get("story"), str(error) or type(error).__name__


@st.cache_resource(max_entries=MODELS_IN_MEMORY, show_spinner=False)
def _load(name: str, stamp: tuple[int, ...]) -> Model:
    return catalog.load(name)


def _stamp(name: str) -> tuple[int, ...]:
    """Changes when a folder's files do, so that a model saved anew is loaded anew."""
    folder = Path(name).expanduser()
    if name in catalog.ENTRIES or not folder.is_dir():
        return ()
    return tuple(path.stat().st_mtime_ns for path in sorted(folder.glob("*")) if path.is_file())
