"""Effects of composed masks on a run, in words: losses, leaked targets, the next token (HTML). And reach: after how
many layers a token can depend on another, beside what it may attend to in one layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_count, together
from model.heads.view import HeadView, coarser, head_name, reduced
from viz.charts import NO_EFFECT_COLOUR, RIGHT, flat, two_masks, upright, zero_weights_view
from viz.heatmap import CachedFigure, Part, blocked_traces, cells, colour_bar, figure, frames, hatching, title
from viz.html import filled, headings, join, paragraph, table, tag, td, th, track
from viz.numbers import Candidate, loss_figure
from viz.palette import MARK, stops
from viz.sentence import NOTICED, count_words, loss_words, named, prediction_words

if TYPE_CHECKING:  # this module imports torch, which pictures do without
    from model.heads.reach import PathStep, Reach


MAX_ATTENTION_STEPS = 3  # largest number of attention steps of a path that are all described
MAX_LEAKED_TOKENS = 12  # rows of the table
FOLLOWS = N_(
    "What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}, {before:.2f} under the standard "
    "masks."
)
LEAK = N_("The loss of {token} goes from {before:.2f} to {after:.2f} {nats}. Its path: {path}.")
NO_GAIN = N_("None of their losses falls by more than {nats} nats.")
NATS = N_(
    "The loss of a token is −ln of the probability that the model gave it. 0 nats: certain; 0.69: one in two; 2.3: one "
    "in ten."
)
MAX_CELLS = 192  # cells per side: two pictures share the width
TITLE_LETTERS, TITLE_LINE = 32, 20  # letters in a line of their titles; its height in pixels
STACKED = N_(
    "Of all tokens, <b>{token}</b> (position {position}) may attend to {alone:,} in layer {layer} alone. After the "
    "last layer it can depend on {seen:,} ({ahead:,} of them later in the text); layers needed for that: {settled} of "
    "{layers}."
)


@dataclass(frozen=True, eq=False)
class Effect:
    """Effect of composed masks on a row. pieces [T]. now, standard: losses in nats [T], NaN where there is none. query:
    the position whose most likely next token is `predicted` (standard, now); last: the row's last position, with
    `predicted_last`. known: tokens that leak to the position that predicts them, which none can under the standard
    masks. ways: a path for each of the first MAX_LEAKED_TOKENS of `ranked`."""

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
        """Return the leaked tokens, those whose loss falls most first."""
        return sorted(self.known, key=self.gain, reverse=True)

    def gain(self, token: int) -> float:
        """Return the decrease of a token's loss in nats, from rounded losses as shown; negative if it rises."""
        return round(float(self.standard[token]), 2) - round(float(self.now[token]), 2)


def effect(found: Effect) -> Markup:
    """Say which targets leak and how that changes losses or, if none does, how losses and predictions change."""
    if found.known:  # without predictions, which are in the section below, so that both pictures fit a projector
        return paragraph(Markup(together(_answers(found))))
    parts = [_losses(found), prediction_words(found.pieces[found.query], found.query, *found.predicted)]
    if found.last != found.query:  # no loss depends on the prediction there
        parts.append(prediction_words(found.pieces[found.last], found.last, *found.predicted_last))
    return paragraph(Markup(together(filter(None, parts))) or say("The prediction does not change."))


def standard_masks() -> Markup:
    """Return the text shown in place of an effect if no mask is changed."""
    return paragraph(say("These are the masks that the model was trained with. Turn one on or off, or "
                         "drag over the grid to block cells: the head beside it and the predictions "
                         "update."))  # fmt: skip


def no_predictions() -> Markup:
    """Return the text shown in place of an effect for a model that predicts no next token."""
    words = say("The head beside the grid is under these masks. This model predicts no next token to compare.")
    return paragraph(words)


def leaked_tokens_table(found: Effect) -> Markup:
    """Return a table of the leaked tokens, those whose loss fell most first, and their paths."""
    order = found.ranked()
    how = say("how it leaks to the previous token, which predicts it")
    rows = [headings((say("token"), how), (say("loss, standard"), say("loss, now")))]
    for token in order[:MAX_LEAKED_TOKENS]:
        losses = [td(f"{loss[token]:.2f}", "number") for loss in (found.standard, found.now)]
        rows.append([td(f"{token}: {found.pieces[token]}", "token"), td(_path(found, found.ways[token])), *losses])
    if len(order) > MAX_LEAKED_TOKENS:
        rows.append([td(say("and {count:,} more", count=len(order) - MAX_LEAKED_TOKENS), colspan=4)])
    return table(rows, "numbers answers")  # not shown


