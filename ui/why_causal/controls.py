"""The Why causal page: its controls and link; four runs on a text, what they write, a changed token's effect."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import streamlit as st
from pydantic import BeforeValidator, ConfigDict, PlainSerializer

from i18n import N_, say
from model.heads.view import head_name
from model.masks import MaskSpec
from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Change, Combination, Curves, TwinOutcome, TwinPair
from serving.job import ModelRef
from serving.result_cache import once
from ui import controls, results, run_view
from ui.link import Link, Whole, at_most
from ui.run_view import RunView
from ui.why_causal import live_training
from ui.widgets import bound
from viz.numbers import percent
from viz.why_causal.charts import TwinCard


@once
def pair() -> TwinPair:
    """Return both models, loaded once per process. Raises CheckpointError."""
    return twins.load()


@once
def curves() -> Curves:
    return twins.curves()


def run_all(found: TwinPair, batch: TokenBatch) -> dict[Combination, RunView]:
    """Return views of both models on the text, with the mask and without; nothing runs until it is needed."""
    look = lambda model, causal: run_view.run_pair(model, batch, MaskSpec(causal=causal), 0, "self")[0]  # noqa: E731
    return {combination: look(found.models[combination.trained], combination.run) for combination in COMBINATIONS}


def outcomes(looks: dict[Combination, RunView]) -> dict[Combination, TwinOutcome]:
    return {combination: results.ask(twins.outcome, look.run) for combination, look in looks.items()}


def change(found: TwinPair, batch: TokenBatch, trained: bool, position: int, token: int) -> dict[bool, Change]:
    """Return what changes with another token at a position, with the mask (True) and without (False)."""
    ref = ModelRef.of(found.models[trained])
    return {run: results.ask(twins.change, ref, batch, position, token, causal=run) for run in (True, False)}


def cards(
    found: TwinPair, batch: TokenBatch, outcomes: dict[Combination, TwinOutcome], seed: int | None
) -> list[TwinCard]:
    """Return a card for each of the four combinations: its loss on the text, and its continuation of the beginning.

    seed: of the random sampling; None takes the likeliest token each time.
    """
    given = batch.ids[0, : twins.PROMPT].tolist()
    result = []
    for one in COMBINATIONS:
        ref = ModelRef.of(found.models[one.trained])
        ids = results.ask(twins.write, ref, tuple(given), causal=one.run, seed=seed)
        new = ids[len(given) :]
        before, whole = found.decode(given), found.decode(ids)
        measured = outcomes[one].loss, outcomes[one].accuracy
        result.append(TwinCard(one.trained, one.run, *measured, before, whole[len(before) :], len(set(new)), len(new)))
    return result


LOSS, HEADS, WRITTEN, PROOF, TRAINING = range(1, 6)
NAMES = {
    LOSS: N_("The loss"),
    HEADS: N_("Copy heads"),
    WRITTEN: N_("Generated text"),
    PROOF: N_("A later token"),
    TRAINING: N_("Train it yourself"),
}


def _turn(steps: int) -> None:
    """Go this many steps on, from the step that an earlier press has led to."""
    to = st.session_state.why_step + steps
    st.session_state.why_step = to if to in NAMES else st.session_state.why_step


def choose_step() -> int:
    """Let the user choose a step by its tab, or by Previous and Next. Returns its number, from 1."""
    step = st.session_state.why_step
    look: dict[str, Any] = {"label_visibility": "collapsed", "width": "content", "required": True}
    look["format_func"] = lambda number: f"{number} {say(NAMES[number])}"
    with st.container(key="why_steps", horizontal=True, vertical_alignment="center", gap="small"):
        st.segmented_control(say("The five steps"), list(NAMES), **bound("why_step", step), **look)
        for label, key, icon, steps in (
            (say("Previous"), "why_previous", ":material/chevron_left:", -1),
            (say("Next"), "why_next", ":material/chevron_right:", 1),
        ):
            st.button(label, key=key, icon=icon, on_click=_turn, args=(steps,), disabled=step + steps not in NAMES)
    return step


FIRST_TEXT = (
    "Once upon a time there was a little girl who lived in a house by the sea. "  # not shown in other languages
    'One day the king came to her door, and she said, "I know you."'
)
TRAINED = {False: N_("trained without the mask"), True: N_("trained with it")}
RUN = {False: N_("run without"), True: N_("run with the mask")}
WRITING = {"drawn": N_("sampled at random"), "likeliest": N_("the most likely")}
REPLACEMENTS = ("·wolf", "·dog", "·king", "·man", "·sea", "·old")  # the first that differs from the token is used
Head = Annotated[  # layer and head, "0.3" in the URL
    tuple[int, int],
    BeforeValidator(lambda head: tuple(head.split(".")) if isinstance(head, str) else head),
    PlainSerializer(lambda head: f"{head[0]}.{head[1]}"),
]


class WhyCausalLink(Link):
    """The link of the Why causal page, without the text to train on. None: the page's default."""

    model_config = ConfigDict(alias_generator=lambda name: name.removeprefix("why_"))
    TEXT: ClassVar[str] = "why_text"
    FIRST_TEXT: ClassVar[str] = FIRST_TEXT
    NOT_INCLUDED = N_("Links do not contain the text to train on.")
    why_text: Annotated[str | None, at_most(100_000)] = None
    why_step: Annotated[Literal[*NAMES], BeforeValidator(int)] = LOSS  # type: ignore[valid-type]
    why_writing: Literal[*WRITING] = "drawn"  # type: ignore[valid-type]
    why_seed: Whole = 1
    why_trained: bool = False
    why_run: bool = False
    why_head: Head | None = None
    why_proof: bool = True
    why_place: Whole | None = None
    why_token: Whole | None = None
    live_causal: bool = False
    live_steps: Annotated[Literal[*live_training.STEPS], BeforeValidator(int)] = 300  # type: ignore[valid-type]

    @classmethod
    def first(cls) -> dict[str, Any]:
        return super().first() | {"live_text": st.session_state.get("live_text", live_training.fables())}


