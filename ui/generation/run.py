"""The runs behind the Generation page: the text so far, by cached steps or in full, and the token that comes next.

With the cache on, the newest trace of a text, which holds its keys and values, is kept where the model is, by the
text's tokens; a reader's session holds its key alone. So memory is bounded however many readers there are.
"""

import time
from dataclasses import replace

import streamlit as st

from model import kv_cache
from model import sampling as generation
from model.base import Model
from model.predictions import logits_at
from model.sampling import Continuation, Sampling
from serving.job import GrownRunRef, ModelRef, RunRef
from ui import results
from ui.generation.writing import SECONDS, Writing
from ui.run_view import RunView


def look_at(model: Model, path: Continuation, cache: bool) -> RunView:
    """The run of the text so far, by one cached step where the cache is on."""
    batch, ref = kv_cache.batch_of(model, path.ids), ModelRef.of(model)
    if not cache:
        return RunView(model, RunRef(ref, batch, model.standard), model.standard, 0)
    run = GrownRunRef(ref, batch, model.standard, prompt=len(path.prompt))
    newest, before = st.session_state.get("grown", (None, None))  # the traces of this reader's last two texts, by key
    if newest != run.trace_key:
        newest, before = run.trace_key, newest
    st.session_state.grown = newest, before
    run = replace(run, before=before)
    return RunView(model, run, model.standard, 0)


def advance(model: Model, sampling: Sampling, cache: bool) -> Writing:
    """Write the token that is due, by a press of Step or by time while playing: one at the most. Raises what a run
    raises."""
    writing: Writing = st.session_state.writing
    due = writing.due or (writing.playing and time.monotonic() - writing.last > 0.75 * SECONDS)
    if due and writing.path.room(model.context):
        choice = choice_of(look_at(model, writing.path, cache), writing.path, sampling, None)
        writing = writing.plus(choice.token, float(choice.before[choice.token]))
        # its row too: a token's time is over once it can be drawn
        choice_of(look_at(model, writing.path, cache), writing.path, sampling, None)
    writing = replace(writing, due=False, last=time.monotonic() if due else writing.last)
    st.session_state.writing = writing
    return writing


def choice_of(now: RunView, path: Continuation, sampling: Sampling, place: int | None) -> generation.SampledToken:
    """What the sampling makes of one place: the written token number `place`, None for the next."""
    position = len(path.prompt) + (len(path.written) if place is None else place)
    logits = results.ask(logits_at, now.run, 0, position - 1)
    choice = generation.draw(logits, sampling, position)
    return choice if place is None else replace(choice, token=path.written[place])
