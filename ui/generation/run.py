"""The runs behind the Generation page: the text so far, by cached steps or in full, and the token that comes next.

With the cache on, the newest trace of a text, which holds its keys and values, is kept with everybody's results, by
the text's tokens; a reader's session holds its key alone. So memory is bounded however many readers there are.
"""

import time
from dataclasses import replace

import streamlit as st

from model import kv_cache
from model import sampling as generation
from model.base import Model
from model.sampling import Continuation, Sampling
from model.trace import Trace
from ui import results, run_view
from ui.generation.writing import SECONDS, Writing
from ui.run_view import RunView


def look_at(model: Model, path: Continuation, cache: bool) -> RunView:
    """The run of the text so far, by one cached step where the cache is on. Raises what a run raises."""
    if not cache:
        return run_view.run_pair(model, kv_cache.batch_of(model, path.ids), model.standard, 0, "self")[0]
    kept, key, before = results.shared(), ("grown", model.key, path.ids), st.session_state.get("grown")
    old: Trace | None = kept.find(before) if before and before[1] == model.key else None
    trace = kept.get(key, lambda: grown(model, path, old))
    st.session_state.grown = key
    if before != key:  # a text that grows leaves one trace behind it, not one for each of its tokens
        kept.forget(lambda result: result is old)
    return RunView(model, trace, model.standard, 0, key)


def grown(model: Model, path: Continuation, old: Trace | None) -> Trace:
    """The trace of a text: one cached step after the old one where that will do, else after a full run."""
    if old is None or kv_cache.alike(old, path.ids) < max(len(path.ids) - 1, 1):
        known = path.ids[:-1] if path.written else path.ids
        old = model.run(kv_cache.batch_of(model, known), model.standard)
    return kv_cache.follow(model, old, path.ids)


def advance(model: Model, sampling: Sampling, cache: bool) -> Writing:
    """Write the token that is due, by a press of Step or by time while playing: one at the most. Raises what a run
    raises."""
    writing: Writing = st.session_state.writing
    due = writing.due or (writing.playing and time.monotonic() - writing.last > 0.75 * SECONDS)
    if due and writing.path.room(model.context):
        choice = choice_of(look_at(model, writing.path, cache), writing.path, sampling, None)
        writing = writing.plus(choice.token, float(choice.before[choice.token]))
        look_at(model, writing.path, cache)  # its row too: a token's time is over once it can be drawn
    writing = replace(writing, due=False, last=time.monotonic() if due else writing.last)
    st.session_state.writing = writing
    return writing


def choice_of(now: RunView, path: Continuation, sampling: Sampling, place: int | None) -> generation.Choice:
    """What the sampling makes of one place: the written token number `place`, None for the next."""
    position = len(path.prompt) + (len(path.written) if place is None else place)
    logits = now.trace.readout(now.trace.states[0, position - 1]).float()
    choice = generation.draw(logits, sampling, position)
    return choice if place is None else replace(choice, token=path.written[place])
