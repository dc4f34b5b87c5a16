"""The generated text, which is plain data in st.session_state.writing: its controls, its link, and its growth."""

import time
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import streamlit as st
from pydantic import AfterValidator, Field

from i18n import N_, say, say_count, translated
from model import kv_cache
from model import sampling as generation
from model.base import Model
from model.sampling import MAX_WRITTEN, Continuation, Sampling, logits_at
from model.text import rows_of, truncation_message
from serving.job import GeneratedRunRef, ModelRef, RunRef
from ui import link, results
from ui.markdown import escaped
from ui.run_view import RunView

SECONDS = 0.4  # seconds from token to token while playing
LEFT_ALONE = 30  # seconds without a new token after which a playing text is paused: its page was left
NEXT = -1  # the candidates shown are those for the next token
MAX_SEED = 999_999
MAX_K = 100_000
NO_DECODER = N_(
    "This page is about decoders, which continue a text; {model} is not a decoder. Choose one on the left: the "
    "story model is always available."
)

Hundredths = AfterValidator(lambda number: round(number, 2))


class GenerationLink(link.TextLink):
    """The link of the Generation page. A number out of range gets its default."""

    NOT_INCLUDED = N_("Links do not contain generated tokens: they open the page with the prompt alone.")
    layer: link.Whole | None = None
    head: link.Whole | None = None
    temperature: Annotated[float, Field(ge=0, le=2), Hundredths] = 0.8
    top_k: Annotated[int, Field(ge=0, le=MAX_K)] = 40
    top_p: Annotated[float, Field(ge=0.05, le=1), Hundredths] = 0.95
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 1
    cache: bool = True
    generation_section: Literal["cache", "cost", "lift"] = "cache"
    old_rows_causal: bool = False


@dataclass(frozen=True)
class Writing:
    """The generated text of one user. model: the key of the model that writes it.

    chances: the probability of each written token, 0 to 1. due: how many tokens were requested and are not yet written.
    last: when the newest token was written, in seconds of time.monotonic.
    """

    model: str
    path: Continuation
    chances: tuple[float, ...] = ()
    playing: bool = False
    due: int = 0
    last: float = 0.0

    def plus(self, token: int, chance: float) -> "Writing":
        return replace(self, path=self.path.plus(token), chances=(*self.chances, chance))

    def instead(self, index: int, token: int, chance: float) -> "Writing":
        """Return the text up to written token number `index`, with the token there that the user chose instead."""
        return replace(self, path=self.path.instead(index, token), chances=(*self.chances[:index], chance), due=0)

    def cut(self, written: int) -> "Writing":
        """Return the text with only the first `written` of its written tokens."""
        return replace(self, path=self.path.cut(written), chances=self.chances[:written])


def begin(model: Model, text: str) -> list[str]:
    """Start the text over if the model or the prompt has changed. Returns sentences about the prompt.

    Raises ValueError for a prompt without a token.
    """
    lines, more = rows_of(text, 1)
    batch = model.encode(lines[:1])
    notes = []
    if more:
        left_out = say_count(
            "The model continues the first line; {count} more line is left out.",
            "The model continues the first line; {count} more lines are left out.",
            more,
        )
        notes.append(left_out)
    prompt, cut = tuple(batch.ids[0, : batch.ids.shape[1] - model.added_after].tolist()), len(batch.cut[0])
    if cut and len(prompt) < model.context:  # there is room only for the tokens that are added after a text
        notes.append(escaped(translated(truncation_message(batch.cut[0], model.context))))
    elif cut:
        full = say_count(
            "The prompt takes all {context:,} tokens that the model reads here; its last character is cut. There is no "
            "room to generate: shorten it.",
            "The prompt takes all {context:,} tokens that the model reads here; its last {count} characters are cut. "
            "There is no room to generate: shorten it.",
            cut,
            context=model.context,
        )
        notes.append(full)
    writing, state = st.session_state.get("writing"), st.session_state
    if state.get("writing_lost"):
        notes.append(say("The server no longer has this session: text generated in it starts over from the prompt."))
    # noted in the next run, which takes the click that came with the lost state (widgets.end_page)
    state.writing_lost = writing is None and bool(state.get("brought"))
    if writing is None or (writing.model, writing.path.prompt) != (model.key, prompt):
        writing = Writing(model.key, Continuation(prompt))
        state.choice_at = NEXT
    left_alone = writing.last > 0 and time.monotonic() - writing.last > LEFT_ALONE
    if writing.playing and (left_alone or not writing.path.room(model.context)):
        writing = replace(writing, playing=False)
    state.writing = writing
    return notes


SAMPLING_HELP = {
    "temperature": N_(
        "Logits are divided by the temperature. Values below 1 sharpen the distribution; 0 always takes the most "
        "likely token."
    ),
    "top_k": N_("Keeps only this many of the most likely tokens; 0 keeps all. Applied after the temperature."),
    "top_p": N_(
        "Keeps the smallest set of most likely tokens whose probabilities reach this sum; 1 keeps all. Applied after "
        "top-k."
    ),
    "seed": N_(
        "Each position's random number depends only on the seed and the position: the same steps generate the same "
        "text."
    ),
    "cache": N_(
        "On: a step computes only the newest row, with the cached keys and values of the earlier rows. Off: a step "
        "recomputes every row."
    ),
}


