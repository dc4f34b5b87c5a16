"""What composed masks do to a run, in words: losses, answers that tokens can now know, the next token. HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import N_, listed, say, together
from model.heads.view import head_name
from viz.heatmap import figure
from viz.html import filled, join, paragraph, table, tag, td, th
from viz.numbers import Candidate, loss_figure
from viz.palette import MARK
from viz.sentence import loss_words, named, prediction_words

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.heads.reach import PathStep

MOST_LOOKS = 3  # of a path, spelled out in a sentence
MOST_ANSWERS = 12  # rows of the table
FOLLOWS = N_(
    "What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}, {before:.2f} under the standard "
    "masks."
)
LEAK = N_("The loss of {token} goes from {before:.2f} to {after:.2f} {nats}. Its path: {path}.")
NATS = N_(
    "The loss of a token is −ln of the probability that the model gave it. 0 nats: certain; 0.69: one in two; 2.3: one "
    "in ten."
)


@dataclass(frozen=True, eq=False)
class Effect:
    """pieces [T]. now, standard: the tokens' losses in nats [T], NaN where there is none. query: the position whose
    next token is `predicted`, standard and now; last: the row's last token, and what is predicted after it. known: the
    tokens that have leaked to where they are predicted, which they cannot under the standard masks. ways: a path to
    each of the first MOST_ANSWERS of `ranked`."""

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
    """What to notice: answers given away, or else what losses change, and what else is predicted."""
    losses = Markup(loss_words(found.now, found.standard, found.pieces))
    parts = [_answers(found) if found.known else losses]
    parts.append(prediction_words(found.pieces[found.query], found.query, *found.predicted))
    if found.last != found.query:  # of which no loss tells
        parts.append(prediction_words(found.pieces[found.last], found.last, *found.predicted_last))
    return paragraph(Markup(together(filter(None, parts))) or say("The prediction does not change."))


def standard_masks() -> Markup:
    """Instead of an effect, where nothing is changed."""
    return paragraph(say("These are the masks that the model was trained with. Switch one on or off, or drag over the "
                         "grid to block cells: the head beside it and the predictions update."))  # fmt: skip


def no_predictions() -> Markup:
    """Instead of an effect, for a model that predicts nothing."""
    words = say("The head beside the grid is under these masks. This model predicts no next token to compare.")
    return paragraph(words)


def answers_table(found: Effect) -> Markup:
    """The tokens that have leaked, those first whose loss fell most, and their paths."""
    order = found.ranked()
    how = say("how it leaks to the previous token, which predicts it")
    rows = [[th(say("token")), th(how), th(say("loss, standard"), "number"), th(say("loss, now"), "number")]]
    for token in order[:MOST_ANSWERS]:
        losses = [td(f"{loss[token]:.2f}", "number") for loss in (found.standard, found.now)]
        rows.append([td(f"{token}: {found.pieces[token]}", "token"), td(_path(found, found.ways[token])), *losses])
    if len(order) > MOST_ANSWERS:
        rows.append([td(say("and {count:,} more", count=len(order) - MOST_ANSWERS), colspan=4)])
    return table(rows, "numbers answers")  # not shown


def after_query(found: Effect) -> Markup:
    """What the table of next tokens is about, and what the token that really follows costs."""
    token, query = found.query + 1, _name(found, found.query)
    if token >= len(found.now) or np.isnan(found.now[token]):
        return paragraph(filled(say("What follows {token}."), token=query), "key")
    losses = {"loss": found.now[token], "before": found.standard[token], "nats": _nats()}
    return paragraph(filled(say(FOLLOWS), token=query, next=_name(found, token), **losses), "key")


def losses_figure(found: Effect, *, changed: bool) -> go.Figure:
    """Every token's loss, with a line at the token that the query predicts; none where nothing follows it."""
    drawn = loss_figure(found.now, found.standard, found.pieces, changed=changed)
    if found.query + 1 < len(found.now):
        line = {"type": "line", "x0": found.query + 1, "x1": found.query + 1, "yref": "paper", "y0": 0, "y1": 1,
                "layer": "below", "line": {"color": MARK, "width": 1.5, "dash": "dot"}}  # fmt: skip
        plain = drawn.to_dict()
        return figure(plain["data"], plain["layout"] | {"shapes": [line]})
    return drawn


def _nats() -> Markup:
    return tag("abbr", say("nats"), title=say(NATS))


def _answers(found: Effect) -> Markup:
    best = found.ranked()[0]
    known = say("<b>Tokens that have leaked to the positions that must predict them: {positions}.</b>",
                positions=_ranges(found.known))  # fmt: skip
    losses = {"before": found.standard[best], "after": found.now[best], "nats": _nats()}
    leak = filled(say(LEAK), token=_name(found, best), path=_path(found, found.ways[best]), **losses)
    return Markup(together([known, leak]))


def _path(found: Effect, path: Sequence["PathStep"]) -> Markup:
    """How a token gets to the one that predicts it: attention steps in the order of the layers."""
    words = say("in {layer} {query} may attend to {key}")
    told = [
        filled(words, layer=head_name(look.layer), query=_name(found, look.query), key=_name(found, look.key))
        for look in reversed(path)
    ]
    if len(told) > MOST_LOOKS:
        told[1:-1] = [escape(say("{count:,} more attention steps", count=len(told) - 2))]
    return join(told, say(", "))


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
    return listed(
        str(first) if first == last else say("{first} to {last}", first=first, last=last) for first, last in runs
    )
