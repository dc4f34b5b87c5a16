"""The runs behind the Generation page: the text so far, by cached steps or in full, and the token that comes next.

With the cache on a reader's newest trace, which holds their keys and values, stays in their st.session_state: one a
reader, of a bounded size.
"""

import time
from dataclasses import replace

import streamlit as st
from torch import Tensor

from model import kv_cache
from model import sampling as generation
from model.base import Model
from model.sampling import Continuation, Sampling
from model.trace import Trace
from ui import run_view
from ui.generation.writing import SECONDS, Writing
from ui.run_view import RunView

MOST_KEPT = 64 * 2**20  # bytes of one reader's cache


def look_at(model: Model, path: Continuation, cache: bool) -> RunView:
    """The run of the text so far, by cached steps where the cache is on. Raises what a run raises."""
    if not cache:
        return _full(model, path.ids)
    kept: Trace | None = st.session_state.get("grown")
    if kept is None or kept.batch.ids[0, : len(path.prompt)].tolist() != list(path.prompt):
        kept = _full(model, path.prompt).trace
    trace = kv_cache.follow(model, replace(kept, readout=model.readout), path.ids)
    small = replace(trace, readout=_of_no_model)
    st.session_state.grown = small if trace.nbytes() <= MOST_KEPT else None
    return RunView(model, trace, model.standard, 0, ("grown", model.key, path.ids))


def advance(model: Model, sampling: Sampling, cache: bool) -> Writing:
    """Write the token that is due, by a press of Step or by time while playing. Raises what a run raises."""
    writing: Writing = st.session_state.writing
    due = writing.due or int(writing.playing and time.monotonic() - writing.last > 0.75 * SECONDS)
    if due and writing.path.room(model.context):
        choice = choice_of(look_at(model, writing.path, cache), writing.path, sampling, None)
        path = writing.path.plus(choice.token)
        writing = replace(writing, path=path, last=time.monotonic())
    writing = replace(writing, due=0)
    st.session_state.writing = writing
    return writing


def choice_of(now: RunView, path: Continuation, sampling: Sampling, place: int | None) -> generation.Choice:
    """What the sampling makes of one place: the written token number `place`, None for the next."""
    position = len(path.prompt) + (len(path.written) if place is None else place)
    choice = generation.draw(_logits(now, position - 1), sampling, position)
    return choice if place is None else replace(choice, token=path.written[place])


def _full(model: Model, ids: tuple[int, ...]) -> RunView:
    return run_view.run_pair(model, kv_cache.batch_of(model, ids), model.standard, 0, "self")[0]


def _logits(now: RunView, row: int) -> Tensor:
    return now.trace.readout(now.trace.states[0, row]).float()


def _of_no_model(states: Tensor) -> Tensor:
    raise NotImplementedError("expected a trace with its model's readout")
