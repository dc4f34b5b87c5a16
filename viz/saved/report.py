"""A run as one HTML file that needs nothing else: all heads, those chosen, masks, numbers, the text.

At most 8 MB: the heads that are held have room for viz.heads.picture.MOST_CELLS, and a sentence says where that is less
than all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from i18n import N_, say, together
from viz.html import join, signs, table, tag, td, th
from viz.numbers import Candidate, LeakShares, head_count, layer_count, leak_table, mean_share, next_token_table
from viz.palette import NOW, rgb
from viz.saved.explorer import AllHeads, explorer_page
from viz.sentence import loss_words

ABSENT = N_("{} is included only as a thumbnail: this report has no room for its weights.")
HELD = N_(
    "Heads included in full, to four digits: {held} of {heads}. Any others are thumbnails, to keep the file below 8 MB."
)
WORST = 8.0  # nats, of a loss in the strongest colour
Shares = tuple[LeakShares, LeakShares]
MOST_TOKENS = 1024  # of each side of a head in full


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """What a run measured. future, padding: float32 [L,H], shares of attention. candidates: the likeliest next tokens;
    losses: float32 [T], nats, NaN where there is none; both empty for a model that predicts no next token."""

    future: np.ndarray
    padding: np.ndarray
    candidates: Sequence[Candidate] = ()
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True, eq=False)
class ReportView:
    """A run to report. model: its name; network: what it is. attention: "self", or which of an encoder-decoder's.
    tokens: that are no padding. masks: which are on, in words; spec: all of them, to be run again, or "". versions: of
    what made it. text: as far as it was read; cut: what of it was not, in a sentence, or ""; labels: of its tokens.
    standard: under the masks that the model was trained with; None where `now` is. link: to the same view in a running
    app, or "". pictures: of a text's image, a sentence and a URI each."""

    model: str
    network: str
    attention: str
    tokens: int
    masks: str
    versions: str
    text: str
    labels: Sequence[str]
    heads: AllHeads
    now: ReportNumbers
    standard: ReportNumbers | None = None
    spec: str = ""
    cut: str = ""
    link: str = ""
    pictures: Sequence[tuple[str, str]] = ()


def report_page(view: ReportView) -> str:
    """The file's text."""
    title = say("{model}: what every head attends to", model=view.model)
    layers, heads = view.heads.thumbnails.shape[:2]
    held = say(HELD, held=len(view.heads.heads), heads=layers * heads)
    rows = [[th(name, scope="row"), td(what)] for name, what in _about(view) if what]
    about = table(rows, "numbers about")  # not shown
    above = join((tag("h1", title), about, tag("p", held, class_="note")))
    link = tag("p", tag("a", say("This view in a running app"), href=view.link)) if view.link else ""
    text = (tag("h2", say("The text")), tag("pre", view.text), tag("p", signs(view.labels), class_="note"), link)
    seen = [join((tag("p", words), tag("img", src=uri, alt=words))) for words, uri in view.pictures]
    image = (tag("h2", say("The image")), *seen) if seen else ()
    below = join((*image, *_numbers(view), *text))
    return explorer_page(title, view.heads, absent=say(ABSENT), above=above, below=below, style="report.css")


def _about(view: ReportView) -> list[tuple[str, str]]:
    layers, heads = view.heads.thumbnails.shape[:2]
    size = {"model": view.model, "network": view.network, "layers": layer_count(layers), "heads": head_count(heads)}
    return [
        (say("model"), say("{model} ({network}): {layers} × {heads}", **size)),
        (say("attention"), "" if view.attention == "self" else say(view.attention)),
        (say("tokens"), together(filter(None, [f"{view.tokens:,}", view.cut]))),
        (say("masks"), view.masks),
        (say("masks, in full"), view.spec),
        (say("created with"), view.versions),
    ]


def _numbers(view: ReportView) -> list[str]:
    now, standard = view.now, view.standard or view.now
    changed = view.standard is not None
    layer, head = view.heads.chosen[0]
    parts: list[str] = []
    if now.candidates and standard.candidates:
        next_tokens = Markup(next_token_table(list(now.candidates), list(standard.candidates), changed=changed))
        parts += [tag("h2", say("The next token")), next_tokens]
    if now.candidates and standard.candidates and not np.isnan(now.losses).all():  # the first token has none
        parts.append(tag("h2", say("Loss of each token, in nats")))
        mean = say("The mean is {mean:.2f}.", mean=np.nanmean(now.losses))
        words = Markup(loss_words(now.losses, standard.losses, list(view.labels))) if changed else mean
        parts.append(tag("p", words))
        for name, some in ((say("now"), now), (say("standard"), standard))[: 2 if changed else 1]:
            parts.append(_loss_strip(some.losses, view.labels, name if changed else ""))
    leaks = leak_table(*_leaks(now, standard, (layer, head)), view.heads.names[layer][head], changed=changed)
    return [*parts, tag("h2", say("Leak")), Markup(leaks)]


def _leaks(now: ReportNumbers, standard: ReportNumbers, place: tuple[int, int]) -> tuple[Shares, Shares]:
    """Of one head, and the mean of all, (now, standard) each."""
    one = [LeakShares(float(some.future[place]), float(some.padding[place])) for some in (now, standard)]
    every = [LeakShares(mean_share(some.future), mean_share(some.padding)) for some in (now, standard)]
    return (one[0], one[1]), (every[0], every[1])


def _loss_strip(losses: np.ndarray, labels: Sequence[str], name: str) -> Markup:
    colour = ",".join(map(str, rgb(NOW)))
    tokens = []
    for loss, label in zip(losses.tolist(), labels, strict=True):
        shade = min(np.nan_to_num(loss) / WORST, 1) * 0.7
        title = say("no loss") if np.isnan(loss) else say("{loss:.2f} nats", loss=loss)
        tokens.append(tag("span", label, title=title, style=f"background:rgba({colour},{shade:.2f})"))
    return tag("p", join((tag("b", name), *tokens)), class_="losses")
