"""The words of the page Why causal, made of what was measured."""

import math

from markupsafe import Markup

from i18n import N_, say, say_count
from model.heads.view import head_name
from model.text import TokenBatch, beginning
from model.why_causal import twins
from model.why_causal.twins import Change, Combination, Curves, TwinOutcome, TwinPair
from ui.markdown import escaped
from viz.numbers import number, percent
from viz.why_causal.charts import nats

ROUNDING = 1e-4  # of a logit; a larger change is none of float32's
ALIKE = 0.05  # nats a token; two losses closer than that are called alike
OFTEN = 0.5  # of all places: what is true of fewer explains no mean
WHAT_THE_MASK_CHANGES = N_(
    "During generation the newest token is the last one: there is nothing to its right, masked or not. The mask only "
    "decides whether earlier tokens see later ones. A model that learned to copy its right neighbour has nothing to "
    "copy there."
)
PROOF = N_(
    "The largest change of any of the next token's logits at each position; red before the changed token (dotted "
    "line), grey from it on. Weights are compared over all heads and layers."
)
LABELS = N_("Labels show a space as ·, a line end as ⏎; \\<start\\> precedes every text.")
MOVED = {True: N_("run with the mask"), False: N_("run without the mask")}


def size(found: TwinPair, batch: TokenBatch) -> str:
    """What there is in numbers, behind the page's title."""
    millions = found.models[True].describe().parameters / 1e6
    parameters = say("two twins · {millions:.2f} M parameters each", millions=millions)
    return f"{parameters} · {say_count('{count} token', '{count} tokens', int(batch.keep.sum()))}"


def cut_note(found: TwinPair, batch: TokenBatch) -> str:
    """What of the text is not read, "" where all of it is."""
    if not batch.cut[0]:
        return ""
    return say(
        "The twins read at most {most} tokens. The text's last {cut:,} characters are cut, from “{beginning}” on.",
        most=found.context, cut=len(batch.cut[0]), beginning=escaped(beginning(batch.cut[0])),
    )  # fmt: skip


def trained(training: Curves) -> Markup:
    """What the two trainings came to."""
    low, high = training.training[False][-1], training.training[True][-1]
    words = say(
        "A model trained without the causal mask ends at a loss of <b>{low:.2f} nats/token</b>; its twin, trained on "
        "the same rows with the mask, at {high:.2f}. The first has not learned to predict: it reads each answer from "
        "the next position."
    )
    return Markup(words).format(low=low, high=high)


def sentence(
    training: Curves, outcomes: dict[Combination, TwinOutcome], batch: TokenBatch, *, vocabulary: int
) -> Markup:
    """What there is to see, in numbers. vocabulary: how many tokens there are to guess from."""
    copies = outcomes[Combination(False, False)].copies
    words = say("{trained} On this text its head {head} puts {share} of its attention there. {put_back}")
    return Markup(words).format(
        trained=trained(training),
        head=head_name(*twins.best_head(copies)),
        share=percent(float(copies.max())),
        put_back=_put_back(outcomes, batch, vocabulary),
    )


def _put_back(outcomes: dict[Combination, TwinOutcome], batch: TokenBatch, vocabulary: int) -> Markup:
    """What the mask makes of the first one's loss, beside its twin's; where it is no worse, why."""
    own, other = outcomes[Combination(False, True)], outcomes[Combination(True, True)]
    losses = {"own": own.loss, "other": other.loss}
    if own.loss > other.loss + ALIKE:
        worse = say("With the mask put back its loss is <b>{own:.1f} nats/token</b>, its twin’s {other:.1f}.")
        return Markup(worse).format(**losses)
    if own.loss < other.loss - ALIKE:
        found = say(
            "With the mask put back it is <b>the other way round</b> for this text: its loss is <b>{own:.1f} "
            "nats/token</b>, its twin’s {other:.1f}."
        )
    else:
        found = say(
            "With the mask put back it is <b>no different</b> for this text: its loss is <b>{own:.1f} nats/token</b>, "
            "its twin’s {other:.1f}."
        )
    why = _why_not(own, other, twins.repeats(batch), vocabulary)
    return Markup(" ").join([Markup(found).format(**losses), *why])


def _why_not(own: TwinOutcome, other: TwinOutcome, repeats: float, vocabulary: int) -> list[str]:
    """Why a text does not punish the model that copies; nothing where none of these is the reason."""
    reasons = []
    if repeats >= OFTEN and own.echoes >= OFTEN:
        reasons.append(
            say(
                "The answer on its right is hidden, and it predicts that the current token repeats, at {own} of the "
                "positions (its twin at {other}); in this text that is correct {repeats} of the time.",
                own=percent(own.echoes),
                other=percent(other.echoes),
                repeats=percent(repeats),
            )
        )
    if other.loss > math.log(vocabulary):
        reasons.append(
            say(
                "Its twin is worse here than a uniform guess ({blindly:.1f} nats): this text is unlike its training "
                "data.",
                blindly=math.log(vocabulary),
            )
        )
    return reasons


