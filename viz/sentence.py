"""One sentence, in plain words, about what the reader is seeing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, say, say_count, together
from model.atlas.result import LEAST_QUERIES, NAMED
from viz.html import say_one
from viz.mask_styles import STYLES
from viz.numbers import Candidate, LeakShares, chance, percent

PREDICTED = {
    "same": N_("After {token} the most likely next token stays <b>{now}</b>: {after}, before {before}."),
    "other": N_("After {token} the most likely next token was <b>{standard}</b> ({before}) and is <b>{now}</b> "
                "({after})."),
}  # fmt: skip
NOTICED = 0.1  # nats; a smaller change of one token's loss is not counted
SEEN = 0.01  # nats; a smaller change may not show in the two digits of a loss


def loss_words(now: np.ndarray, standard: np.ndarray, tokens: Sequence[str]) -> str:
    """now, standard: losses [T] in nats, NaN where there is none. HTML; "" where there is nothing to compare."""
    change = now - standard
    if np.isnan(change).all():
        return ""
    before, after = (f"{np.nanmean(losses):.2f}" for losses in (standard, now))
    if np.nanmax(np.abs(change)) < SEEN:
        return say("No token's loss changes by {least} nats or more: the mean is {mean} nats/token.", least=SEEN,
                   mean=after)  # fmt: skip
    if np.nanmax(np.abs(change)) <= NOTICED:
        moved = say("no token's by more than {nats} nats", nats=NOTICED)
    else:
        most, least = int(np.nanargmax(change)), int(np.nanargmin(change))
        better = _better(int((change < -NOTICED).sum()), _loss_of(least, now, standard, tokens))
        worse = _worse(int((change > NOTICED).sum()), _loss_of(most, now, standard, tokens))
        moved = say("{better}, {worse}", better=better, worse=worse)
    if before == after:
        return say("The mean loss stays at {mean} nats/token: {tokens}.", mean=after, tokens=moved)
    places = {"before": before, "after": after, "tokens": moved}
    if np.nanmean(now) > np.nanmean(standard):
        return say("The mean loss rises from {before} to {after} nats/token: {tokens}.", **places)
    return say("The mean loss falls from {before} to {after} nats/token: {tokens}.", **places)


def prediction_words(token: str, place: int, standard: Candidate, now: Candidate) -> Markup:
    """What became of the likeliest next token after the one at `place`; "" where it and its probability stay."""
    before, after = chance(standard.probability), chance(now.probability)
    if standard.label == now.label and before == after:
        return Markup()
    words = Markup(say_one(PREDICTED, "same" if standard.label == now.label else "other"))
    tokens = {"token": named(token, place), "standard": standard.label, "now": now.label}
    return words.format(before=before, after=after, **tokens)


def named(token: str, place: int) -> Markup:
    """A token and its position."""
    return Markup("<b>{}</b> ({})").format(token, place)


def misled(now: np.ndarray, standard: np.ndarray) -> bool:
    """Whether some token is predicted noticeably worse than under the masks that the model was trained with."""
    return bool(np.nanmax(now - standard, initial=-np.inf) > NOTICED)


def _better(count: int, extreme: str) -> str:
    if not count:
        return say("no token is predicted noticeably better")
    return say_count("{count} token is predicted better, {token}",
                     "{count} tokens are predicted better, most of all {token}", count, count=count,
                     token=extreme)  # fmt: skip


def _worse(count: int, extreme: str) -> str:
    if not count:
        return say("no token is predicted noticeably worse")
    return say_count("{count} token is predicted worse, {token}",
                     "{count} tokens are predicted worse, most of all {token}", count, count=count,
                     token=extreme)  # fmt: skip


def _loss_of(place: int, now: np.ndarray, standard: np.ndarray, tokens: Sequence[str]) -> str:
    token = escape(tokens[place])
    return say("“{token}” ({before:.2f} → {after:.2f})", token=token, before=standard[place], after=now[place])


MUCH = 0.25  # a share of attention that makes a pattern
LITTLE = 0.02  # a share of attention below which nobody would speak of a leak


@dataclass(frozen=True)
class HeadScene:
    """What the sentence is about. Shares are 0 to 1, over the row's real tokens."""

    name: str  # the head's, "L3 H2"
    across: bool  # a target looks at its source
    can_be_causal: bool  # False: no causal mask here, whatever the switch says
    causal: bool
    padding: bool
    lifted: tuple[str, ...]  # masks with a size of the model's own that are off
    standard_causal: bool  # whether the model was trained with a causal mask
    layer_only: bool
    only_attention: bool  # the model has no other through which padding could come in
    has_padding: bool  # the row's keys hold some
    pad_side: str
    leak: LeakShares
    previous: float  # share of the head's attention on the position before
    itself: float  # on the query's own token
    first: float  # on the first real token
    induction: float  # on the token after the previous occurrence; NaN where nothing repeats
    repeats: int  # the queries that induction is measured on
    tokens: int  # the row's real queries
    spread: float  # over how many keys alike a row with the mean entropy would spread: 2^entropy


