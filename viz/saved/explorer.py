"""All heads on one page, without a server: the overview, and the head that is picked in it, large."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from i18n import N_, say, together
from model.heads.view import HeadView, head_name
from viz.components import packed, words
from viz.head import head_range
from viz.heads import picture
from viz.heads.cells import around, described
from viz.heads.overview import overview_packet
from viz.heads.tokens import brightest, light_words
from viz.heatmap import axis_titles
from viz.html import join, tag
from viz.saved.standalone import document, inlined

SHIFT = 10_000  # added to the ten-thousandths: a change may be negative


@dataclass(frozen=True)
class NumberKind:
    """What the numbers of the heads are, and how they are drawn. caption: of the overview."""

    header: Callable[[int], dict[str, Any]]
    most: Callable[[HeadView], float]
    views: tuple[str, ...]
    caption: str


WEIGHTS = NumberKind(
    picture.picture_header,
    head_range,
    ("heatmap", "tokens"),
    N_(
        "Every head, colours from 0 to 1: rows are layers, columns are heads. Click one, or use the arrow keys and "
        "Enter."
    ),
)
CHANGES = NumberKind(
    picture.difference_header,
    picture.change_range,
    ("heatmap",),
    N_("The largest change of a weight in each patch, without its sign. Click one, or use the arrow keys and Enter."),
)


@dataclass(frozen=True, eq=False)
class AllHeads:
    """All heads on one text.

    thumbnails: float32 [L,H,S,S'], 0 to 1. blocked: bool [L, H or 1, S, S'], patches blocked as a whole. heads: by
    (layer, head) those held in full, over the same tokens, which a page draws when they are picked. chosen: those to
    choose first, one at least. query: the position whose row is framed. numbers: of each layer in the network, where
    they are not 0, 1, 2 … notes: for each layer and head a line, or none. measures: as overview_packet's. across: the
    keys are another text. part: what of a longer text the heads in full show, in a sentence, or "".
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
        """Of each layer's heads."""
        layers, heads = self.thumbnails.shape[:2]
        return [[head_name(number, head) for head in range(heads)] for number in self.numbers or range(layers)]

    def overview(self) -> bytes:
        """The packet of the overview."""
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
    cells: int = picture.MOST_CELLS,
    tokens: int,
    **about: Any,
) -> AllHeads:
    """All heads, and in full those for which there is room, the chosen ones first.

    view: gives a whole head by its layer and head. cells: room for so many of all heads; tokens: for so many of each
    side, those around the query. The others as AllHeads'.
    """
    every = [(layer, head) for layer in range(thumbnails.shape[0]) for head in range(thumbnails.shape[1])]
    first = view(*chosen[0])
    held: dict[tuple[int, int], HeadView] = {}
    for place in dict.fromkeys([*chosen, *every]):
        whole = view(*place)
        held[place] = around(whole, (0, len(whole.queries)), query, tokens)
        if len(held) == picture.room_for(held[place], cells):
            break
    part = part_words(first, held[chosen[0]])
    return AllHeads(thumbnails, blocked, held, tuple(chosen), query, part=part, **about)


def part_words(whole: HeadView, view: HeadView) -> str:
    """In a sentence: which queries and keys of a whole head a part of it shows; "" where that is all of them."""
    if whole.weights.shape == view.weights.shape:
        return ""
    (queries, keys), (rows, columns) = whole.weights.shape, view.weights.shape
    places = {"first": view.first, "last": view.first + rows - 1, "queries": queries, "keys": keys}
    places |= {"first_key": view.first_key, "last_key": view.first_key + columns - 1}
    return say("The large heatmap shows queries {first}–{last} of {queries:,} and keys {first_key}–{last_key} of "
               "{keys:,}.", **places)  # fmt: skip


def heads_packet(heads: AllHeads, kind: NumberKind, absent: str) -> bytes:
    """The heads that are held in full, and the names of all. absent: as explorer_page's.

    The planes: of all numbers in ten-thousandths, SHIFT added, the high bytes, then the low ones, uint8 [n,Q,K] each;
    then what blocks the cells, uint16 [m,Q,K], of which each head has one.
    """
    views = list(heads.heads.values())
    about, planes = described(views)
    masks: dict[bytes, int] = {}  # a plane -> its number: most heads have the same
    held = []
    for ((layer, head), view), plane in zip(heads.heads.items(), planes, strict=True):
        notes = [heads.notes[layer][head] if heads.notes else "", light_words(view) if "tokens" in kind.views else ""]
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
    numbers = np.stack([picture.ten_thousandths(view.weights) for view in views]) + SHIFT
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
    """A whole document. absent: what is said of a head that is not held, "{}" standing for its name. above, below: HTML
    around the pictures. style: a file of components/ for it."""
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
