"""What composed masks do to a run, in words: losses, answers that tokens can now know, the next token. HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from viz.numbers import Candidate, chance, loss_figure
from viz.palette import MARK

if TYPE_CHECKING:  # for the names of the fields: pictures are made without torch
    from model.heads.reach import Look

MOST_LOOKS = 3  # of a path, spelled out in a sentence
MOST_ANSWERS = 12  # rows of the table
NATS = Markup('<abbr title="The loss of a token is −ln of the probability that the model gave it. 0 nats: certain; '
              '0.69: one in two; 2.3: one in ten.">nats</abbr>')  # fmt: skip


@dataclass(frozen=True, eq=False)
class Effect:
    """pieces [T]. now, standard: the tokens' losses in nats [T], NaN where there is none. query: the position whose
    next token is `predicted`: the likeliest, standard and now. known: the tokens that can be known of where they are
    predicted, as they cannot under the standard masks. ways: a path to each of the first MOST_ANSWERS of `ranked`.
    """

    pieces: Sequence[str]
    now: np.ndarray
    standard: np.ndarray
    query: int
    predicted: tuple[Candidate, Candidate]
    known: Sequence[int] = ()
    ways: Mapping[int, Sequence["Look"]] = field(default_factory=dict)

    def ranked(self) -> list[int]:
        """The known tokens, those first whose loss falls most."""
        return sorted(self.known, key=self.gain, reverse=True)

    def gain(self, token: int) -> float:
        """By how many nats its loss falls, in hundredths, as losses are shown; negative where it rises."""
        return round(float(self.standard[token]), 2) - round(float(self.now[token]), 2)


def effect(found: Effect) -> Markup:
    """What to notice: answers given away, or else what losses change. Says nothing of what stays as it was."""
    parts = [_answers(found) if found.known else _losses(found), _prediction(found)]
    words = Markup(" ").join(part for part in parts if part)
    return _sentence(words or Markup("No token's loss changes in this row, and no prediction."))


def standard_masks() -> Markup:
    """Instead of an effect, where nothing is changed."""
    return _sentence("These are the masks that the model was trained with. Switch one on or off, or drag over the "
                     "grid to block cells: the head beside it and the predictions follow.")  # fmt: skip


def no_predictions() -> Markup:
    """Instead of an effect, for a model that predicts nothing."""
    return _sentence("The head beside the grid is under these masks. This model predicts no next token to compare.")


def answers_table(found: Effect) -> Markup:
    """The tokens that can know their own answer, those first whose loss fell most, and the way that it takes."""
    order = found.ranked()
    rows = Markup().join(
        Markup('<tr><td class="token">{}: {}</td><td>{}</td><td class="number">{:.2f}</td>'
               '<td class="number">{:.2f}</td></tr>').format(
            token, found.pieces[token], _way(found, token, found.ways[token]), found.standard[token], found.now[token]
        )
        for token in order[:MOST_ANSWERS]
    )  # fmt: skip
    left = len(order) - MOST_ANSWERS
    more = Markup('<tr><td colspan="4">and {:,} more</td></tr>').format(left) if left > 0 else ""
    return Markup(
        '<table class="numbers answers"><tr><th>token</th><th>how it gets to the token before, which predicts it</th>'
        '<th class="number">loss, standard</th><th class="number">loss, now</th></tr>{}{}</table>'
    ).format(rows, more)


def after_query(found: Effect, *, changed: bool) -> Markup:
    """What the table of next tokens is about, and what the token that really follows costs."""
    words = Markup("What follows {}").format(_name(found, found.query))
    token = found.query + 1
    if token < len(found.now) and not np.isnan(found.now[token]):
        was = Markup(", {:.2f} under the standard masks").format(found.standard[token]) if changed else ""
        words += Markup(". Really it is {}: a loss of {:.2f} {}{}").format(
            _name(found, token), found.now[token], NATS, was
        )
    return Markup('<p class="key">{}.</p>').format(words)


def losses_figure(found: Effect, *, changed: bool) -> go.Figure:
    """Every token's loss, with a line at the token that the query predicts; none where nothing follows it."""
    drawn = loss_figure(found.now, found.standard, found.pieces, changed=changed)
    if found.query + 1 < len(found.now):
        drawn.add_shape(type="line", x0=found.query + 1, x1=found.query + 1, yref="paper", y0=0, y1=1,
                        layer="below", line={"color": MARK, "width": 1.5, "dash": "dot"})  # fmt: skip
    return drawn


