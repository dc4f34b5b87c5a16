"""Standalone pages of all heads: the overview, and a large picture of the head selected in it; and reports, which show
a run on such a page, with its masks, its numbers and its text.

A report has at most 8 MB: it includes heads with at most viz.heads.cells.MAX_CELLS cells together, and says so if these
are not all heads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from i18n import N_, say, together
from model.heads.view import HeadView, head_name
from viz.components import packed, words
from viz.head import head_range
from viz.heads.cells import (
    MAX_CELLS,
    around,
    change_range,
    described,
    difference_header,
    heads_that_fit,
    picture_header,
    weight_digits,
)
from viz.heads.overview import overview_packet
from viz.heads.tokens import brightest, colour_scale_sentence
from viz.heatmap import axis_titles
from viz.html import join, signs, table, tag, td, th
from viz.numbers import Candidate, head_count, layer_count, leak_shares, leak_table, next_token_table
from viz.palette import NOW, rgba
from viz.saved.standalone import document, inlined
from viz.sentence import LAYER_ONLY, loss_words

SHIFT = 10_000  # added to numbers in ten-thousandths, since changes may be negative
ABSENT = N_("{} is included only as a thumbnail: this report has no room for its weights.")
HELD = N_(
    "Heads included in full, to four digits: {held} of {heads}. Any others are thumbnails, to keep the file below 8 MB."
)
WORST = 8.0  # nats; a loss of this size has the strongest colour
MAX_TOKENS = 1024  # most queries, and most keys, of a head included in full


@dataclass(frozen=True)
class NumberKind:
    """A kind of number in heads' cells, and how it is shown. header: a packet's, by query. most: the end of a head's
    colour scale. views: those of a selected head. caption: the overview's."""

    header: Callable[[int], dict[str, Any]]
    most: Callable[[HeadView], float]
    views: tuple[str, ...]
    caption: str


WEIGHTS = NumberKind(
    picture_header,
    head_range,
    ("heatmap", "tokens"),
    N_(
        "Every head, colours from 0 to 1: rows are layers, columns are heads. Click one, or use the arrow keys and "
        "Enter."
    ),
)
CHANGES = NumberKind(
    difference_header,
    change_range,
    ("heatmap",),
    N_("The largest change of a weight in each patch, without its sign. Click one, or use the arrow keys and Enter."),
)


@dataclass(frozen=True, eq=False)
class AllHeads:
    """All heads on one text.

    thumbnails: float32 [L,H,S,S'], 0 to 1. blocked: bool [L, H or 1, S, S'], whether all of a patch is blocked. heads:
    by (layer, head) those included in full, over the same tokens, which a page draws when they are selected. chosen: at
    least one head to show first. query: the position whose row is framed. numbers: each layer's number in the network,
    if not 0, 1, 2 … notes: a line for each layer and head, or empty. measures: as in overview_packet. across: whether
    the keys are another text. part: a sentence on which part of a longer text the full heads show, or "".
    """

    thumbnails: np.ndarray
    blocked: np.ndarray
    heads: Mapping[tuple[int, int], HeadView]
    chosen: Sequence[tuple[int, int]]
    query: int
    numbers: Sequence[int] = ()
    notes: Sequence[Sequence[str]] = ()
    measures: Mapping[str, np.ndarray] = field(default_factory=dict)
    across: bool = False
    part: str = ""

    @property
    def names(self) -> list[list[str]]:
        """The names of each layer's heads."""
        layers, heads = self.thumbnails.shape[:2]
        return [[head_name(number, head) for head in range(heads)] for number in self.numbers or range(layers)]

    def overview(self) -> bytes:
        """Return the overview's packet."""
        layer, head = self.chosen[0]
        return overview_packet(
            self.thumbnails, self.blocked, layer=layer, head=head, numbers=self.numbers, measures=self.measures
        )


