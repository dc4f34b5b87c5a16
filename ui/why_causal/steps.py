"""The steps of the Why causal page, except the training. Steps with choices of their own are fragments."""

import math
from dataclasses import dataclass
from typing import Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from i18n import N_, say, say_count, together
from model.heads.view import head_name
from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Change, Combination, Curves, TwinOutcome, TwinPair
from ui import explain, link, page
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.results import cached_figure
from ui.run_view import RunView
from ui.why_causal import controls
from ui.why_causal.controls import WhyCausalLink, chosen_link
from ui.widgets import one_of
from viz.head import head_figure, head_range
from viz.numbers import number, percent
from viz.why_causal.charts import Curve, change_bars, copies, four, loss_curves, nats, token_losses

ALIKE = 0.05  # nats per token: two losses closer than that count as equal
OFTEN = 0.5  # share of all positions: what is true of fewer does not explain a mean
WHAT_THE_MASK_CHANGES = N_(
    "During generation the newest token is the last one: there is nothing to its right, masked or not. The mask only "
    "decides whether earlier tokens see later ones. A model that learned to copy its right neighbour has nothing to "
    "copy there."
)
PROOF = N_(
    "The largest change of any of the next token's logits at each position; red before the changed token (dotted "
    "line), grey from it on. Weights are compared over all heads and layers."
)
KEPT = N_("Mask on, the largest change of a logit in {where} is <b>{logit}</b>, that of a weight is {weight}.")
LIFTED = N_(
    "Mask off, earlier tokens see it: the largest change of a logit is <b>{logit}</b>, that of a weight is {weight}."
)
MOVED = {True: N_("run with the mask"), False: N_("run without the mask")}


NAMES = {
    Combination(True, True): N_("trained with, run with"),
    Combination(True, False): N_("trained with, run without"),
    Combination(False, True): N_("trained without, run with"),
    Combination(False, False): N_("trained without, run without"),
}


def trained_sentence(training: Curves) -> Markup:
    low, high = training.training[False][-1], training.training[True][-1]
    text = say(
        "A model trained without the causal mask ends at a loss of <b>{low:.2f} nats/token</b>; the same model "
        "trained with the mask on the same rows, at {high:.2f}. The first has not learned to predict: it reads each "
        "answer from the next position."
    )
    return Markup(text).format(low=low, high=high)


def sentence(
    training: Curves, outcomes: dict[Combination, TwinOutcome], batch: TokenBatch, *, vocabulary: int
) -> Markup:
    """Return the step's sentence, with the measured numbers. vocabulary: how many tokens there are to guess from."""
    copies = outcomes[Combination(False, False)].copies
    own, other = outcomes[Combination(False, True)], outcomes[Combination(True, True)]
    put_back = say(
        "With the mask put back its loss is <b>{own:.1f} nats/token</b>; that of the other model is {other:.1f}."
    )
    why = _why_not(own, other, twins.repeats(batch), vocabulary) if own.loss <= other.loss + ALIKE else []
    words = say("{trained} On this text its head {head} puts {share} of its attention there. {put_back}")
    return Markup(words).format(
        trained=trained_sentence(training),
        head=head_name(*twins.best_head(copies)),
        share=percent(float(copies.max())),
        put_back=Markup(" ").join([Markup(put_back).format(own=own.loss, other=other.loss), *why]),
    )


def _why_not(own: TwinOutcome, other: TwinOutcome, repeats: float, vocabulary: int) -> list[str]:
    """Return why a text does not raise the copying model's loss; empty if none of these is the reason."""
    reasons = []
    if repeats >= OFTEN and own.echoes >= OFTEN:
        shares = {"own": percent(own.echoes), "other": percent(other.echoes), "repeats": percent(repeats)}
        echoes = say(
            "With the answer hidden, it predicts that the current token repeats, at {own} of the positions (the "
            "model trained with the mask: {other}); in this text that is correct {repeats} of the time.",
            **shares,
        )
        reasons.append(echoes)
    uniform = math.log(vocabulary)
    if other.loss > uniform:
        worse = N_("The model trained with the mask is worse here than a uniform guess ({blindly:.1f} nats): this "
                   "text is unlike its training data.")  # fmt: skip
        reasons.append(say(worse, blindly=uniform))
    return reasons


