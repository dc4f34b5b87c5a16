"""What lifting a mask did to the losses, in words: which tokens got better, which worse."""

import numpy as np
from markupsafe import escape

from model.language import say, say_count

NOTICED = 0.1  # nats; a smaller change of one token's loss is not counted


def loss_words(now: np.ndarray, standard: np.ndarray, tokens: list[str]) -> str:
    """now, standard: losses [T] in nats, NaN where there is none. HTML; "" where there is nothing to compare."""
    change = now - standard
    if np.isnan(change).all():
        return ""
    before, after = (f"{np.nanmean(losses):.2f}" for losses in (standard, now))
    if np.nanmax(np.abs(change)) < 0.005:
        return say("The predictions are what they were: the mean loss is {mean} nats a token.", mean=after)
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