def all_heads(
    view: Callable[[int, int], HeadView],
    thumbnails: np.ndarray,
    blocked: np.ndarray,
    chosen: Sequence[tuple[int, int]],
    query: int,
    *,
    cells: int = MAX_CELLS,
    tokens: int,
    size: tuple[int, ...] = (),
    **about: Any,
) -> AllHeads:
    """Collect all heads, and include as many as fit in full, the chosen ones first.

    view: returns a head by its layer and head. cells: the limit for all heads together; tokens: the limit for queries
    and for keys, cut around the query. size: how many queries and keys a whole head has, if view returns a part. See
    AllHeads for the others.
    """
    every = [(layer, head) for layer in range(thumbnails.shape[0]) for head in range(thumbnails.shape[1])]
    first = view(*chosen[0])
    held: dict[tuple[int, int], HeadView] = {}
    for pair in dict.fromkeys([*chosen, *every]):
        whole = view(*pair)
        held[pair] = around(whole, (0, len(whole.queries)), query, tokens)
        if len(held) == heads_that_fit(held[pair], cells):
            break
    part = part_words(size or first.weights.shape, held[chosen[0]])
    return AllHeads(thumbnails, blocked, held, tuple(chosen), query, part=part, **about)


def part_words(size: tuple[int, ...], view: HeadView) -> str:
    """Return a sentence on which of a head's queries and keys a part of it shows; "" if it shows all."""
    if size == view.weights.shape:
        return ""
    (queries, keys), (rows, columns) = size, view.weights.shape
    about = {"first": view.first, "last": view.first + rows - 1, "queries": queries, "keys": keys}
    about |= {"first_key": view.first_key, "last_key": view.first_key + columns - 1}
    return say("The large heatmap shows queries {first}–{last} of {queries:,} and keys {first_key}–{last_key} of "
               "{keys:,}.", **about)  # fmt: skip


def heads_packet(heads: AllHeads, kind: NumberKind, absent: str) -> bytes:
    """Return the packet of the heads included in full, with the names of all. absent: as in explorer_page.

    Its planes: the numbers in ten-thousandths plus SHIFT, first all high bytes, then all low ones, uint8 [n,Q,K] each;
    then which reason blocks each cell, uint16 [m,Q,K], where each head refers to one of the m planes.
    """
    views = list(heads.heads.values())
    about, planes = described(views)
    masks: dict[bytes, int] = {}  # a plane -> its index: most heads share one
    held = []
    for ((layer, head), view), plane in zip(heads.heads.items(), planes, strict=True):
        notes = [
            heads.notes[layer][head] if heads.notes else "",
            colour_scale_sentence(view) if "tokens" in kind.views else "",
        ]
        number = masks.setdefault(plane.tobytes(), len(masks))
        one = {"head": [layer, head], "plane": number, "most": kind.most(view), "brightest": brightest(view)}
        held.append(one | {"note": together(filter(None, notes))})
    header = {
        "held": held,
        "shift": SHIFT,
        "views": list(kind.views),
        "names": heads.names,
        "chosen": [list(one) for one in heads.chosen],
        "absent": absent,
        "among": [about["first"], about["first"] + len(about["queries"])],
        "across": heads.across,
        "words": words("cells", *kind.views),
        "titles": axis_titles(views[0]),
    }
    numbers = np.stack([weight_digits(view.weights) for view in views]) + SHIFT
    high, low = (numbers >> 8).astype(np.uint8), (numbers & 255).astype(np.uint8)
    return packed(about | kind.header(heads.query) | header, high.tobytes(), low.tobytes(), *masks)


def explorer_page(
    title: str,
    heads: AllHeads,
    *,
    kind: NumberKind = WEIGHTS,
    absent: str,
    above: str = "",
    below: str = "",
    style: str = "",
) -> str:
    """Return the HTML document of all heads. absent: the sentence on a head that is not included in full, with "{}" for
    its name. above, below: HTML around the pictures. style: a further file of components/."""
    left = (
        tag("p", say(kind.caption), class_="note"),
        tag("div", class_="view overview", data_part="overview"),  # not shown
        tag("div", class_="chosen", data_part="chosen", role="group", aria_label=say("Chosen heads")),
    )
    right = (
        tag("h2", data_part="name"),
        *(tag("div", class_=f"view {view}", data_part=view) for view in kind.views),
        tag("p", data_part="note", class_="note"),
        tag("p", heads.part, class_="note"),
    )
    body = (
        Markup(above),
        tag("div", join((tag("div", join(left)), tag("div", join(right)))), class_="explorer"),
        inlined("overview", heads.overview()),
        inlined("heads", heads_packet(heads, kind, absent)),
        Markup(below),
    )
    styles = ("explorer.css", style) if style else ("explorer.css",)
    script = ("packet.js", "page.js", "explorer.js")
    return document(title, join(body), ["overview", *kind.views], script=script, styles=styles)


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """The numbers of a run. future, padding: float32 [L,H], shares of attention. candidates: the likeliest next tokens;
    losses: float32 [T], nats, NaN where there is none; both empty for a model that predicts no next token."""

    future: np.ndarray
    padding: np.ndarray
    candidates: Sequence[Candidate] = ()
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True, eq=False)
class ReportView:
    """A run to report. model: its name; network: its architecture. attention: "self", or which one of an
    encoder-decoder. tokens: how many are not padding. masks: which are on, in words; spec: all of them, to repeat the
    run, or "". versions: of the programs. text: the part that was read; cut: a sentence on the rest, or ""; labels: its
    tokens. standard: numbers under the standard masks, None if `now` is under these. link: to the same view in a
    running app, or "". pictures: of a text's image, a sentence and a URI each. layer_only: the name of the layer, if
    its weights alone are recomputed under these masks, else ""."""

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
    layer_only: str = ""


