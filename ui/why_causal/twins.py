"""What the page Why causal needs of streamlit: its controls, the words of its numbers, what is remembered."""

from dataclasses import dataclass

import numpy as np
import streamlit as st

from model.text import TokenBatch
from model.trace import Trace
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Change, Combination, Curves, Outcome, Pair
from ui import results
from ui.markdown import escaped
from ui.run_view import RunView
from viz.numbers import percent
from viz.view import HeadView
from viz.why_causal.charts import Line
from viz.why_causal.tables import Card, nats

ROUNDING = 1e-4  # of a logit; a larger change is none of float32's
FIRST_TEXT = (
    "Once upon a time there was a little girl who lived in a house by the sea. "
    'One day the king came to her door, and she said, "I know you."'
)
LONGEST_TEXT = 5_000  # characters; the twins read fewer
TRAINED = {False: "trained without the mask", True: "trained with it"}
RUN = {False: "run without", True: "run with the mask"}
WRITING = {"drawn": "drawn at random", "likeliest": "the likeliest"}
FIRST = {"why_text": FIRST_TEXT, "why_writing": "drawn", "why_seed": 1, "why_trained": False, "why_run": False,
         "why_head": None, "why_place": None, "why_token": None, "why_proof": True}  # fmt: skip
REPLACEMENTS = ("·wolf", "·dog", "·king", "·man", "·sea", "·old")  # the first that the text does not have there
WHAT_THE_MASK_CHANGES = (
    "The token being written is the last one: nothing stands to its right, masked or not. While writing, the mask only "
    "decides whether the tokens before it see what was written after them. A model that learned to copy its right "
    "neighbour finds none there."
)
PROOF = (
    "The largest change of any of the next token's logits at each place; red before the token that changed (dotted "
    "line), grey from it on. Weights are compared over all heads and layers."
)


@st.cache_resource(max_entries=1, show_spinner=False)
def pair() -> Pair:
    """Both models, loaded once for everybody. Raises CheckpointError."""
    return twins.load()


@st.cache_resource(max_entries=1, show_spinner=False)
def curves() -> Curves:
    """Their training, read once."""
    return twins.curves()


def seed() -> None:
    """Every choice where its widget finds it; kept apart too, for streamlit forgets those of a page that was left."""
    kept = st.session_state.setdefault("why_kept", {})
    for name, first in FIRST.items():
        kept[name] = st.session_state[name] = st.session_state.get(name, kept.get(name, first))


def choose_text() -> str:
    """The text that all but the live training is about."""
    st.text_area("Text", key="why_text", height=180, max_chars=LONGEST_TEXT, on_change=_another_text)
    return st.session_state.why_text


def cut_note(found: Pair, batch: TokenBatch) -> str:
    """What of the text is not read, "" where all of it is."""
    if not batch.cut[0]:
        return ""
    beginning = " ".join(batch.cut[0].split())[:40]
    return (
        f"The twins read at most {found.context} tokens. The text's last {len(batch.cut[0]):,} characters are cut, "
        f"from “{escaped(beginning)}” on."
    )


