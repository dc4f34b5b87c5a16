"""Writing token by token: the text so far, the candidates for a token, and the sentence about both. HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, say, say_all, say_count, together
from viz.html import join, say_one, swatch, tag
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


MADE = {  # of a probability; True: as the sampling is set now, and not when the token was written
    ("out", False): N_("{before} by the model, left out by {how}"),
    ("out", True): N_("{before} by the model, left out by {how} as set now"),
    ("drawn", False): N_("{before} by the model, {after} with {how}"),
    ("drawn", True): N_("{before} by the model, {after} with {how} as set now"),
}
ROWS = {
    "newest": N_("The newest row of {head}, “{label}” at position {at}, puts {share} of its attention on “{seen}” "
                 "(position {seen_at})."),
    "before": N_("The row before that choice of {head}, “{label}” at position {at}, puts {share} of its attention on "
                 "“{seen}” (position {seen_at})."),
}  # fmt: skip
CHOSEN = {
    "by_hand": N_("There you chose <b>“{token}”</b>: {chances}. Choose another to cut the text there and continue "
                  "with it."),
    "sampled": N_("There it was followed by <b>“{token}”</b>: {chances}. Choose another to cut the text there and "
                  "continue with it."),
}  # fmt: skip
NEXT_TOKEN = {
    "likeliest": N_("The next token depends on the rows of all {heads:,} heads and everything computed between them, "
                    "not on this row alone: temperature 0 takes the most likely <b>“{token}”</b>, {chances}."),
    "sampled": N_("The next token depends on the rows of all {heads:,} heads and everything computed between them, not "
                  "on this row alone: seed {seed} samples <b>“{token}”</b>, {chances}."),
}  # fmt: skip


def sentence(scene: WritingScene) -> Markup:
    """What to notice."""
    (at, label), (seen_at, seen) = scene.query, scene.key
    about = {"head": scene.name, "label": label, "at": at, "seen": seen, "seen_at": seen_at}
    row = Markup(say_one(ROWS, "newest" if scene.place is None else "before"))
    if scene.place is None:
        told = say_one(NEXT_TOKEN, "sampled" if scene.temperature else "likeliest")
    else:
        told = say_one(CHOSEN, "by_hand" if scene.by_hand else "sampled")
    token = {"heads": scene.heads, "seed": scene.seed, "token": scene.chosen.label, "chances": _chances(scene)}
    return Markup(together([row.format(share=percent(scene.weight), **about), Markup(told).format(**token)]))


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
    """What the model gives the token, what the sampling makes of it, and what it leaves; silent where all stays."""
    before, after = chance_words(scene.chosen.before), percent(scene.chosen.after)
    found = {"before": before, "after": after, "how": say_all(scene.settings)}
    if not scene.settings or (scene.chosen.after and scene.place is not None and after == before):
        made = say("{before} by the model", **found)
    else:
        made = say_one(MADE, ("out" if scene.chosen.after == 0 else "drawn", scene.place is not None), **found)
    if not scene.settings or scene.chosen.after == 0 or scene.left == scene.vocabulary:
        return made
    return say_count(
        "{made}; {count} of {vocabulary:,} tokens is left", "{made}; {count} of {vocabulary:,} tokens are left",
        scene.left, made=made, vocabulary=scene.vocabulary,
    )  # fmt: skip


def _token(place: int, token: Token, newest: bool) -> Markup:
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title, kind = f"{place}: {label}", "prompt"
    if token.probability is not None:
        kind = "written by-hand" if token.by_hand else "written"  # not shown
        found = {"token": title, "chance": chance_words(token.probability)}
        by_hand = say("{token}, {chance} by the model, chosen by you", **found)
        title = by_hand if token.by_hand else say("{token}, {chance} by the model", **found)
    return tag("span", shown, class_=kind + " newest" * newest, title=title) + Markup("<br>") * label.count("⏎")