def chosen_link(found: TwinPair, batch: TokenBatch) -> WhyCausalLink:
    """Return the link, without the page's defaults: the head with the highest copy score, a position in the last third,
    another token at that position."""
    state = st.session_state
    own = {
        "why_head": state.get("why_best_head"),
        "why_place": _default_position(batch),
        "why_token": another_token(found, int(batch.ids[0, changed_position(batch)])),
    }
    return WhyCausalLink.of_choices(**dict.fromkeys(name for name, value in own.items() if state[name] == value))


def _default_position(batch: TokenBatch) -> int:
    return max(round(0.7 * (batch.ids.shape[1] - 1)), 1)


def changed_position(batch: TokenBatch) -> int:
    chosen = st.session_state.why_place
    return min(max(_default_position(batch) if chosen is None else chosen, 1), batch.ids.shape[1] - 1)


def choose_text() -> str:
    state = st.session_state

    def take() -> None:
        state.why_place = state.why_token = None
        if state.why_head == state.get("why_best_head"):  # the page's default, which may change with the text
            state.why_head = None

    st.text_area(say("Text"), key="why_text", height=180, on_change=take)
    return controls.read(st.session_state.why_text)


def choose_head(one: Combination, outcomes: dict[Combination, TwinOutcome]) -> tuple[int, int]:
    shown = outcomes[one].copies
    free = outcomes[Combination(one.trained, False)].copies  # ordered by the run without the mask: with it, all are 0
    order = sorted(np.ndindex(free.shape), key=lambda position: -free[position])
    best = st.session_state.why_best_head = twins.best_head(free)
    if st.session_state.why_head not in order:
        st.session_state.why_head = best

    def label(head: tuple[int, int]) -> str:
        return say("{head} · {share} on t + 1", head=head_name(*head), share=percent(float(shown[head])))

    look: Any = {"width": 235, "format_func": label}
    look["help"] = say("L0 H3 is head 3 of layer 0, both counted from 0; t + 1 is the next token.")
    chosen = st.session_state.why_head
    st.selectbox(say("Head, highest copy score first"), order, **bound("why_head", chosen), **look)
    go, icon = say("Go to the highest copy score"), ":material/vertical_align_top:"
    st.button(go, icon=icon, on_click=best_head, disabled=chosen == best)
    return chosen


def another_token(found: TwinPair, token: int) -> int:
    return next(number for number in [*_replacements(), *found.words()] if number != token)


@once
def _replacements() -> list[int]:
    """Return the ids of those REPLACEMENTS that are in the models' vocabulary."""
    found = pair()
    labels = {found.models[True].label(number): number for number in found.words()}
    return [labels[label] for label in REPLACEMENTS if label in labels]


def best_head() -> None:
    st.session_state.why_head = None