def report_page(view: ReportView) -> str:
    """Return the report as one HTML file."""
    title = say("{model}: what every head attends to", model=view.model)
    layers, heads = view.heads.thumbnails.shape[:2]
    held = say(HELD, held=len(view.heads.heads), heads=layers * heads)
    size = {"model": view.model, "network": view.network, "layers": layer_count(layers), "heads": head_count(heads)}
    facts = {
        say("model"): say("{model} ({network}): {layers} × {heads}", **size),
        say("attention"): "" if view.attention == "self" else say(view.attention),
        say("tokens"): together(filter(None, [f"{view.tokens:,}", view.cut])),
        say("masks"): view.masks,
        say("masks, in full"): view.spec,
        say("created with"): view.versions,
    }
    rows = [[th(name, scope="row"), td(fact)] for name, fact in facts.items() if fact]
    about = table(rows, "numbers about")  # not shown
    only = tag("p", say(LAYER_ONLY, layer=view.layer_only), class_="note") if view.layer_only else ""
    above = join((tag("h1", title), about, only, tag("p", held, class_="note")))
    link = tag("p", tag("a", say("This view in a running app"), href=view.link)) if view.link else ""
    text = (tag("h2", say("The text")), tag("pre", view.text), tag("p", signs(view.labels), class_="note"), link)
    seen = [join((tag("p", words), tag("img", src=uri, alt=words))) for words, uri in view.pictures]
    image = (tag("h2", say("The image")), *seen) if seen else ()
    below = join((*image, *_numbers(view), *text))
    return explorer_page(title, view.heads, absent=say(ABSENT), above=above, below=below, style="report.css")


def _numbers(view: ReportView) -> list[str]:
    now, standard = view.now, view.standard or view.now
    changed = view.standard is not None
    rerun = changed and not view.layer_only  # recomputing one layer's weights changes no prediction
    layer, head = view.heads.chosen[0]
    parts: list[str] = []
    if now.candidates and standard.candidates:
        next_tokens = Markup(next_token_table(list(now.candidates), list(standard.candidates), changed=rerun))
        parts += [tag("h2", say("The next token")), next_tokens]
    if now.candidates and standard.candidates and not np.isnan(now.losses).all():  # the first token has no loss
        parts.append(tag("h2", say("Loss of each token, in nats")))
        mean = say("The mean is {mean:.2f}.", mean=np.nanmean(now.losses))
        words = Markup(loss_words(now.losses, standard.losses, list(view.labels))) if rerun else mean
        parts.append(tag("p", words))
        for name, some in ((say("now"), now), (say("standard"), standard))[: 2 if rerun else 1]:
            parts.append(_loss_strip(some.losses, view.labels, name if rerun else ""))
    one, every = zip(*(leak_shares(some.future, some.padding, layer, head) for some in (now, standard)), strict=True)
    shares = leak_table(one, every, view.heads.names[layer][head], changed=changed)
    return [*parts, tag("h2", say("Leak")), Markup(shares)]


def _loss_strip(losses: np.ndarray, labels: Sequence[str], name: str) -> Markup:
    tokens = []
    for loss, label in zip(losses.tolist(), labels, strict=True):
        shade = rgba(NOW, min(np.nan_to_num(loss) / WORST, 1) * 0.7)
        title = say("no loss") if np.isnan(loss) else say("{loss:.2f} nats", loss=loss)
        number = "" if np.isnan(loss) else tag("small", f"{loss:.2f}")
        tokens.append(tag("span", join((label, number)), title=title, style=f"background:{shade}"))
    return tag("p", join((tag("b", name), *tokens)), class_="losses")
