"""What lifting a mask did to the losses, in words: which tokens got better, which worse."""

import numpy as np
from markupsafe import escape

NOTICED = 0.1  # nats; a smaller change of one token's loss is not counted


def loss_words(now: np.ndarray, standard: np.ndarray, tokens: list[str]) -> str:
    """now, standard: losses [T] in nats, NaN where there is none. HTML; "" where there is nothing to compare."""
    change = now - standard
    if np.isnan(change).all():
        return ""
    means = [f"{np.nanmean(losses):.2f}" for losses in (standard, now)]
    if np.nanmax(np.abs(change)) < 0.005:
        return f"The predictions are what they were: the mean loss is {means[1]} nats a token."
    moved = "rises" if np.nanmean(now) > np.nanmean(standard) else "falls"
    mean = (
        f"The mean loss {moved} from {means[0]} to {means[1]} nats a token"
        if means[0] != means[1]
        else f"The mean loss stays at {means[1]} nats a token"
    )
    if np.nanmax(np.abs(change)) <= NOTICED:
        return f"{mean}: no token's by more than {NOTICED} nats."
    sides = (
        ("better", change < -NOTICED, int(np.nanargmin(change))),
        ("worse", change > NOTICED, int(np.nanargmax(change))),
    )
    parts = [_side(how, int(which.sum()), place, now, standard, tokens) for how, which, place in sides]
    return f"{mean}: {', '.join(parts)}."


def misled(now: np.ndarray, standard: np.ndarray) -> bool:
    """Whether some token is predicted noticeably worse than under the masks that the model was trained with."""
    return bool(np.nanmax(now - standard, initial=-np.inf) > NOTICED)


def _side(how: str, count: int, most: int, now: np.ndarray, standard: np.ndarray, tokens: list[str]) -> str:
    if not count:
        return f"no token is predicted noticeably {how}"
    extreme = f"“{escape(tokens[most])}” ({standard[most]:.2f} → {now[most]:.2f})"
    return (
        f"1 token is predicted {how}, {extreme}"
        if count == 1
        else f"{count} tokens are predicted {how}, most of all {extreme}"
    )