def sentence(scene: HeadScene) -> str:
    """What is seen, and what to try next."""
    if scene.causal == scene.standard_causal and scene.padding and not scene.lifted:
        if scene.tokens == 1 and not scene.across:
            return say("This row has one token, which can attend only to itself: try a longer text.")
        return together([_head_pattern(scene), _next(scene)])
    parts = [_causal(scene)] if scene.causal != scene.standard_causal else []
    parts += [say(STYLES[name].lifted, head=scene.name) for name in scene.lifted]
    parts += [] if scene.padding else [_padding(scene)]
    parts += [say_one(LIFTED, "layer_only", layer=scene.name.split()[0])] if scene.layer_only else []
    return together(parts)


LIFTED = {  # what there is to see without the standard masks
    "across": N_("The causal mask does not apply to this attention: the target always sees the whole source."),
    "encoder": N_("The causal mask does not apply to this attention: the encoder always reads the whole source."),
    "with_causal": N_("With a causal mask that this model never had in training, {head} can no longer attend to later "
                      "tokens."),
    "one_token": N_("Without the causal mask nothing changes here: this row has one token, and none comes later."),
    "later": N_("Without the causal mask, {share} of this head's attention goes to tokens that come later."),
    "little_later": N_("Without the causal mask, {share} of this head's attention goes to tokens that come later; "
                       "other heads may attend to later tokens more."),
    "no_padding": N_("The padding mask is off, but this row has no padding: choose a shorter row, or add a second line "
                     "of another length."),
    "hidden": N_("The padding mask is off, but real tokens are not affected: with padding on the right, the causal "
                 "mask already hides it from them. Only the padding's own rows change."),
    "to_padding": N_("Without the padding mask, {share} of this head's attention goes to padding, which is not part of "
                     "the text."),
    "little_to_padding": N_("Without the padding mask, {share} of this head's attention goes to padding; other heads "
                            "may give it more."),
    "layer_only": N_("Only {layer}'s weights are recomputed, from the standard run's queries and keys; the other "
                     "layers and the predictions do not change."),
}  # fmt: skip
HEAD_PATTERNS = {
    "induction": N_("Where a token came up before ({queries}), {share} of {head}'s attention is on what followed it: "
                    "an induction head."),
    "followed": N_("Where a token came up before ({queries}), {share} of {head}'s attention is on what followed it."),
    "previous": N_("{share} of {head}'s attention goes to the token just before."),
    "itself": N_("{share} of {head}'s attention stays on the token itself."),
    "first": N_("{share} of {head}'s attention goes to the first token."),
    "none": N_("No token after the first attends to anything in {head}."),
    "spread": N_("{head} spreads each row's attention as widely as {spread:.1f} equal weights would."),
}  # fmt: skip


def _causal(scene: HeadScene) -> str:
    if not scene.can_be_causal:
        return say_one(LIFTED, "across" if scene.across else "encoder")
    if scene.causal:
        return say_one(LIFTED, "with_causal", head=scene.name)
    if scene.tokens == 1:
        return say_one(LIFTED, "one_token")
    much = scene.leak.future >= LITTLE
    return say_one(LIFTED, "later" if much else "little_later", share=percent(scene.leak.future))


def _padding(scene: HeadScene) -> str:
    if not scene.has_padding:
        return say_one(LIFTED, "no_padding")
    untouched = scene.only_attention or scene.layer_only
    if scene.pad_side == "right" and scene.causal and scene.can_be_causal and untouched:
        return say_one(LIFTED, "hidden")
    much = scene.leak.padding >= LITTLE
    return say_one(LIFTED, "to_padding" if much else "little_to_padding", share=percent(scene.leak.padding))


def _head_pattern(scene: HeadScene) -> str:
    """The first pattern that is strong enough; the commonest, looking at the first token, comes last."""
    clear = scene.induction >= NAMED and scene.repeats >= LEAST_QUERIES
    patterns = [
        (scene.induction, MUCH, "induction" if clear else "followed"),
        (scene.previous, MUCH, "previous"),
        (scene.itself, 0.5, "itself"),
        (scene.first, MUCH, "first"),
    ]
    for share, enough, pattern in patterns:
        if share >= enough:  # never so for NaN
            queries = say_count("{count} query", "{count} queries", scene.repeats)
            return say(HEAD_PATTERNS[pattern], share=percent(share), head=scene.name, queries=queries)
    return say_one(
        HEAD_PATTERNS, "none" if math.isnan(scene.spread) else "spread", head=scene.name, spread=scene.spread
    )


def _next(scene: HeadScene) -> str:
    if scene.across:
        return say("Rows are target tokens, columns are source tokens: what each target token was written from.")
    if not scene.can_be_causal:
        return say("The encoder reads its whole text at once: every token may attend to every other.")
    if scene.standard_causal:
        return say("Switch Causal off to let every token see what comes later.")
    return say("Switch Causal on to see what is left when no token can see later ones.")
