"""Writing token by token: the text so far, the candidates for a token, and the sentence about both. HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from viz.numbers import chance as chance_words
from viz.numbers import percent
from viz.palette import NOW, STANDARD


@dataclass(frozen=True)
class Token:
    """A token of the text: its label, and for one that was written how likely the model found it (0 to 1) and whether
    the reader chose it."""

    label: str
    probability: float | None = None
    by_hand: bool = False


@dataclass(frozen=True)
class Chance:
    """A candidate: its id, its label, its probability by the model and that it is drawn with, 0 to 1."""

    token: int
    label: str
    before: float
    after: float


@dataclass(frozen=True)
class Scene:
    """What the page's sentence is about.

    query, key: position and label of the row looked at and of the key that has most of its weight, `weight`, in the
    head `name`, one of `heads`. place: the written token whose choice is looked at, from 0; None for the one that comes
    next. chosen: that token. left, vocabulary: how many tokens may be drawn of how many. settings: what of the sampling
    changes the model's probabilities, in words.
    """

    name: str
    heads: int
    query: tuple[int, str]
    key: tuple[int, str]
    weight: float
    place: int | None
    chosen: Chance
    by_hand: bool
    left: int
    vocabulary: int
    temperature: float
    settings: tuple[str, ...]
    seed: int


def settings(temperature: float, top_k: int, top_p: float) -> tuple[str, ...]:
    """What of a sampling changes the model's probabilities, in words."""
    on = {"temperature": (temperature, 1), "top-k": (top_k, 0), "top-p": (top_p, 1)}
    return tuple(f"{name} {value:g}" for name, (value, off) in on.items() if value != off)


def sentence(scene: Scene) -> Markup:
    """What to notice."""
    which = "The newest row" if scene.place is None else "The row before that choice"
    (at, label), (seen_at, seen) = scene.query, scene.key
    row = Markup("{} of {}, “{}” at position {}, puts {} of its attention on “{}” (position {}).").format(
        which, scene.name, label, at, percent(scene.weight), seen, seen_at
    )
    if scene.place is not None:
        who = "you took" if scene.by_hand else "it was followed by"
        there = Markup(" There {} <b>“{}”</b>: {}. Take another, and the text is cut there and goes on with it.")
        return row + there.format(who, scene.chosen.label, _chances(scene))
    how = "temperature 0 takes the likeliest" if scene.temperature == 0 else f"seed {scene.seed} draws"
    whole = "the rows of all {:,} heads here and all that is computed between them"
    next_token = Markup(" The next token comes from {}, not from this row alone: {} <b>“{}”</b>, {}.")
    return row + next_token.format(whole.format(scene.heads), how, scene.chosen.label, _chances(scene))


def text_html(tokens: Sequence[Token], newest: int) -> Markup:
    """The text so far; what was written stands out, position `newest` is framed; chances are in the tooltips."""
    pieces = Markup("").join(_token(place, token, place == newest) for place, token in enumerate(tokens))
    box = Markup('<div class="writing-box"><p class="writing">{}</p></div>')  # which keeps its end in view
    return box.format(pieces)


def chance_html(chance: Chance, *, drawn: bool) -> Markup:
    """One candidate's two probabilities as numbers and bars, for the space beside its button."""
    bars = Markup("").join(
        Markup('<span class="bar" style="width:{:.1f}%;background:{}"></span>').format(share * 100, colour)
        for share, colour in ((chance.before, STANDARD), (chance.after, NOW))
    )
    return Markup(
        '<div class="chance{}{}" title="{before} by the model, drawn with {}"><span class="share">{before}</span>'
        '<span class="share">{}</span><span class="bars">{}</span></div>'
    ).format(
        "" if chance.after > 0 else " gone",
        " drawn" if drawn else "",
        percent(chance.after),
        percent(chance.after) if chance.after > 0 else "out",
        bars,
        before=chance_words(chance.before),
    )


def chances_head(what: str) -> Markup:
    """The title of the candidates, over their columns; the colours are those of the bars."""
    swatches = Markup("").join(
        Markup('<span class="share"><span class="swatch" style="background:{}"></span>{}</span>').format(colour, name)
        for name, colour in (("model", STANDARD), ("drawn", NOW))
    )
    return Markup('<div class="chance head"><b>{}</b>{}<span class="bars"></span></div>').format(what, swatches)


def _chances(scene: Scene) -> str:
    """What the model gives the token, what the sampling makes of it, and what it leaves; silent where all stays."""
    before, after = chance_words(scene.chosen.before), percent(scene.chosen.after)
    if not scene.settings:
        return f"{before} by the model"
    how = " and ".join([", ".join(scene.settings[:-1]), scene.settings[-1]] if scene.settings[1:] else scene.settings)
    now = " as set now" if scene.place is not None else ""
    if scene.chosen.after == 0:
        return f"{before} by the model, left out by {how}{now}"
    made = f"{before} by the model" + (f", {after} with {how}{now}" if after != before or scene.place is None else "")
    if scene.left == scene.vocabulary:
        return made
    return f"{made}; {scene.left:,} of {scene.vocabulary:,} tokens {'is' if scene.left == 1 else 'are'} left"


def _token(place: int, token: Token, newest: bool) -> Markup:
    """One token; a space before a word is a space, a line end is shown and ends the line."""
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title = f"{place}: {label}"
    kind = "prompt"
    if token.probability is not None:
        kind = "written by-hand" if token.by_hand else "written"
        title += f", {chance_words(token.probability)} by the model" + ", taken by you" * token.by_hand
    piece = Markup('<span class="{}{}" title="{}">{}</span>').format(kind, " newest" * newest, title, shown)
    return piece + Markup("<br>") * label.count("⏎")
