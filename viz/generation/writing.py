"""Writing token by token: the text so far, the candidates for a token, and the sentence about both. HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, say, say_all, say_count, together
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
class WritingScene:
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
    on = (
        (N_("temperature {value:g}"), temperature, 1),
        (N_("top-k {value:g}"), top_k, 0),
        (N_("top-p {value:g}"), top_p, 1),
    )
    return tuple(say(words, value=value) for words, value, off in on if value != off)


def sentence(scene: WritingScene) -> Markup:
    """What to notice."""
    return Markup(together([_row(scene), _next(scene) if scene.place is None else _written(scene)]))


def _row(scene: WritingScene) -> Markup:
    (at, label), (seen_at, seen) = scene.query, scene.key
    if scene.place is None:
        words = say(
            "The newest row of {head}, “{label}” at position {at}, puts {share} of its attention on “{seen}” (position "
            "{seen_at})."
        )
    else:
        words = say(
            "The row before that choice of {head}, “{label}” at position {at}, puts {share} of its attention on "
            "“{seen}” (position {seen_at})."
        )
    share = percent(scene.weight)
    return Markup(words).format(head=scene.name, label=label, at=at, share=share, seen=seen, seen_at=seen_at)


def _written(scene: WritingScene) -> Markup:
    if scene.by_hand:
        words = say(
            "There you chose <b>“{token}”</b>: {chances}. Choose another to cut the text there and continue with it."
        )
    else:
        words = say(
            "There it was followed by <b>“{token}”</b>: {chances}. Choose another to cut the text there and continue "
            "with it."
        )
    return Markup(words).format(token=scene.chosen.label, chances=_chances(scene))


def _next(scene: WritingScene) -> Markup:
    if scene.temperature == 0:
        words = say(
            "The next token depends on the rows of all {heads:,} heads and everything computed between them, not on "
            "this row alone: temperature 0 takes the most likely <b>“{token}”</b>, {chances}."
        )
    else:
        words = say(
            "The next token depends on the rows of all {heads:,} heads and everything computed between them, not on "
            "this row alone: seed {seed} samples <b>“{token}”</b>, {chances}."
        )
    return Markup(words).format(heads=scene.heads, seed=scene.seed, token=scene.chosen.label, chances=_chances(scene))


def text_html(tokens: Sequence[Token], newest: int) -> Markup:
    """The text so far; what was written stands out, position `newest` is framed; chances are in the tooltips."""
    pieces = Markup("").join(_token(place, token, place == newest) for place, token in enumerate(tokens))
    box = Markup(
        '<div class="writing-box"><p class="writing" translate="no">{}</p></div>'
    )  # which keeps its end in view
    return box.format(pieces)


def chance_html(chance: Chance, *, drawn: bool) -> Markup:
    """One candidate's two probabilities as numbers and bars, for the space beside its button."""
    bars = Markup("").join(
        Markup('<span class="bar" style="width:{:.1f}%;background:{}"></span>').format(share * 100, colour)
        for share, colour in ((chance.before, STANDARD), (chance.after, NOW))
    )
    before, after = chance_words(chance.before), percent(chance.after) if chance.after > 0 else say("out")
    title = say("{before} by the model, sampled with {after}", before=before, after=percent(chance.after))
    return Markup(
        '<div class="chance{}{}" title="{}"><span class="share">{}</span><span class="share">{}</span>'
        '<span class="bars">{}</span></div>'
    ).format("" if chance.after > 0 else " gone", " drawn" if drawn else "", title, before, after, bars)


def chances_head(what: str) -> Markup:
    """The title of the candidates, over their columns; the colours are those of the bars."""
    swatches = Markup("").join(
        Markup('<span class="share"><span class="swatch" style="background:{}"></span>{}</span>').format(colour, name)
        for name, colour in ((say("model"), STANDARD), (say("sampled with"), NOW))
    )
    return Markup('<div class="chance head"><b>{}</b>{}<span class="bars"></span></div>').format(what, swatches)


def _chances(scene: WritingScene) -> str:
    """What the model gives the token, what the sampling makes of it, and what it leaves; silent where all stays."""
    before, after = chance_words(scene.chosen.before), percent(scene.chosen.after)
    found = {"before": before, "after": after, "how": say_all(scene.settings)}
    if not scene.settings:
        return say("{before} by the model", before=before)
    if scene.chosen.after == 0:
        if scene.place is None:
            return say("{before} by the model, left out by {how}").format(**found)
        return say("{before} by the model, left out by {how} as set now").format(**found)
    if scene.place is None:
        made = say("{before} by the model, {after} with {how}").format(**found)
    elif after != before:
        made = say("{before} by the model, {after} with {how} as set now").format(**found)
    else:
        made = say("{before} by the model", before=before)
    if scene.left == scene.vocabulary:
        return made
    return say_count(
        "{made}; {count} of {vocabulary:,} tokens is left",
        "{made}; {count} of {vocabulary:,} tokens are left",
        scene.left, made=made, vocabulary=scene.vocabulary,
    )  # fmt: skip


def _token(place: int, token: Token, newest: bool) -> Markup:
    """One token; a space before a word is a space, a line end is shown and ends the line."""
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title, kind = f"{place}: {label}", "prompt"
    if token.probability is not None:
        kind = "written by-hand" if token.by_hand else "written"  # not shown
        found = {"token": title, "chance": chance_words(token.probability)}
        if token.by_hand:
            title = say("{token}, {chance} by the model, chosen by you").format(**found)
        else:
            title = say("{token}, {chance} by the model").format(**found)
    piece = Markup('<span class="{}{}" title="{}">{}</span>').format(kind, " newest" * newest, title, shown)
    return piece + Markup("<br>") * label.count("⏎")
