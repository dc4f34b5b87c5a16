"""The curves of the page Why causal: what is drawn, what the legend says, and what is read out of them."""

from i18n import N_, say
from model.why_causal.twins import Combination, Curves, TwinOutcome
from viz.why_causal.charts import Curve
from viz.why_causal.tables import nats

NAMES = {
    Combination(True, True): N_("trained with, run with"),
    Combination(True, False): N_("trained with, run without"),
    Combination(False, True): N_("trained without, run with"),
    Combination(False, False): N_("trained without, run without"),
}


def training_lines(training: Curves) -> list[Curve]:
    """The curves of both while they were trained, and of the second with the mask put back."""
    held_out = training.held_out[Combination(False, True)]
    put_back = say("trained without, the mask put back (held-out text)")
    return [
        Curve(say("trained with the mask"), training.steps, training.training[True], True),
        Curve(say("trained without"), training.steps, training.training[False], False),
        Curve(put_back, training.steps, held_out, False, dotted=True),
    ]


def training_caption(training: Curves, length: int) -> str:
    """What the curve without a mask is made of; length: tokens in a row of the training."""
    low, last = training.training[False][-1], training.last_token[False][-1]
    rest = max((low * length - last) / (length - 1), 0.0)  # the mean over all but the last of the targets
    return say(
        "A token's loss is −ln of the probability that it was given, in nats: 0 is certainty. The ends of the curves "
        "are means of the last 25 of {steps:,.0f} steps. The {low:.3f} nats are made of each row's last token, which "
        "has nothing to its right ({last:.2f} nats), and of all the others ({rest}).",
        steps=training.steps[-1], low=low, last=last, rest=nats(rest),
    )  # fmt: skip


def training_alt(training: Curves) -> str:
    """The curves for whoever cannot see them."""
    ends = [
        say("{name} from {first:.2f} to {last:.2f}", name=line.name, first=line.y[0], last=line.y[-1])
        for line in training_lines(training)
    ]
    return say(
        "Loss in nats a token over {steps:,.0f} training steps: {ends}.",
        steps=training.steps[-1], ends=say(", ").join(ends),
    )  # fmt: skip


def loss_lines(outcomes: dict[Combination, TwinOutcome]) -> list[Curve]:
    """The losses of each token under the four combinations."""
    return [
        Curve(
            say(NAMES[one]),
            range(len(outcome.losses)),
            outcome.losses,
            one.trained,
            dotted=one.trained != one.run,
        )
        for one, outcome in outcomes.items()
    ]


def loss_alt(outcomes: dict[Combination, TwinOutcome]) -> str:
    """The means of the four curves."""
    means = [say("{name}: {loss:.2f}", name=say(NAMES[one]), loss=outcome.loss) for one, outcome in outcomes.items()]
    return say("Loss of each token under the four combinations. Means, in nats: {means}.", means=say("; ").join(means))