def head_sentence(outcomes: dict[Combination, TwinOutcome], combination: Combination, head: tuple[int, int]) -> str:
    free, others = (outcomes[Combination(way, False)].copies for way in (combination.trained, not combination.trained))
    named = {"head": head_name(*head), "share": percent(float(free[head]))}
    if combination.run:
        return say("With the mask, {head} puts exactly 0 on the next token; without, {share}.", **named)
    share = N_(
        "{head} puts {share} of its attention on the next token, the one that it must predict (averaged over all "
        "positions that have one)."
    )
    other = (
        N_("In the model trained without the mask, the highest is {most}.")
        if combination.trained
        else N_("In the model trained with the mask, the highest is {most}.")
    )
    return together([say(share, **named), say(other, most=percent(float(others.max())))])


def proof_sentence(changes: dict[bool, Change], same: bool) -> Markup:
    if same:
        return Markup(say("The token is the same as before: choose another one to see what changes."))
    on, off = changes[True].earlier(), changes[False].earlier()
    where = say_count(
        "the one row before the changed token", "the {count} rows before the changed token", changes[True].position
    )
    return Markup(" ").join(
        Markup(say(template)).format(where=where, logit=amount(logit), weight=amount(weight))
        for template, (logit, weight) in ((KEPT, on), (LIFTED, off))
    )


ROUNDS = {"free": Combination(False, False), "put_back": Combination(False, True), "twin": Combination(True, True)}


def amount(difference: float) -> str:
    """Format a difference: 0 -> "exactly 0"; 3.2e-6 -> "3 × 10⁻⁶"; 7.312 -> "7.31"."""
    return say("exactly 0") if difference == 0 else number(difference)


ABOVE = 358  # pixels above and below the head's picture that other elements take
Outcomes = dict[Combination, TwinOutcome]


@dataclass(frozen=True)
class FirstStepSlots:
    """The containers of the first step that are filled once the text has been run."""

    sentence: DeltaGenerator
    caption: DeltaGenerator
    right: DeltaGenerator


def trained(training: Curves) -> FirstStepSlots:
    sentence = st.empty()
    sentence.html(page.sentence(trained_sentence(training)))
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("#### " + say("How they were trained"))
        put_back = say("trained without, the mask put back (held-out text)")
        lines = [
            Curve(say("trained with the mask"), training.steps, training.training[True], True),
            Curve(say("trained without"), training.steps, training.training[False], False),
            Curve(put_back, training.steps, training.held_out[Combination(False, True)], False, dotted=True),
        ]
        end = N_("{name} from {first:.2f} to {last:.2f}")
        ends = [say(end, name=line.name, first=line.y[0], last=line.y[-1]) for line in lines]
        template = N_("Loss in nats/token over {steps:,.0f} training steps: {ends}.")
        alt = say(template, steps=training.steps[-1], ends=say(", ").join(ends))
        figure = cached_figure(loss_curves, lines, unit=say("nats/token"))
        page.chart(figure, "training_figure", alt)
        caption = st.empty()
    return FirstStepSlots(sentence, caption, right)


