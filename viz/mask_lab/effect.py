"""What composed masks do to a run, in words: losses, answers that tokens can now know, the next token. HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import N_, say, say_count
from model.heads.view import head_name
from viz.heatmap import figure
from viz.html import table, tag, td, th
from viz.numbers import Candidate, loss_figure
from viz.palette import MARK
from viz.sentence import SEEN, named, prediction_words

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.heads.reach import PathStep

MOST_LOOKS = 3  # of a path, spelled out in a sentence
MOST_ANSWERS = 12  # rows of the table
FOLLOWS = {  # whether the masks are changed
    True: N_("What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}, {before:.2f} under the "
             "standard masks."),
    False: N_("What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}."),
}  # fmt: skip
PATH = {  # a look of a path: whether its query predicts the token, and whether its key is that token
    (True, True): N_("in {layer} {query}, which predicts it, may attend to it"),
    (True, False): N_("in {layer} {query}, which predicts it, may attend to {key}"),
    (False, True): N_("in {layer} {query} may attend to it"),
    (False, False): N_("in {layer} {query} may attend to {key}"),
}
NATS = N_(
    "The loss of a token is −ln of the probability that the model gave it. 0 nats: certain; 0.69: one in two; 2.3: one "
    "in ten."
)


@dataclass(frozen=True, eq=False)
class Effect:
    """pieces [T]. now, standard: the tokens' losses in nats [T], NaN where there is none. query: the position whose
    next token is `predicted`: the likeliest, standard and now. last: the row's last token's position, and likewise what
    is predicted after it. known: the tokens that can be known of where they are
    predicted, as they cannot under the standard masks. ways: a path to each of the first MOST_ANSWERS of `ranked`.
    """

    pieces: Sequence[str]
    now: np.ndarray
    standard: np.ndarray
    query: int
    predicted: tuple[Candidate, Candidate]
    last: int
    predicted_last: tuple[Candidate, Candidate]
    known: Sequence[int] = ()
    ways: Mapping[int, Sequence["PathStep"]] = field(default_factory=dict)

    def ranked(self) -> list[int]:
        """The known tokens, those first whose loss falls most."""
        return sorted(self.known, key=self.gain, reverse=True)

    def gain(self, token: int) -> float:
        """By how many nats its loss falls, in hundredths, as losses are shown; negative where it rises."""
        return round(float(self.standard[token]), 2) - round(float(self.now[token]), 2)


def effect(found: Effect) -> Markup:
    """What to notice: answers given away, or else what losses change. Says nothing of what stays as it was."""
    parts = [_answers(found) if found.known else _losses(found)]
    parts.append(prediction_words(found.pieces[found.query], found.query, *found.predicted))
    if found.last != found.query:  # of which no loss tells
        parts.append(prediction_words(found.pieces[found.last], found.last, *found.predicted_last))
    return _sentence(Markup(" ").join(part for part in parts if part) or _unchanged(found))


def _unchanged(found: Effect) -> Markup:
    words = say("No token's loss changes by {least} nats or more, and the prediction after {token} is unchanged.")
    return Markup(words).format(least=SEEN, token=_name(found, found.query))


def standard_masks() -> Markup:
    """Instead of an effect, where nothing is changed."""
    return _sentence(say("These are the masks that the model was trained with. Switch one on or off, or drag over the "
                         "grid to block cells: the head beside it and the predictions update."))  # fmt: skip


def no_predictions() -> Markup:
    """Instead of an effect, for a model that predicts nothing."""
    words = say("The head beside the grid is under these masks. This model predicts no next token to compare.")
    return _sentence(words)


def answers_table(found: Effect) -> Markup:
    """The tokens that can know their own answer, those first whose loss fell most, and the way that it takes."""
    order = found.ranked()
    how = say("how it leaks to the previous token, which predicts it")
    rows = [[th(say("token")), th(how), th(say("loss, standard"), "number"), th(say("loss, now"), "number")]]
    for token in order[:MOST_ANSWERS]:
        losses = [td(f"{loss[token]:.2f}", "number") for loss in (found.standard, found.now)]
        rows.append(
            [td(f"{token}: {found.pieces[token]}", "token"), td(_way(found, token, found.ways[token])), *losses]
        )
    if len(order) > MOST_ANSWERS:
        rows.append([td(say("and {count:,} more", count=len(order) - MOST_ANSWERS), colspan=4)])
    return table(rows, "numbers answers")  # not shown


def after_query(found: Effect, *, changed: bool) -> Markup:
    """What the table of next tokens is about, and what the token that really follows costs."""
    token, query = found.query + 1, _name(found, found.query)
    if token >= len(found.now) or np.isnan(found.now[token]):
        return tag("p", Markup(say("What follows {token}.")).format(token=query), class_="key")
    losses = {"loss": found.now[token], "before": found.standard[token], "nats": _nats()}
    words = Markup(say(FOLLOWS[changed])).format(token=query, next=_name(found, token), **losses)
    return tag("p", words, class_="key")


def losses_figure(found: Effect, *, changed: bool) -> go.Figure:
    """Every token's loss, with a line at the token that the query predicts; none where nothing follows it."""
    drawn = loss_figure(found.now, found.standard, found.pieces, changed=changed)
    if found.query + 1 < len(found.now):
        line = {"type": "line", "x0": found.query + 1, "x1": found.query + 1, "yref": "paper", "y0": 0, "y1": 1,
                "layer": "below", "line": {"color": MARK, "width": 1.5, "dash": "dot"}}  # fmt: skip
        plain = drawn.to_dict()
        return figure(plain["data"], plain["layout"] | {"shapes": [line]})
    return drawn


