"""The words of the page Why causal, made of what was measured."""

import math

from markupsafe import Markup

from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import Change, Combination, Curves, Outcome, Pair
from ui.markdown import escaped
from viz.numbers import number, percent
from viz.why_causal.charts import Line
from viz.why_causal.tables import nats

ROUNDING = 1e-4  # of a logit; a larger change is none of float32's
ALIKE = 0.05  # nats a token; two losses closer than that are called alike
OFTEN = 0.5  # of all places: what is true of fewer explains no mean
WHAT_THE_MASK_CHANGES = (
    "The token being written is the last one: nothing stands to its right, masked or not. While writing, the mask only "
    "decides whether the tokens before it see what was written after them. A model that learned to copy its right "
    "neighbour finds none there."
)
PROOF = (
    "The largest change of any of the next token's logits at each place; red before the token that changed (dotted "
    "line), grey from it on. Weights are compared over all heads and layers."
)
LABELS = r"Labels show a space as ·, a line end as ⏎; \<start\> stands before every text."


def cut_note(found: Pair, batch: TokenBatch) -> str:
    """What of the text is not read, "" where all of it is."""
    if not batch.cut[0]:
        return ""
    beginning = " ".join(batch.cut[0].split())[:40]
    return (
        f"The twins read at most {found.context} tokens. The text's last {len(batch.cut[0]):,} characters are cut, "
        f"from “{escaped(beginning)}” on."
    )


def trained(training: Curves) -> Markup:
    """What the two trainings came to."""
    low, high = training.training[False][-1], training.training[True][-1]
    return Markup(
        "Trained without the causal mask, a model ends at a loss of <b>{:.2f} nats</b> a token; its twin, trained on "
        "the same rows with the mask, at {:.2f}. The first has not learned to predict: it reads each answer one place "
        "to the right."
    ).format(low, high)


def sentence(training: Curves, outcomes: dict[Combination, Outcome], batch: TokenBatch, *, vocabulary: int) -> Markup:
    """What there is to see, in numbers. vocabulary: how many tokens there are to guess from."""
    copies = outcomes[Combination(False, False)].copies
    layer, head = twins.best_head(copies)
    return Markup("{} On this text its head L{} H{} puts {} of its attention there. {}").format(
        trained(training), layer, head, percent(float(copies.max())), _put_back(outcomes, batch, vocabulary)
    )


def _put_back(outcomes: dict[Combination, Outcome], batch: TokenBatch, vocabulary: int) -> Markup:
    """What the mask put back makes of the first one's loss, beside its twin's; where it is no worse, why."""
    own, other = outcomes[Combination(False, True)], outcomes[Combination(True, True)]
    losses = Markup("its loss is <b>{:.1f} nats</b> a token, its twin’s {:.1f}").format(own.loss, other.loss)
    if own.loss > other.loss + ALIKE:
        return Markup("With the mask put back {}.").format(losses)
    which = "the other way round" if own.loss < other.loss - ALIKE else "no different"
    found = Markup("With the mask put back it is <b>{}</b> for this text: {}.").format(which, losses)
    return found + "".join(f" {why}" for why in _why_not(own, other, twins.repeats(batch), vocabulary))


def _why_not(own: Outcome, other: Outcome, repeats: float, vocabulary: int) -> list[str]:
    """Why a text does not punish the model that copies; nothing where none of these is the reason."""
    reasons = []
    if repeats >= OFTEN and own.echoes >= OFTEN:
        reasons.append(
            "The answer on its right is gone, and it guesses that the token it stands on comes again, at "
            f"{percent(own.echoes)} of the places (its twin at {percent(other.echoes)}); in this text that is right "
            f"{percent(repeats)} of the time."
        )
    if other.loss > math.log(vocabulary):
        reasons.append(
            f"Its twin is worse here than guessing blindly ({math.log(vocabulary):.1f} nats): this text is not "
            "like those it learned from."
        )
    return reasons


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
    rest = max((low * length - last) / (length - 1), 0.0)  # the mean over all but the last of the targets
    return (
        "A token's loss is −ln of the probability that it was given, in nats: 0 is certainty. The ends of the curves "
        f"are means of the last 25 of {training.steps[-1]:,.0f} steps. The {low:.3f} nats are made of each row's last "
        f"token, which has nothing to its right ({last:.2f} nats), and of all the others ({nats(rest)})."
    )


def training_alt(training: Curves) -> str:
    """The curves for whoever cannot see them."""
    ends = ", ".join(f"{line.name} from {line.y[0]:.2f} to {line.y[-1]:.2f}" for line in training_lines(training))
    return f"Loss in nats a token over {training.steps[-1]:,.0f} training steps: {ends}."


def head_sentence(outcomes: dict[Combination, Outcome], one: Combination, head: tuple[int, int]) -> str:
    """What the head on screen does, in numbers."""
    free, others = (outcomes[Combination(way, False)].copies for way in (one.trained, not one.trained))
    name, score = f"L{head[0]} H{head[1]}", percent(float(free[head]))
    if one.run:
        return f"With the mask, {name} puts exactly 0 on the next token; without, {score}."
    whose = "The twin trained with the mask" if not one.trained else "The twin trained without it"
    return (
        f"{name} puts {score} of its attention on the token one to the right, the very one it is to predict "
        f"(averaged over all that have one). {whose} has {percent(float(others.max()))} at the most."
    )


def loss_lines(outcomes: dict[Combination, Outcome]) -> list[Line]:
    """The losses of each token under the four combinations."""
    return [
        Line(
            f"trained {twins.with_or_without(one.trained)}, run {twins.with_or_without(one.run)}",
            range(len(outcome.losses)),
            outcome.losses,
            one.trained,
            dotted=one.trained != one.run,
        )
        for one, outcome in outcomes.items()
    ]


def loss_alt(outcomes: dict[Combination, Outcome]) -> str:
    """The means of the four curves."""
    pairs = zip(loss_lines(outcomes), outcomes.values(), strict=True)
    means = "; ".join(f"{line.name}: {outcome.loss:.2f}" for line, outcome in pairs)
    return f"Loss of each token under the four combinations. Means, in nats: {means}."


def proof_sentence(changes: dict[bool, Change], same: bool) -> Markup:
    """What moved before the changed token, with the mask and without."""
    if same:
        return Markup("The token is the same as before: choose another one, and see what moves.")
    on, off, place = changes[True].earlier(), changes[False].earlier(), changes[True].place
    what = "nothing moves" if max(on) == 0 else "almost nothing moves" if max(on) < ROUNDING else "something moves"
    return Markup(
        "Mask on, {} in the {} before it: the largest change of a logit is <b>{}</b>, of a weight {}. Mask off, "
        "earlier tokens see it: the largest is <b>{}</b>, of a weight {}."
    ).format(what, "one row" if place == 1 else f"{place} rows", *map(amount, on), *map(amount, off))


def proof_alt(changes: dict[bool, Change]) -> str:
    """The two rows of bars for whoever cannot see them."""
    parts = (
        f"mask {'on' if run else 'off'}: at most {amount(change.earlier()[0])} before place {change.place}, "
        f"{amount(change.later()[0])} from it on"
        for run, change in changes.items()
    )
    return f"The largest change of a logit at each token; {'; '.join(parts)}."


def amount(difference: float) -> str:
    """0 -> "exactly 0"; 3.2e-6 -> "3 × 10⁻⁶"; 7.312 -> "7.31"."""
    return "exactly 0" if difference == 0 else number(difference)


def paragraph(words: str) -> Markup:
    """The sentence at the top of a page or section."""
    return Markup('<p class="sentence">{}</p>').format(words)
