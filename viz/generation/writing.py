"""Writing token by token: the text so far, the candidates for a token, and the sentence about both. HTML."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from viz.numbers import percent
from viz.palette import NOW, STANDARD

MARK = "#e6399b"  # the row and the token that are looked at, as in the Mask Lab


@dataclass(frozen=True)
class Token:
    """A token of the text: its label, and for one that was written how likely the model found it (0 to 1, NaN where
    that is not known), and whether the reader chose it."""

    label: str
    probability: float | None = None
    by_hand: bool = False


@dataclass(frozen=True)
class Chance:
    """A candidate: its id, its label, its probability by the model and after the filters, 0 to 1."""

    token: int
    label: str
    before: float
    after: float


@dataclass(frozen=True)
class Scene:
    """What the page's sentence is about.

    query, key: position and label of the row looked at and of the key that has most of its weight, `weight`, in the
    head `name`. place: the written token whose choice is looked at, from 0; None for the one that comes next. chosen:
    that token. left, vocabulary: how many tokens the filters leave of how many.
    """

    name: str
    query: tuple[int, str]
    key: tuple[int, str]
    weight: float
    place: int | None
    chosen: Chance
    by_hand: bool
    left: int
    vocabulary: int
    temperature: float
    seed: int


def sentence(scene: Scene) -> str:
    """HTML: what to notice."""
    which = "The newest row" if scene.place is None else "The row before that choice"
    at, label = scene.query
    row = (
        f"{which}, {_label(label)} at position {at}, puts {percent(scene.weight)} of {scene.name}'s attention on "
        f"{_label(scene.key[1])} (position {scene.key[0]})."
    )
    chances = (
        f"{percent(scene.chosen.before)} by the model and {percent(scene.chosen.after)} after the filters, which leave "
        f"{scene.left:,} of {scene.vocabulary:,} tokens"
    )
    best = f"<b>{_label(scene.chosen.label)}</b>"
    if scene.place is not None:
        who = "you took" if scene.by_hand else "it was followed by"
        return f"{row} There {who} {best}: {chances}. Take another, and the text is cut there and goes on with it."
    how = "temperature 0 takes the likeliest" if scene.temperature == 0 else f"seed {scene.seed} draws"
    return f"{row} From what it gathers comes the next token: {how}, {best}, {chances}."


def text_html(tokens: Sequence[Token], newest: int) -> str:
    """The text so far; what was written stands out, position `newest` is framed; chances are in the tooltips."""
    pieces = "".join(_token(place, token, place == newest) for place, token in enumerate(tokens))
    return f'<div class="writing-box"><p class="writing">{pieces}</p></div>'  # which keeps its end in view


def chance_html(chance: Chance, *, drawn: bool) -> str:
    """One candidate's two probabilities as numbers and bars, for the space beside its button."""
    what = f"{percent(chance.before)} by the model, {percent(chance.after)} after the filters"
    bars = "".join(
        f'<span class="bar" style="width:{max(min(share, 1.0), 0.0) * 100:.1f}%;background:{colour}"></span>'
        for share, colour in ((chance.before, STANDARD), (chance.after, NOW))
    )
    gone = "" if chance.after > 0 else " gone"
    mark = " drawn" if drawn else ""
    return (
        f'<div class="chance{gone}{mark}" title="{what}"><span class="share">{percent(chance.before)}</span>'
        f'<span class="share">{percent(chance.after) if chance.after > 0 else "out"}</span>'
        f'<span class="bars">{bars}</span></div>'
    )


def chances_head(what: str) -> str:
    """The title of the candidates, over their columns; the colours are those of the bars."""
    swatches = [
        f'<span class="share"><span class="swatch" style="background:{colour}"></span>{name}</span>'
        for name, colour in (("model", STANDARD), ("filtered", NOW))
    ]
    return f'<div class="chance head"><b>{html.escape(what)}</b>{"".join(swatches)}<span class="bars"></span></div>'


def _token(place: int, token: Token, newest: bool) -> str:
    """One token; a space before a word is a space, a line end is shown and ends the line."""
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title = f"{place}: {label}"
    kind = "prompt"
    if token.probability is not None:
        kind = "written by-hand" if token.by_hand else "written"
        known = not math.isnan(token.probability)
        title += (f", {percent(token.probability)} by the model" if known else "") + ", taken by you" * token.by_hand
    mark = " newest" if newest else ""
    end = "<br>" * label.count("⏎")
    return f'<span class="{kind}{mark}" title="{html.escape(title)}">{html.escape(shown)}</span>{end}'


def _label(label: str) -> str:
    return f"“{html.escape(label)}”"