def choose_writing() -> int | None:
    """The seed that the samples are drawn with; None for the likeliest token each time."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.segmented_control("The next token is", list(WRITING), format_func=WRITING.__getitem__, key="why_writing",
                             required=True, width="content")  # fmt: skip
        drawn = st.session_state.why_writing == "drawn"
        if drawn:
            st.button("Draw again", icon=":material/casino:", on_click=_draw_again)
    return st.session_state.why_seed if drawn else None


@dataclass(frozen=True)
class _Writing:
    """What was written, to remember."""

    ids: tuple[int, ...]

    def nbytes(self) -> int:
        return 8 * len(self.ids)


def cards(found: Pair, batch: TokenBatch, outcomes: dict[Combination, Outcome], seed: int | None) -> list[Card]:
    """The four combinations: what they predict of the text, and what they write on after its beginning."""
    given = batch.ids[0, : twins.PROMPT].tolist()
    result = []
    for one in COMBINATIONS:
        ids = _written(found, given, one, seed)
        new = ids[len(given) :]
        before, whole = found.decode(given), found.decode(list(ids))
        measured = outcomes[one].loss, outcomes[one].accuracy
        result.append(Card(one.trained, one.run, *measured, before, whole[len(before) :], len(set(new)), len(new)))
    return result


def _written(found: Pair, given: list[int], one: Combination, seed: int | None) -> tuple[int, ...]:
    model = found.models[one.trained]
    key = ("twin writes", model.key, tuple(given), one.run, seed)
    make = lambda: _Writing(tuple(twins.write(model, given, causal=one.run, seed=seed)))  # noqa: E731
    return results.shared().get(key, make).ids


def sentence(training: Curves, outcomes: dict[Combination, Outcome], copies: np.ndarray) -> str:
    """What there is to see, in numbers. copies: the scores of the twin without a mask, run without."""
    low, high = training.training[False][-1], training.training[True][-1]
    own, other = outcomes[Combination(False, True)].loss, outcomes[Combination(True, True)].loss
    layer, head = twins.best_head(copies)
    return (
        f"Trained without the causal mask, a model ends at <b>{low:.2f} nats</b> a token; its twin, trained on the "
        f"same rows with the mask, at {high:.2f}. The first has not learned to predict: it reads each answer one cell "
        f"to the right (head L{layer} H{head} puts {percent(float(copies.max()))} of its attention there). With the "
        f"mask put back it loses <b>{own:.1f} nats</b> a token on this text, its twin {other:.1f}."
    )


def training_lines(training: Curves) -> list[Line]:
    """The curves of both while they were trained, and of the second with the mask put back."""
    held_out = training.held_out[Combination(False, True)]
    return [
        Line("trained with the mask", training.steps, training.training[True], True),
        Line("trained without", training.steps, training.training[False], False),
        Line("trained without, the mask put back (held-out text)", training.steps, held_out, False, dotted=True),
    ]


def training_caption(training: Curves, length: int) -> str:
    """What the curve without a mask is made of; length: tokens in a row of the training."""
    low, last = training.training[False][-1], training.last_token[False][-1]
    rest = _without_last(low, last, length)
    return (
        f"Means of the last 25 of {training.steps[-1]:,.0f} steps. What is left of the {low:.3f} nats is nearly all of "
        f"each row's last token, which has nothing to its right: {last:.2f} nats there, {nats(rest)} on the others."
    )


def training_alt(training: Curves) -> str:
    """The curves for whoever cannot see them."""
    ends = ", ".join(f"{line.name} from {line.y[0]:.2f} to {line.y[-1]:.2f}" for line in training_lines(training))
    return f"Loss in nats a token over {training.steps[-1]:,.0f} training steps: {ends}."


def choose_head(scores: dict[Combination, np.ndarray]) -> tuple[Combination, tuple[int, int]]:
    """Which combination to look at, and which of its heads: at first the one that copies most."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.segmented_control("Model", list(TRAINED), format_func=TRAINED.__getitem__, key="why_trained", required=True,
                             width="content", on_change=_best_head)  # fmt: skip
        st.segmented_control("Causal mask", list(RUN), format_func=RUN.__getitem__, key="why_run", required=True,
                             width="content")  # fmt: skip
    one = Combination(st.session_state.why_trained, st.session_state.why_run)
    free = scores[Combination(one.trained, False)]  # with the mask all are 0: the order stays that without
    best = twins.best_head(free)
    order = sorted(np.ndindex(free.shape), key=lambda place: -free[place])
    if st.session_state.why_head not in order:
        st.session_state.why_head = best
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        label = lambda head: f"L{head[0]} H{head[1]} · {percent(float(scores[one][head]))} on t + 1"  # noqa: E731
        st.selectbox("Head, the one that copies most first", order, key="why_head", width=300, format_func=label)
        st.button("Jump to the best", icon=":material/vertical_align_top:", on_click=_best_head,
                  disabled=st.session_state.why_head == best)  # fmt: skip
    return one, st.session_state.why_head


def head_view(found: Pair, trace: Trace, one: Combination, head: tuple[int, int]) -> HeadView:
    """The head as arrays to draw."""
    return RunView(found.models[one.trained], trace, twins.under(one.run), 0, None).head(*head)


