"""What is seen across layers, in one sentence computed from the arrays on the screen."""

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import escape

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
    parts = [f"After “{escape(piece)}” the model predicts “{escape(label)}” ({chance(share)})"]
    settled = lens.settled(place)
    if settled == 0:
        parts.append(", which is on top from the embedding on.")
    elif settled == len(names) - 1:
        parts.append(
            f": only its last layer puts it on top; after {names[-2]} it was “{escape(lens.labels[int(tops[-2])])}”."
        )
    else:
        before = escape(lens.labels[int(tops[settled - 1])])
        parts.append(f", on top from {names[settled]} on; after {names[settled - 1]} it was “{before}”.")
    if standard is not None:
        was = standard.labels[int(standard.ids[-1, place, 0])]
        so = "the same" if was == label else f"“{escape(was)}”"
        parts.append(
            f" Under the standard masks it predicts {so} ({chance(float(standard.probabilities[-1, place, 0]))})."
        )
    return "".join(parts)


def token_sentence(view: TokenView, how: str, query: int, piece: str, standard: TokenView | None = None) -> str:
    """HTML: where one query looks, how: "mean", "maximum", "rollout" or "flow". query: its position."""
    if not view.values.any():
        return f"“{escape(piece)}” looks at nothing in any layer."
    sentence = _seen(view, how, query, piece)
    return sentence if standard is None else f"{sentence} {_moved(view, standard, query)}"


def _seen(view: TokenView, how: str, query: int, piece: str) -> str:
    token, last = f"“{escape(piece)}”", view.layers[-1]
    if how in ("mean", "maximum"):
        layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
        whose = "the heads' mean attention" if how == "mean" else "one head's attention"
        share = percent(float(view.values[layer, key]))
        return f"The most of {whose} that {token} gives one token is in {view.layers[layer]}: {share} to " \
               f"{_name(view, key, query)}."  # fmt: skip
    others = view.values[-1].copy()
    itself = float(others[query - view.first]) if 0 <= query - view.first < len(others) else np.nan
    if not np.isnan(itself):
        others[query - view.first] = 0
    best = int(others.argmax())
    if others[best] == 0:
        return f"By the end of {last} nothing has come to {token} but its own state."
    name, most = _name(view, best, query), float(others[best])
    if how == "rollout":
        return f"By the end of {last}, {percent(itself)} of {token}'s rollout is from itself; the most from another " \
               f"token is {percent(most)}, from {name}."  # fmt: skip
    return f"By the end of {last}, the most that can flow to {token} from another token is {most:.2f}, from {name}."


def _moved(view: TokenView, standard: TokenView, query: int) -> str:
    change = np.abs(view.values - standard.values)
    layer, key = divmod(int(change.argmax()), change.shape[1])
    if change[layer, key] < NOTICED:
        return f"Under the standard masks no value here differs by {NOTICED} or more."
    was, now = float(standard.values[layer, key]), float(view.values[layer, key])
    return f"The largest change from the standard masks is {view.layers[layer]} on {_name(view, key, query)}: " \
           f"{was:.2f} → {now:.2f}."  # fmt: skip


def _name(view: TokenView, key: int, query: int) -> str:
    if view.first + key == query:
        return "itself"
    return f"“{escape(view.keys[key])}” ({view.first + key})"


def token_alt(view: TokenView, piece: str) -> str:
    """The picture for whoever cannot see it."""
    layer, key = divmod(int(view.values.argmax()), view.values.shape[1])
    return (
        f"{view.unit.capitalize()} of “{piece}”, {len(view.layers)} layers by {len(view.keys)} keys. The largest, "
        f"{view.values.max():.2f}, is in {view.layers[layer]} on {view.first + key} ({view.keys[key]})."
    )
