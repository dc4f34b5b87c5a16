"""Models and runs, shared by everybody in the process, read-only and bounded."""

from pathlib import Path
from threading import Lock

import streamlit as st
from cachetools import LRUCache

from model import catalog
from model.catalog import Model
from model.gpt2 import CheckpointError
from model.hub import NotAvailable
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace

MODELS_IN_MEMORY = 3
RUNS_IN_MEMORY = 768 * 2**20  # bytes


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


def run(model: Model, batch: TokenBatch, spec: MaskSpec) -> Trace:
    """The run's trace; the same run is not made twice while it is remembered."""
    runs, lock = _runs()
    key = (model.key, batch.ids.numpy().tobytes(), batch.keep.numpy().tobytes(), batch.ids.shape, spec)
    with lock:
        if key in runs:
            return runs[key]
    trace = model.run(batch, spec)
    with lock:
        if trace.nbytes() <= runs.maxsize:
            runs[key] = trace
    return trace


@st.cache_resource(max_entries=MODELS_IN_MEMORY, show_spinner=False)
def _load(name: str, stamp: tuple[int, ...]) -> Model:
    return catalog.load(name)


@st.cache_resource(show_spinner=False)
def _runs() -> tuple[LRUCache, Lock]:
    return LRUCache(RUNS_IN_MEMORY, getsizeof=Trace.nbytes), Lock()


def _stamp(name: str) -> tuple[int, ...]:
    """Changes when a folder's files do, so that a model saved anew is loaded anew."""
    folder = Path(name).expanduser()
    if name in catalog.ENTRIES or not folder.is_dir():
        return ()
    return tuple(path.stat().st_mtime_ns for path in sorted(folder.glob("*")) if path.is_file())