def losses(beginning: FirstStepSlots, training: Curves, pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    with beginning.right:
        st.markdown("#### " + say("The loss of every token"))
        lines, means = [], []
        for one, found in outcomes.items():
            name, positions = say(NAMES[one]), range(len(found.losses))
            lines.append(Curve(name, positions, found.losses, one.trained, dotted=one.trained != one.run))
            means.append(say("{name}: {value}", name=name, value=nats(found.loss)))
        template = N_("Loss of each token under the four combinations. Means, in nats: {means}.")
        figure = cached_figure(token_losses, lines, batch.pieces[0])
        page.chart(figure, "loss_figure", say(template, means=say("; ").join(means)))
    text = sentence(training, outcomes, batch, vocabulary=len(pair.words()))
    beginning.sentence.html(page.sentence(text))
    # rest: the mean over all targets but each row's last, from the mean over all of them
    low, last, length = training.training[False][-1], training.last_token[False][-1], pair.context
    caption = say(
        "A token's loss is −ln of its predicted probability, in nats: 0 means certain. The ends of the curves are "
        "means of the last 25 of {steps:,.0f} steps. The {low:.3f} nats average each row's last token, which has no "
        "token to its right ({last:.2f} nats), and all the others ({rest}).",
        steps=training.steps[-1], low=low, last=last, rest=nats(max((low * length - last) / (length - 1), 0.0)),
    )  # fmt: skip
    beginning.caption.caption(caption)


@st.fragment
def heads(pair: TwinPair, batch: TokenBatch, looks: dict[Combination, RunView], outcomes: Outcomes) -> None:
    WhyCausalLink.keep()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        trained = one_of(say("Model"), controls.TRAINED, "why_trained", width="content", on_change=controls.best_head)
        combination = Combination(trained, one_of(say("Causal mask"), controls.RUN, "why_run", width="content"))
        layer, head = controls.choose_head(combination, outcomes)
    view = looks[combination].head(layer, head)
    st.html(page.sentence(head_sentence(outcomes, combination, (layer, head))))
    picture, scores = st.columns([2.2, 1], gap="large")
    with picture:
        alt = cached_figure(explain.head_alt, looks[combination].name(layer, head), view, False)
        figure = cached_figure(head_figure, view, dark=page.is_dark())
        head_picture.show(figure, alt, room="one", above=ABOVE, on_pick=None)
        st.html(cached_figure(explain.key, [view], head_range(view)))
        st.caption(say("Labels show a space as ·, a line end as ⏎; \\<start\\> precedes every text."))
    with scores:
        st.markdown(say("Copy score: a head's mean weight on the next token, t + 1"))
        for other in sorted(COMBINATIONS, key=lambda combination: combination.run):  # with the mask, all are 0
            name = say(NAMES[other])
            if other.run:
                st.caption(name + " · " + say("blocked: exactly 0 in every head"))
                continue
            st.caption(name)
            st.html(cached_figure(copies, outcomes[other].copies, (layer, head) if other == combination else None))
    link.write(chosen_link(pair, batch))


@st.fragment
def writing(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    WhyCausalLink.keep()
    state, seed = st.session_state, None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if one_of(say("The next token is"), controls.WRITING, "why_writing", width="content") == "drawn":
            seed = state.why_seed
            again = lambda: state.update(why_seed=state.why_seed + 1)  # noqa: E731
            st.button(say("Sample again"), icon=":material/casino:", on_click=again)
    with guarded(say("Writing …")):
        cards = controls.cards(pair, batch, outcomes, seed)
    st.html(cached_figure(four, cards))
    st.caption(say(WHAT_THE_MASK_CHANGES))
    link.write(chosen_link(pair, batch))


@st.fragment
def proof(pair: TwinPair, batch: TokenBatch) -> None:
    WhyCausalLink.keep()
    state, words = st.session_state, pair.words()
    state.why_place = controls.changed_position(batch)
    if state.why_token not in words:
        state.why_token = controls.another_token(pair, int(batch.ids[0, state.why_place]))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        trained = one_of(say("Model"), controls.TRAINED, "why_proof", width="content")
        positions, named = range(1, batch.ids.shape[1]), lambda position: f"{position}: {batch.pieces[0][position]}"
        look: Any = {"width": 200}
        position = st.selectbox(say("Change the token"), positions, key="why_place", format_func=named, **look)
        token = st.selectbox(say("into"), words, key="why_token", format_func=pair.models[True].label, **look)
    with guarded(say("Changing a token …")):
        changes = controls.change(pair, batch, trained, position, token)
    sentence = proof_sentence(changes, token == int(batch.ids[0, position]))
    st.html(page.sentence(sentence))
    moved = {say(MOVED[run]): change.logits for run, change in changes.items()}
    figure = cached_figure(change_bars, moved, batch.pieces[0], position)
    page.chart(figure, "proof_figure", sentence.striptags())
    st.caption(say(PROOF))
    link.write(chosen_link(pair, batch))


def seen(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    with guarded(say("Changing a token …")):
        # the previous step's choices, which may not have been drawn; another token if the chosen one changes nothing
        position, token = controls.changed_position(batch), st.session_state.why_token
        before = int(batch.ids[0, position])
        if token not in pair.words() or token == before:
            token = controls.another_token(pair, before)
        changes = controls.change(pair, batch, st.session_state.why_proof, position, token)
    losses = {name: nats(outcomes[one].loss) for name, one in ROUNDS.items()}
    loss = say(
        "Trained and run without the mask, a model has a loss of <b>{free} nats/token</b> on this text; with the "
        "mask put back, <b>{put_back}</b>. The model trained and run with it has {twin}."
    )
    free = ROUNDS["free"]
    head = head_sentence(outcomes, free, twins.best_head(outcomes[free].copies))
    lines = [Markup(loss).format(**losses), head, proof_sentence(changes, same=False)]
    items = Markup().join(Markup("<li>{}</li>").format(line) for line in lines)
    st.markdown("#### " + say("What you have seen"))
    st.html(Markup("<ol>{}</ol>").format(items))