def next_token_sentence(found: Effect) -> Markup:
    """Say which position the table of next tokens is about, and the loss of the actual next token."""
    token, query = found.query + 1, _name(found, found.query)
    if token >= len(found.now) or np.isnan(found.now[token]):
        return paragraph(filled(say("What follows {token}."), token=query), "key")
    losses = {"loss": found.now[token], "before": found.standard[token], "nats": _nats()}
    return paragraph(filled(say(FOLLOWS), token=query, next=_name(found, token), **losses), "key")


def losses_figure(found: Effect, *, changed: bool) -> CachedFigure:
    """Draw every token's loss, with a line at the token after the query, if there is one."""
    drawn = loss_figure(found.now, found.standard, found.pieces, changed=changed)
    if found.query + 1 < len(found.now):
        line, plain = upright(found.query + 1, color=MARK, width=1.5, dash="dot"), drawn.to_dict()
        return figure(plain["data"], plain["layout"] | {"shapes": [line | {"yref": "paper", "layer": "below"}]})
    return drawn


def _nats() -> Markup:
    return tag("abbr", say("nats"), title=say(NATS))


def _answers(found: Effect) -> list[Markup]:
    """Name the leaked tokens, and say how losses change."""
    known = say("<b>Tokens that have leaked to the positions that must predict them: {positions}.</b>",
                positions=_ranges(found.known))  # fmt: skip
    best = found.ranked()[0]
    if np.max((found.standard - found.now)[found.known]) <= NOTICED:  # unrounded, like the counts
        return [Markup(known), Markup(say(NO_GAIN, nats=NOTICED)), _losses(found)]
    losses = {"before": found.standard[best], "after": found.now[best], "nats": _nats()}
    leak = filled(say(LEAK), token=_name(found, best), path=_path(found, found.ways[best]), **losses)
    return [Markup(known), Markup(count_words(found.now, found.standard)), leak]


def _losses(found: Effect) -> Markup:
    return Markup(loss_words(found.now, found.standard, found.pieces))


def _path(found: Effect, path: Sequence["PathStep"]) -> Markup:
    """Describe how a token leaks to the position that predicts it: attention steps in the order of the layers."""
    words = say("in {layer} {query} may attend to {key}")
    steps = [
        filled(words, layer=head_name(look.layer), query=_name(found, look.query), key=_name(found, look.key))
        for look in reversed(path)
    ]
    if len(steps) > MAX_ATTENTION_STEPS:
        left_out = say_count("{count} more attention step", "{count} more attention steps", len(steps) - 2)
        steps[1:-1] = [escape(left_out)]
    return join(steps, say(", "))


def _name(found: Effect, position: int) -> Markup:
    return named(found.pieces[position], position)


def _ranges(numbers: Sequence[int]) -> str:
    """Write numbers as ranges: "5 to 14, 16, 18, 19"."""
    followed = groupby(enumerate(numbers), lambda one: one[1] - one[0])
    runs = [[number for _, number in run] for _, run in followed]
    return listed(
        str(run[0]) if len(run) == 1 else say("{first} to {last}", first=run[0], last=run[-1]) for run in runs
    )


@dataclass(frozen=True, eq=False)
class ReachView:
    """Dependencies of T tokens after L layers. layer: the layer of reach.blocked. tokens: a label for each position.
    query: the selected position. names: of all layers. keep: bool [T], False = padding.
    """

    reach: "Reach"
    layer: int
    tokens: list[str]
    query: int
    names: Sequence[str]
    keep: np.ndarray


def reach_figure(view: ReachView, *, dark: bool) -> CachedFigure:
    """Draw the mask of one layer and, on the right, after how many layers a token can depend on another."""
    mask = coarser(zero_weights_view(view.reach.blocked, view.tokens), MAX_CELLS)
    alone = say("layer {layer} alone: what a token may attend to", layer=view.names[view.layer])
    stacked = say("stacked: after how many layers (of {count}) it can depend on it", count=len(view.reach.window))
    layout = two_masks(mask)
    layout["margin"]["t"] = 2 * TITLE_LINE
    lines = [(f"<b>{'<br>'.join(wrap(text, TITLE_LETTERS))}</b>", x) for text, x in ((alone, 0), (stacked, RIGHT[0]))]
    layout |= {
        "annotations": [title(text, x, 1) for text, x in lines],
        "images": hatching(mask.blocked, dark=dark),
        "shapes": frames(mask, view.query, "", "2"),
    }
    words = _pair(say("{query} may attend to {key}"))
    open_cells = flat(mask, ~mask.any_blocked(), _colours(1)[0], "may look", words)  # not shown
    return figure([*blocked_traces(mask), open_cells, *_reach_traces(view, mask, dark=dark)], layout)