def head_sentence(outcomes: dict[Combination, TwinOutcome], one: Combination, head: tuple[int, int]) -> str:
    """What the head on screen does, in numbers."""
    free, others = (outcomes[Combination(way, False)].copies for way in (one.trained, not one.trained))
    named = {"head": head_name(*head), "share": percent(float(free[head]))}
    if one.run:
        return say("With the mask, {head} puts exactly 0 on the next token; without, {share}.", **named)
    named["most"] = percent(float(others.max()))
    if one.trained:
        return say(
            "{head} puts {share} of its attention on the next token, the one that it must predict (averaged over all "
            "positions that have one). In the twin trained without it the highest is {most}.",
            **named,
        )
    return say(
        "{head} puts {share} of its attention on the next token, the one that it must predict (averaged over all "
        "positions that have one). In the twin trained with the mask the highest is {most}.",
        **named,
    )


def proof_sentence(changes: dict[bool, Change], same: bool) -> Markup:
    """What moved before the changed token, with the mask and without."""
    if same:
        return Markup(say("The token is the same as before: choose another one to see what changes."))
    on, off, place = changes[True].earlier(), changes[False].earlier(), changes[True].place
    where = say_count("the one row before it", "the {count} rows before it", place)
    if max(on) == 0:
        kept = say(
            "Mask on, nothing changes in {where}: the largest change of a logit is <b>{logit}</b>, of a weight "
            "{weight}."
        )
    elif max(on) < ROUNDING:
        kept = say(
            "Mask on, almost nothing changes in {where}: the largest change of a logit is <b>{logit}</b>, of a weight "
            "{weight}."
        )
    else:
        kept = say(
            "Mask on, something changes in {where}: the largest change of a logit is <b>{logit}</b>, of a weight "
            "{weight}."
        )
    lifted = say("Mask off, earlier tokens see it: the largest is <b>{logit}</b>, of a weight {weight}.")
    return Markup(" ").join(
        Markup(words).format(where=where, logit=amount(logit), weight=amount(weight))
        for words, (logit, weight) in ((kept, on), (lifted, off))
    )


def proof_alt(changes: dict[bool, Change]) -> str:
    """The two rows of bars for whoever cannot see them."""
    (on, _), (on_later, _) = changes[True].earlier(), changes[True].later()
    (off, _), (off_later, _) = changes[False].earlier(), changes[False].later()
    return say(
        "The largest change of a logit at each token; mask on: at most {on} before position {place}, {on_later} from "
        "it on; mask off: at most {off} before position {place}, {off_later} from it on.",
        on=amount(on), on_later=amount(on_later), off=amount(off), off_later=amount(off_later),
        place=changes[True].place,
    )  # fmt: skip


def seen(outcomes: dict[Combination, TwinOutcome], changes: dict[bool, Change]) -> list[Markup]:
    """What the steps have shown of this text, a line each: the loss, the head that copies, the later token.

    changes: of the twin trained with the mask."""
    free, put_back, twin = (
        outcomes[one].loss for one in (Combination(False, False), Combination(False, True), Combination(True, True))
    )
    copies, others = (outcomes[Combination(way, False)].copies for way in (False, True))
    loss = say(
        "Trained and run without the mask, a model has a loss of <b>{free} nats/token</b> on this text; with the mask "
        "put back, <b>{put_back}</b>. Its twin, trained and run with it, has {twin}."
    )
    head = say(
        "Its head {head} puts <b>{share}</b> of its attention on the next token, the answer; the highest of its "
        "twin's heads, also run without the mask, has {most}."
    )
    later = say(
        "Another token at position {place} of the text, in the twin trained with the mask: the largest change of an "
        "earlier logit is <b>{on}</b> with the mask, and {off} without."
    )
    return [
        Markup(loss).format(free=nats(free), put_back=nats(put_back), twin=nats(twin)),
        Markup(head).format(
            head=head_name(*twins.best_head(copies)),
            share=percent(float(copies.max())),
            most=percent(float(others.max())),
        ),
        Markup(later).format(
            place=changes[True].place, on=amount(changes[True].earlier()[0]), off=amount(changes[False].earlier()[0])
        ),
    ]


def amount(difference: float) -> str:
    """0 -> "exactly 0"; 3.2e-6 -> "3 × 10⁻⁶"; 7.312 -> "7.31"."""
    return say("exactly 0") if difference == 0 else number(difference)


def paragraph(words: str) -> Markup:
    """The sentence at the top of a page or section."""
    return Markup('<p class="sentence">{}</p>').format(words)