def _sentence(words: str) -> Markup:
    return tag("p", words, class_="sentence")


def _nats() -> Markup:
    return tag("abbr", say("nats"), title=say(NATS))


def _answers(found: Effect) -> Markup:
    best, gain = found.ranked()[0], found.gain(found.ranked()[0])
    alone = len(found.known) == 1
    known = say_count(
        "<b>One token has leaked to the position that must predict it</b> ({positions}).",
        "<b>{count} tokens have leaked to the positions that must predict them</b> ({positions}).",
        len(found.known),
        positions=_ranges(found.known),
    )
    way = say("{token} gains most: {way}.") if gain > 0 and not alone else say("{token} leaks like this: {way}.")
    told = [Markup(known), Markup(way).format(token=_name(found, best), way=_way(found, best, found.ways[best]))]
    if gain > 0:
        told.append(Markup(_fall(found, best)))
    else:
        told.append(escape(say("Yet its loss does not fall.") if alone else say("Yet the loss of none of them falls.")))
    return Markup(" ").join(told)


def _fall(found: Effect, best: int) -> str:
    """What came of the token that gains most, and of how many others that rose; of numbers and our own HTML."""
    numbers = {"before": f"{found.standard[best]:.2f}", "after": f"{found.now[best]:.2f}", "nats": _nats()}
    rose, known = sum(found.gain(token) < 0 for token in found.known), len(found.known)
    if not rose:
        return say("Its loss falls from {before} to {after} {nats}.", **numbers)
    if known == 2:
        return say("Its loss falls from {before} to {after} {nats}; that of the other rises.", **numbers)
    return say_count(
        "Its loss falls from {before} to {after} {nats}; one of the others rises.",
        "Its loss falls from {before} to {after} {nats}; {count} of the others rise.",
        rose,
        **numbers,
    )


def _way(found: Effect, token: int, path: Sequence["PathStep"]) -> Markup:
    """How a token gets to the one that predicts it: the looks in the order of the layers."""
    order = path[::-1]
    if len(order) <= MOST_LOOKS:
        told = [_look(found, token, path, look) for look in order]
    else:
        end = _name(found, path[0].key)
        rest = Markup(say("{count:,} more attention steps lead to {token}")).format(count=len(order) - 2, token=end)
        told = [_look(found, token, path, order[0]), rest, _look(found, token, path, order[-1])]
    words = told[0]
    for look in told[1:]:
        words = Markup(say("{looks}, {look}")).format(looks=words, look=look)
    return words


def _look(found: Effect, token: int, path: Sequence["PathStep"], look: "PathStep") -> Markup:
    """One look of the way: the first tells that L4 is a layer, the last that its query predicts the token."""
    layer = head_name(look.layer)
    layer = say("layer {layer}", layer=layer) if look is path[-1] else layer
    names = {"query": _name(found, look.query), "key": _name(found, look.key)}
    return Markup(say(PATH[look is path[0], look.key == token])).format(layer=layer, **names)


def _losses(found: Effect) -> Markup:
    if np.isnan(found.now).all():
        return Markup()
    means = {"mean": f"{np.nanmean(found.now):.2f}", "before": f"{np.nanmean(found.standard):.2f}"}
    parts = []
    if means["mean"] != means["before"]:
        words = say("The mean loss is {mean} {nats} per token, under the standard masks {before}.")
        parts.append(Markup(words).format(nats=_nats(), **means))
    most = int(np.nanargmax(np.abs(found.now - found.standard)))
    losses = {"before": found.standard[most], "after": found.now[most]}
    if abs(losses["after"] - losses["before"]) >= SEEN:
        words = say("The largest change is that of {token}, from {before:.2f} to {after:.2f} {nats}.")
        parts.append(Markup(words).format(token=_name(found, most), nats=_nats(), **losses))
    return Markup(" ").join(parts)


def _name(found: Effect, place: int) -> Markup:
    return named(found.pieces[place], place)


def _ranges(numbers: Sequence[int]) -> str:
    """ "5 to 14, 16, 18, 19"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    spelled = [
        [say("{first} to {last}", first=first, last=last)] if last > first + 1 else map(str, range(first, last + 1))
        for first, last in runs
    ]
    return say(", ").join(one for some in spelled for one in some)