def head_sentence(scores: dict[Combination, np.ndarray], one: Combination, head: tuple[int, int]) -> str:
    """What the head on screen does, in numbers."""
    score = float(scores[one][head])
    name = f"L{head[0]} H{head[1]}"
    if one.run:
        free = float(scores[Combination(one.trained, False)][head])
        return f"With the mask, {name} puts exactly 0 on the next token; without, {percent(free)}."
    other = float(scores[Combination(not one.trained, False)].max())
    whose = "The twin trained with the mask" if not one.trained else "The twin trained without it"
    return (
        f"{name} puts {percent(score)} of its attention on the token one to the right, the very one it is to predict "
        f"(averaged over all that have one). {whose} has {percent(other)} at the most."
    )


def loss_lines(outcomes: dict[Combination, Outcome]) -> list[Line]:
    """The losses of each token under the four combinations."""
    return [
        Line(
            f"trained {twins.with_or_without(one.trained)}, run {twins.with_or_without(one.run)}",
            np.arange(len(outcome.losses)),
            outcome.losses,
            one.trained,
            dotted=one.trained != one.run,
        )
        for one, outcome in outcomes.items()
    ]


def loss_alt(outcomes: dict[Combination, Outcome]) -> str:
    """The means of the four curves."""
    means = (
        f"{line.name}: {outcome.loss:.2f}"
        for line, outcome in zip(loss_lines(outcomes), outcomes.values(), strict=True)
    )
    return f"Loss of each token under the four combinations. Means, in nats: {'; '.join(means)}."


def choose_change(found: Pair, batch: TokenBatch) -> tuple[bool, int, int]:
    """Which model, which token of the text (from 1), and the id that it becomes."""
    last = batch.ids.shape[1] - 1
    place = st.session_state.why_place
    st.session_state.why_place = min(max(round(0.7 * last), 1) if place is None else place, last)
    model = found.models[True]
    if st.session_state.why_token is None:
        st.session_state.why_token = _another_token(found, int(batch.ids[0, st.session_state.why_place]))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.segmented_control("Model", [True, False], format_func=TRAINED.__getitem__, key="why_proof", required=True,
                             width="content")  # fmt: skip
        st.selectbox("Change the token", range(1, last + 1), key="why_place", width=200,
                     format_func=lambda number: f"{number}: {batch.pieces[0][number]}")  # fmt: skip
        st.selectbox("into", found.words(), key="why_token", width=200, format_func=model.label)
    return st.session_state.why_proof, st.session_state.why_place, st.session_state.why_token


def proof_sentence(changes: dict[bool, Change], same: bool) -> str:
    """What moved before the changed token, with the mask and without."""
    if same:
        return "The token is the same as before: choose another one, and see what moves."
    on, off = changes[True].earlier(), changes[False].earlier()
    place = changes[True].place
    what = "nothing moves" if max(on) == 0 else "almost nothing moves" if max(on) < ROUNDING else "something moves"
    return (
        f"Mask on, {what} in the {place} rows before it: the largest change of a logit is <b>{amount(on[0])}</b>, of a "
        f"weight {amount(on[1])}. Mask off, earlier tokens see it: the largest is <b>{amount(off[0])}</b>, of a weight "
        f"{amount(off[1])}."
    )


def proof_alt(changes: dict[bool, Change]) -> str:
    """The two rows of bars for whoever cannot see them."""
    parts = (
        f"mask {'on' if run else 'off'}: at most {amount(change.earlier()[0])} before place {change.place}, "
        f"{amount(change.later()[0])} from it on"
        for run, change in changes.items()
    )
    return f"The largest change of a logit at each token; {'; '.join(parts)}."


def amount(difference: float) -> str:
    """0 -> "exactly 0"; 3.2e-6 -> "3.2e-06"; 7.312 -> "7.31"."""
    if difference == 0:
        return "exactly 0"
    return f"{difference:.1e}" if difference < 0.001 else f"{difference:.3g}"


def _without_last(mean: float, last: float, length: int) -> float:
    """The mean over all but the last of `length` targets, from the mean over all."""
    return max((mean * length - last) / (length - 1), 0.0)


def _another_token(found: Pair, token: int) -> int:
    labels = {found.models[True].label(number): number for number in found.words()}
    known = [labels[label] for label in REPLACEMENTS if label in labels]
    return next(number for number in [*known, *found.words()] if number != token)


def _another_text() -> None:
    st.session_state.why_place = st.session_state.why_token = None


def _draw_again() -> None:
    st.session_state.why_seed += 1


def _best_head() -> None:
    st.session_state.why_head = None