def _sentence(words: str) -> Markup:
    return Markup('<p class="sentence">{}</p>').format(words)


def _answers(found: Effect) -> Markup:
    """Who can know its own answer now, by which way, and what came of it."""
    best, gain = found.ranked()[0], found.gain(found.ranked()[0])
    one = len(found.known) == 1
    who = "One token" if one else f"{len(found.known):,} tokens"
    words = Markup("<b>{} can now be known before {} predicted</b> ({}). {} {}: {}.").format(
        who, "it is" if one else "they are", _ranges(found.known),
        _name(found, best), "gains most" if gain > 0 and not one else "gets out this way",
        _way(found, best, found.ways[best]),
    )  # fmt: skip
    if gain <= 0:
        return words + f" Yet {'its loss does not fall' if one else 'the loss of none of them falls'}."
    words += Markup(" Its loss falls from {:.2f} to {:.2f} {}").format(found.standard[best], found.now[best], NATS)
    rose = sum(found.gain(token) < 0 for token in found.known)
    return words + (f"; {_others(rose, len(found.known))}." if rose else ".")


def _others(rose: int, known: int) -> str:
    if known == 2:
        return "that of the other rises"
    return f"{'one' if rose == 1 else f'{rose:,}'} of the others {'rises' if rose == 1 else 'rise'}"


def _way(found: Effect, token: int, path: Sequence["Look"]) -> Markup:
    """How a token gets to the one that predicts it: the looks in the order of the layers."""
    told: list[Markup] = []
    for look in path[::-1]:
        who, whom = _name(found, look.query), "it" if look.key == token else _name(found, look.key)
        predicting = ", which predicts it," if look is path[0] else ""
        layer = "" if told else "layer "
        told.append(Markup("in {}L{} {}{} may look at {}").format(layer, look.layer, who, predicting, whom))
    if len(told) > MOST_LOOKS:
        told = [
            told[0],
            Markup("{:,} more looks lead to {}").format(len(told) - 2, _name(found, path[0].key)),
            told[-1],
        ]
    return Markup(", ").join(told)


def _losses(found: Effect) -> Markup:
    """The mean and the largest change."""
    if np.isnan(found.now).all():
        return Markup()
    mean, before = f"{np.nanmean(found.now):.2f}", f"{np.nanmean(found.standard):.2f}"
    parts = []
    if mean != before:
        parts.append(
            Markup("The mean loss is {} {} per token, under the standard masks {}.").format(mean, NATS, before)
        )
    most = int(np.nanargmax(np.abs(found.now - found.standard)))
    if found.gain(most):
        parts.append(
            Markup("The largest change is that of {}, from {:.2f} to {:.2f} {}.").format(
                _name(found, most), found.standard[most], found.now[most], NATS
            )
        )
    return Markup(" ").join(parts)


def _prediction(found: Effect) -> Markup:
    standard, now = found.predicted
    after = _name(found, found.query)
    if standard.label != now.label:
        return Markup("After {} the likeliest next token was <b>{}</b> ({}) and is <b>{}</b> ({}).").format(
            after, standard.label, chance(standard.probability), now.label, chance(now.probability)
        )
    before, after_all = chance(standard.probability), chance(now.probability)
    if before == after_all:
        return Markup()
    return Markup("After {} the likeliest next token stays <b>{}</b>: {}, before {}.").format(
        after, now.label, after_all, before
    )


def _name(found: Effect, place: int) -> Markup:
    return Markup("<b>{}</b> ({})").format(found.pieces[place], place)


def _ranges(numbers: Sequence[int]) -> str:
    """ "5 to 14, 16, 18, 19"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    spelled = (f"{first} to {last}" if last > first + 1 else range(first, last + 1) for first, last in runs)
    return ", ".join(one if isinstance(one, str) else ", ".join(map(str, one)) for one in spelled)