def choose_sampling(model: Model) -> tuple[Sampling, bool]:
    """Let the user choose how a token is sampled and whether the cache is on; it is off for a model without one."""
    about: dict[str, Any] = {key: {"key": key, "help": say(text)} for key, text in SAMPLING_HELP.items()}
    narrow = 160  # pixels: in a wider field, Streamlit draws "Press Enter to apply" over the number
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        temperature = st.slider(say("Temperature"), 0.0, 2.0, step=0.05, **about["temperature"])
        top_k = st.number_input(say("Top-k"), 0, MAX_K, step=1, width=narrow, **about["top_k"])
        top_p = st.slider(say("Top-p"), 0.05, 1.0, step=0.01, **about["top_p"])
        seed = st.number_input(say("Seed"), 0, MAX_SEED, step=1, width=narrow, **about["seed"])
        cache = kv_cache.network_of(model) is not None and st.toggle(say("Key-value cache"), **about["cache"])
    return Sampling(float(temperature), int(top_k), float(top_p), int(seed)), cache


def buttons(model: Model, writing: Writing) -> None:
    room, some, playing = writing.path.room(model.context), bool(writing.path.written), writing.playing
    state = st.session_state  # its text may have grown by the time a button is pressed
    full = None if room else say("{count} tokens are generated.", count=MAX_WRITTEN)
    if len(writing.path.ids) >= model.context:
        full = say("The context is full.")
    # one button for both, so that it keeps the keyboard focus
    label, icon = (say("Pause"), ":material/pause:") if playing else (say("Play"), ":material/play_arrow:")
    with st.container(horizontal=True, gap="small"):
        step = lambda: _change(due=state.writing.due + 1)  # noqa: E731
        look: Any = {"on_click": step, "disabled": not room or playing, "help": full}
        st.button(say("Step"), icon=":material/skip_next:", key="step", type="primary", **look)
        play = lambda: _change(playing=not playing, last=state.writing.last if playing else 0.0)  # noqa: E731
        st.button(label, icon=icon, key="play", on_click=play, disabled=not room and not playing, help=full)
        back = lambda: _set(state.writing.cut(max(len(state.writing.path.written) - 1, 0)))  # noqa: E731
        st.button(say("Back"), icon=":material/undo:", key="back", on_click=back, disabled=not some or playing)
        start_over = lambda: _set(replace(state.writing.cut(0), playing=False, due=0))  # noqa: E731
        look = {"on_click": start_over, "disabled": not some and not playing}
        st.button(say("Start over"), icon=":material/restart_alt:", key="start_over", **look)


def halt() -> None:
    if "writing" in st.session_state:
        st.session_state.writing = replace(st.session_state.writing, playing=False, due=0)


def take(index: int, token: int, chance: float) -> None:
    """Replace written token number `index` by another one, and continue from there."""
    _set(st.session_state.writing.instead(index, token, chance))


def _change(**what: object) -> None:
    _set(replace(st.session_state.writing, **what))


def _set(writing: Writing) -> None:
    st.session_state.writing = writing
    st.session_state.choice_at = NEXT


def run_of_text(model: Model, path: Continuation, cache: bool) -> RunView:
    """Return the run of the text so far, extended by one cached step if the cache is on."""
    batch, ref = kv_cache.batch_of(model, path.ids), ModelRef.of(model)
    if not cache:
        return RunView(model, RunRef(ref, batch, model.standard), model.standard, 0)
    run = GeneratedRunRef(ref, batch, model.standard, prompt=len(path.prompt))
    newest, before = st.session_state.get("grown", (None, None))  # keys of the traces of this user's last two texts
    if newest != run.trace_key:
        newest, before = run.trace_key, newest
    st.session_state.grown = newest, before
    return RunView(model, replace(run, before=before), model.standard, 0)


def advance(model: Model, sampling: Sampling, cache: bool) -> Writing:
    """Write the tokens that are due: one for each press of Step that was handled since, or else at most one by time
    while playing. Raises what a run raises."""
    writing: Writing = st.session_state.writing
    due = writing.due or int(writing.playing and time.monotonic() - writing.last > 0.75 * SECONDS)
    for left in reversed(range(due)):
        if writing.path.room(model.context):
            choice = choice_of(run_of_text(model, writing.path, cache), writing.path, sampling, None)
            writing = writing.plus(choice.token, float(choice.before[choice.token]))
            # compute its row too: `last` is the time when the token can be drawn
            choice_of(run_of_text(model, writing.path, cache), writing.path, sampling, None)
        writing = replace(writing, due=left, last=time.monotonic())
        st.session_state.writing = writing  # a press during the next token ends this run, and the next one goes on
    return writing


def choice_of(now: RunView, path: Continuation, sampling: Sampling, index: int | None) -> generation.SampledToken:
    """Return what is sampled at one position: for written token number `index`, or None for the next one."""
    position = len(path.prompt) + (len(path.written) if index is None else index)
    logits = results.ask(logits_at, now.run, 0, position - 1)
    choice = generation.draw(logits, sampling, position)
    return choice if index is None else replace(choice, token=path.written[index])
