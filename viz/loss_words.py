"""What lifting a mask did to a model's losses and to one prediction, in words: a statement for each."""

import numpy as np
from markupsafe import Markup, escape

from i18n import say, say_count
from viz.numbers import Candidate, chance

NOTICED = 0.1  # nats; a smaller change of one token's loss is not counted
SEEN = 0.01  # nats; a smaller change may not show in the two digits of a loss


def loss_words(now: np.ndarray, standard: np.ndarray, tokens: list[str]) -> str:
    """now, standard: losses [T] in nats, NaN where there is none. HTML; "" where there is nothing to compare."""
    change = now - standard
    if np.isnan(change).all():
        return ""
    before, after = (f"{np.nanmean(losses):.2f}" for losses in (standard, now))
    if np.nanmax(np.abs(change)) < SEEN:
        return say("No token's loss changes by {least} nats or more: the mean is {mean} nats a token.", least=SEEN,
                   mean=after)  # fmt: skip
    if np.nanmax(np.abs(change)) <= NOTICED:
        moved = say("no token's by more than {nats} nats", nats=NOTICED)
    else:
        most, least = int(np.nanargmax(change)), int(np.nanargmin(change))
        better = _better(int((change < -NOTICED).sum()), _loss_of(least, now, standard, tokens))
        worse = _worse(int((change > NOTICED).sum()), _loss_of(most, now, standard, tokens))
        moved = say("{better}, {worse}", better=better, worse=worse)
    if before == after:
        return say("The mean loss stays at {mean} nats a token: {tokens}.", mean=after, tokens=moved)
    places = {"before": before, "after": after, "tokens": moved}
    if np.nanmean(now) > np.nanmean(standard):
        return say("The mean loss rises from {before} to {after} nats a token: {tokens}.", **places)
    return say("The mean loss falls from {before} to {after} nats a token: {tokens}.", **places)


def prediction_words(token: str, place: int, standard: Candidate, now: Candidate) -> Markup:
    """What became of the likeliest next token after the one at `place`; "" where it and its probability stay."""
    before, after = chance(standard.probability), chance(now.probability)
    if standard.label == now.label and before == after:
        return Markup()
    words = (
        say("After {token} the likeliest next token stays <b>{now}</b>: {after}, before {before}.")
        if standard.label == now.label
        else say(
            "After {token} the likeliest next token was <b>{standard}</b> ({before}) and is <b>{now}</b> ({after})."
        )
    )
    return Markup(words).format(
        token=named(token, place), standard=standard.label, now=now.label, before=before, after=after
    )


def named(token: str, place: int) -> Markup:
    """A token and its position."""
    return Markup("<b>{}</b> ({})").format(token, place)


def misled(now: np.ndarray, standard: np.ndarray) -> bool:
    """Whether some token is predicted noticeably worse than under the masks that the model was trained with."""
    return bool(np.nanmax(now - standard, initial=-np.inf) > NOTICED)


def _better(count: int, extreme: str) -> str:
    if not count:
        return say("no token is predicted noticeably better")
    return say_count(
        "{count} token is predicted better, {token}",
        "{count} tokens are predicted better, most of all {token}",
        count,
        count=count,
        token=extreme,
    )


def _worse(count: int, extreme: str) -> str:
    if not count:
        return say("no token is predicted noticeably worse")
    return say_count(
        "{count} token is predicted worse, {token}",
        "{count} tokens are predicted worse, most of all {token}",
        count,
        count=count,
        token=extreme,
    )


def _loss_of(place: int, now: np.ndarray, standard: np.ndarray, tokens: list[str]) -> str:
    token = escape(tokens[place])
    return say("“{token}” ({before:.2f} → {after:.2f})", token=token, before=standard[place], after=now[place])
