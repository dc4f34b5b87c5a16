"""What the page Why causal computes of a text, remembered: four runs, what they write, what a changed token moves."""

from i18n import N_, say
from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Change, Combination, Curves, TwinOutcome, TwinPair
from serving.job import ModelRef
from serving.result_cache import once
from ui import results, run_view
from ui.run_view import RunView
from viz.why_causal.charts import Curve, TwinCard, nats

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
        "A token's loss is −ln of its predicted probability, in nats: 0 means certain. The ends of the curves are "
        "means of the last 25 of {steps:,.0f} steps. The {low:.3f} nats average each row's last token, which has no "
        "token to its right ({last:.2f} nats), and all the others ({rest}).",
        steps=training.steps[-1], low=low, last=last, rest=nats(rest),
    )  # fmt: skip


def training_alt(training: Curves) -> str:
    """The curves for whoever cannot see them."""
    ends = [
        say("{name} from {first:.2f} to {last:.2f}", name=line.name, first=line.y[0], last=line.y[-1])
        for line in training_lines(training)
    ]
    return say(
        "Loss in nats/token over {steps:,.0f} training steps: {ends}.",
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


@once
def pair() -> TwinPair:
    """Both models, loaded once for everybody. Raises CheckpointError."""
    return twins.load()


@once
def curves() -> Curves:
    """Their training, read once."""
    return twins.curves()


def run_all(found: TwinPair, batch: TokenBatch) -> dict[Combination, RunView]:
    """Both twins on the text, with the mask and without; nothing runs until it is asked for."""
    runs: dict[Combination, RunView] = {}
    for trained, model in found.models.items():
        lifted, own = run_view.run_pair(model, batch, twins.under(not trained), 0, "self")
        runs |= {Combination(trained, trained): own, Combination(trained, not trained): lifted}
    return {one: runs[one] for one in COMBINATIONS}


def outcomes(looks: dict[Combination, RunView]) -> dict[Combination, TwinOutcome]:
    """What each of them makes of the text."""
    return {one: results.ask(twins.outcome, look.run) for one, look in looks.items()}


def change(found: TwinPair, batch: TokenBatch, trained: bool, position: int, token: int) -> dict[bool, Change]:
    """What another token at a position moves, with the mask (True) and without."""
    ref = ModelRef.of(found.models[trained])
    return {run: results.ask(twins.change, ref, batch, position, token, causal=run) for run in (True, False)}


def cards(
    found: TwinPair, batch: TokenBatch, outcomes: dict[Combination, TwinOutcome], seed: int | None
) -> list[TwinCard]:
    """The four combinations: what they predict of the text, and what they write on after its beginning.

    seed: of what is drawn at random; None for the likeliest token each time.
    """
    given = batch.ids[0, : twins.PROMPT].tolist()
    result = []
    for one in COMBINATIONS:
        ids = _written(found, given, one, seed)
        new = ids[len(given) :]
        before, whole = found.decode(given), found.decode(ids)
        measured = outcomes[one].loss, outcomes[one].accuracy
        result.append(TwinCard(one.trained, one.run, *measured, before, whole[len(before) :], len(set(new)), len(new)))
    return result


def _written(found: TwinPair, given: list[int], one: Combination, seed: int | None) -> list[int]:
    return results.ask(twins.write, ModelRef.of(found.models[one.trained]), tuple(given), causal=one.run, seed=seed)
