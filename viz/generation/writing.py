"""Writing token by token: the text so far, the candidates for a token, and the sentence about both. HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, say, say_all, together
from viz.html import filled, join, swatch, tag
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
    head `name`, one of `heads`. place: the written token that is looked at, from 0; None for the one that comes next.
    chosen: that token. left, vocabulary: how many tokens may be drawn of how many. settings: as `settings` gives them.
    """

    name: str
    heads: int
    query: tuple[int, str]
    key: tuple[int, str]
    weight: float
    place: int | None
    chosen: Chance
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


SAMPLED = N_("{before} by the model, {after} with {how} as set now, which leaves {left:,} of {vocabulary:,} tokens")
ROW = N_("Row {at} of {head}, “{label}”, puts {share} of its attention on “{seen}” (position {seen_at}).")
CHOSEN = N_(
    "There the next token was <b>“{token}”</b>: {chances}. Choose another to cut the text there and continue with it."
)
NEXT_TOKEN = N_(
    "The next token depends on the rows of all {heads:,} heads and everything computed between them, not on this row "
    "alone: temperature {temperature:g} and seed {seed} give <b>“{token}”</b>, {chances}."
)


def sentence(scene: WritingScene) -> Markup:
    """What to notice."""
    (at, label), (seen_at, seen) = scene.query, scene.key
    about = {"head": scene.name, "label": label, "at": at, "seen": seen, "seen_at": seen_at}
    row = filled(say(ROW), share=percent(scene.weight), **about)
    sampling = {"heads": scene.heads, "seed": scene.seed, "temperature": scene.temperature}
    told = say(NEXT_TOKEN if scene.place is None else CHOSEN)
    return Markup(together([row, filled(told, token=scene.chosen.label, chances=_chances(scene), **sampling)]))


def text_html(tokens: Sequence[Token], newest: int) -> Markup:
    """The text so far; what was written stands out, position `newest` is framed; chances are in the tooltips."""
    pieces = join(_token(place, token, place == newest) for place, token in enumerate(tokens))
    return tag("div", tag("p", pieces, class_="writing", translate="no"), class_="writing-box")  # keeps its end in view


def chance_html(chance: Chance, *, drawn: bool) -> Markup:
    """One candidate's two probabilities as numbers and bars, for the space beside its button."""
    pairs = ((chance.before, STANDARD), (chance.after, NOW))
    bars = [tag("span", class_="bar", style=f"width:{share * 100:.1f}%;background:{colour}") for share, colour in pairs]
    before, after = chance_words(chance.before), percent(chance.after)
    shares = (before, after if chance.after > 0 else say("out"))
    parts = [*(tag("span", share, class_="share") for share in shares), tag("span", join(bars), class_="bars")]
    title = say("{before} by the model, sampled with {after}", before=before, after=after)
    kind = "chance" + " gone" * (chance.after <= 0) + " drawn" * drawn  # not shown
    return tag("div", join(parts), class_=kind, title=title)


def chances_head(what: str) -> Markup:
    """The title of the candidates, over their columns; the colours are those of the bars."""
    names = ((say("model"), STANDARD), (say("sampled with"), NOW))
    shares = [tag("span", swatch(colour) + name, class_="share") for name, colour in names]
    return tag("div", join([tag("b", what), *shares, tag("span", class_="bars")]), class_="chance head")  # not shown


def _chances(scene: WritingScene) -> str:
    """What the model gives the token, and what the sampling makes of it where it changes anything."""
    before, after = chance_words(scene.chosen.before), percent(scene.chosen.after)
    if not scene.settings:
        return say("{before} by the model", before=before)
    left = {"left": scene.left, "vocabulary": scene.vocabulary}
    return say(SAMPLED, before=before, after=after, how=say_all(scene.settings), **left)


def _token(place: int, token: Token, newest: bool) -> Markup:
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title, kind = f"{place}: {label}", "prompt"
    if token.probability is not None:
        kind = "written by-hand" if token.by_hand else "written"  # not shown
        found = (
            N_("{token}, {chance} by the model, chosen by you")
            if token.by_hand
            else N_("{token}, {chance} by the model")
        )
        title = say(found, token=title, chance=chance_words(token.probability))
    return tag("span", shown, class_=kind + " newest" * newest, title=title) + Markup("<br>") * label.count("⏎")