def reach_table(view: ReachView) -> Markup:
    """Return a table of the selected query's numbers after each layer; consecutive equal layers share a row."""
    titles = headings([say("layers")], (say("may attend to in that layer"), say("can depend on")))
    rows, reached = [[*titles, th(), th(say("farthest back"))]], view.reach.first[view.query]
    counts = np.stack([view.reach.window[:, view.query], view.reach.seen[:, view.query]], axis=1).tolist()
    for (alone, seen), layers in groupby(range(len(counts)), counts.__getitem__):
        begin, *others = layers
        end = others[-1] if others else begin
        back = view.query - int(np.flatnonzero((reached > 0) & (reached <= begin + 1)).min())
        span = N_("{first} to {last}") if others else "{last}"
        after, where = (say(span, first=some[begin], last=some[end]) for some in (range(1, end + 2), view.names))
        farthest = say("{count:,} back: {token}", count=back, token=view.tokens[view.query - back]) if back > 0 else "–"
        numbers = [td(f"{alone:,}", "number"), td(f"{seen:,}", "number")]
        share = track(seen / len(view.tokens), _colours(1)[0])
        rows.append([td(f"{after} ({where})"), *numbers, share, td(farthest)])
    return table(rows)


def reach_sentence(view: ReachView) -> Markup:
    """Say how far the selected query's dependencies reach, as HTML."""
    seen, alone = int(view.reach.seen[-1, view.query]), int(view.reach.window[view.layer, view.query])
    about = {"layer": view.names[view.layer], "token": view.tokens[view.query], "position": view.query}
    about |= {"alone": alone, "seen": seen}
    reached = view.reach.first[view.query]
    about |= {"ahead": int(((reached > 0) & view.keep)[view.query + 1 :].sum()), "layers": len(view.reach.window)}
    settled = int(np.delete(reached, view.query).max(initial=0))  # without itself: needs no layer
    parts = [filled(say(STACKED), settled=settled, **about)]
    if padding := int((reached[~view.keep] > 0).sum()):
        parts += [escape(say_count("Of the tokens it can depend on, {count} is padding.",
                                   "Of the tokens it can depend on, {count} are padding.", padding))]  # fmt: skip
    return paragraph(Markup(together(parts)))


def fewest_layers(first: np.ndarray, step: int) -> np.ndarray:
    """Reduce int [T,T] to [T/step,T/step]: the smallest positive number of layers in each patch, 0 if all are 0."""
    never = np.iinfo(np.int32).max
    least = reduced(np.where(first > 0, first.astype(np.int32), never), step, np.minimum, never)
    return np.where(least == never, 0, least)


def _reach_traces(view: ReachView, mask: HeadView, *, dark: bool) -> list[Part]:
    numbers = fewest_layers(view.reach.first, mask.step)
    most = int(numbers.max())
    ticks = list(range(1, most + 1, -(-most // 12)))  # at most 12 numbers at the colour bar
    steps = enumerate(_colours(most))
    after = say("layers needed: {count}") if mask.step == 1 else say("layers needed: at least {count}")
    words = _pair(say("{query} can depend on {key}"), after.format(count="%{z}"))
    reach = cells(mask, np.where(numbers > 0, numbers, np.nan), "reach", words, "2") | {
        "zmin": 0.5,
        "zmax": most + 0.5,
        "colorscale": [[edge / most, colour] for step, colour in steps for edge in (step, step + 1)],
        "colorbar": colour_bar(say("layers"), x=1, xanchor="left", xpad=8, y=1, yanchor="top", ypad=0, tickvals=ticks),
    }
    words = _pair(say("{query} can never depend on {key}"), say("no path through the masks"))
    never = flat(mask, numbers == 0, NO_EFFECT_COLOUR[dark], "never", words, "2")
    return [reach, never] if (numbers == 0).any() else [reach]


def _pair(words: str, *more: str) -> str:
    """Return a tooltip in plotly's format: words on the hovered cell, then other lines."""
    return "<br>".join([words.format(query="<b>%{y}</b>", key="<b>%{x}</b>"), *more])


def _colours(count: int) -> list[str]:
    """Return colours from light to dark, without the darkest, which are invisible on a dark page."""
    triples = stops(256)[np.linspace(250, 62, count).round().astype(int)].tolist()
    return [f"rgb{tuple(triple)}" for triple in triples]
