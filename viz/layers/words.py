"""What is seen across layers, in one sentence computed from the arrays on the screen."""

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import escape

from i18n import N_, say, together
from viz.layers.lens import column_names
from viz.layers.token import TokenView
from viz.numbers import chance, percent

if TYPE_CHECKING:  # it imports torch
    from model.heads.logit_lens import LogitLens

NOTICED = 0.05  # a change of a value that is worth a sentence


def lens_sentence(lens: "LogitLens", place: int, piece: str, standard: "LogitLens | None" = None) -> str:
    """HTML: what the model predicts after one token, since which layer, and what stood on top before."""
    names, tops = column_names(len(lens.ids)), lens.ids[:, place, 0]
    label, share = lens.labels[int(tops[-1])], float(lens.probabilities[-1, place, 0])
    settled = lens.settled(place)
    about = {"token": escape(piece), "label": escape(label), "chance": chance(share)}
    if settled:
        about |= {"layer": names[settled], "earlier": names[settled - 1],
                  "before": escape(lens.labels[int(tops[settled - 1])])}  # fmt: skip
    if settled == 0:
        sentence = say(
            "After “{token}” the model predicts “{label}” ({chance}), which is on top from the embedding on.", **about
        )
    elif settled == len(names) - 1:
        sentence = say(
            "After “{token}” the model predicts “{label}” ({chance}): only its last layer puts it on top; after "
            "{earlier} it was “{before}”.", **about,
        )  # fmt: skip
    else:
        sentence = say(
            "After “{token}” the model predicts “{label}” ({chance}), on top from {layer} on; after {earlier} it was "
            "“{before}”.", **about,
        )  # fmt: skip
    return sentence if standard is None else together([sentence, _as_standard(standard, place, label)])


def _as_standard(standard: "LogitLens", place: int, label: str) -> str:
    was, share = standard.labels[int(standard.ids[-1, place, 0])], chance(float(standard.probabilities[-1, place, 0]))
    if was == label:
        return say("Under the standard masks it predicts the same ({chance}).", chance=share)
    return say("Under the standard masks it predicts “{label}” ({chance}).", label=escape(was), chance=share)


def token_sentence(view: TokenView, how: str, query: int, piece: str, standard: TokenView | None = None) -> str:
    """HTML: where one query looks, how: "mean", "maximum", "rollout" or "flow". query: its position."""
    if not view.values.any():
        return say("“{token}” looks at nothing in any layer.", token=escape(piece))
    sentence = _seen(view, how, query, piece)
    return sentence if standard is None else together([sentence, _moved(view, standard, query)])


def _seen(view: TokenView, how: str, query: int, piece: str) -> str:
    token, last = escape(piece), view.layers[-1]
    if how in ("mean", "maximum"):
        layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
        most = N_("The most of one head's attention that “{token}” gives one token is in {layer}: {share} to {other}.")
        if how == "mean":
            most = N_("The most of the heads' mean attention that “{token}” gives one token is in {layer}: {share} to "
                      "{other}.")  # fmt: skip
        return say(most, token=token, layer=view.layers[layer], share=percent(float(view.values[layer, key])),
                   other=_name(view, key, query))  # fmt: skip
    others = view.values[-1].copy()
    itself = float(others[query - view.first]) if 0 <= query - view.first < len(others) else np.nan
    if not np.isnan(itself):
        others[query - view.first] = 0
    best = int(others.argmax())
    if others[best] == 0:
        return say("By the end of {layer} nothing has come to “{token}” but its own state.", layer=last, token=token)
    about = {"layer": last, "token": token, "other": _name(view, best, query)}
    if how == "rollout":
        return say(
            "By the end of {layer}, {itself} of “{token}”'s rollout is from itself; the most from another token is "
            "{share}, from {other}.", itself=percent(itself), share=percent(float(others[best])), **about,
        )  # fmt: skip
    return say(
        "By the end of {layer}, the most that can flow to “{token}” from another token is {flow:.2f}, from {other}.",
        flow=float(others[best]), **about,
    )  # fmt: skip


def _moved(view: TokenView, standard: TokenView, query: int) -> str:
    change = np.abs(view.values - standard.values)
    layer, key = divmod(int(change.argmax()), change.shape[1])
    if change[layer, key] < NOTICED:
        return say("Under the standard masks no value here differs by {least} or more.", least=NOTICED)
    return say(
        "The largest change from the standard masks is {layer} on {other}: {was:.2f} → {now:.2f}.",
        layer=view.layers[layer], other=_name(view, key, query), was=standard.values[layer, key],
        now=view.values[layer, key],
    )  # fmt: skip


def _name(view: TokenView, key: int, query: int) -> str:
    if view.first + key == query:
        return say("itself")
    return f"“{escape(view.keys[key])}” ({view.first + key})"


def token_alt(view: TokenView, piece: str) -> str:
    """The picture for whoever cannot see it."""
    layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
    return say(
        "{unit} of “{token}”, {layers} layers by {keys} keys. The largest, {largest:.2f}, is in {layer} on {position} "
        "({key}).", unit=view.unit.capitalize(), token=piece, layers=len(view.layers), keys=len(view.keys),
        largest=view.values.max(), layer=view.layers[layer], position=view.first + key, key=view.keys[key],
    )  # fmt: skip
